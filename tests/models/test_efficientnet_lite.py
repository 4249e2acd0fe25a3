"""EfficientNet-lite of joem against timm's: weights, random numbers and maps are the same to the last bit."""

import pytest
import torch

from joem.models.backbones import build_backbone, efficientnet_lite, normalisation
from joem.models.backbones.efficientnet_lite import SCALES, Conv2dSame, EfficientNetLite, weight_names

timm = pytest.importorskip("timm")
encoders = pytest.importorskip("segmentation_models_pytorch.encoders")


@pytest.mark.parametrize("stride", [8, 16, 32])
@pytest.mark.parametrize("name", SCALES)
def test_maps_and_first_weights_are_those_of_timm(name, stride):
    torch.manual_seed(3)
    theirs = encoders.get_encoder(f"tu-{name}", weights=None, output_stride=stride).eval()
    after = torch.rand(1)
    torch.manual_seed(3)
    ours = EfficientNetLite(name, stride).eval()
    assert torch.equal(torch.rand(1), after)  # a seed means the same, whoever builds the network
    tensors = theirs.state_dict()
    assert list(tensors) == list(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(tensors.values(), ours.state_dict().values(), strict=True))
    generator = torch.Generator().manual_seed(0)
    for key, value in tensors.items():  # statistics that are not 0 and 1
        if key.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
        if key.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=generator) / 10)
    ours.load_state_dict(tensors)
    assert list(ours.out_channels) == list(theirs.out_channels)
    with torch.no_grad():
        for size in ((65, 97), (1, 33), (64, 32)):
            picture = torch.randn(2, 3, *size)
            assert all(torch.equal(a, b) for a, b in zip(ours(picture), theirs(picture), strict=True))


def test_gradients_and_batch_statistics_are_those_of_timm():
    torch.manual_seed(0)
    theirs = encoders.get_encoder("tu-tf_efficientnet_lite0", weights=None, output_stride=16)
    ours = EfficientNetLite("tf_efficientnet_lite0", 16)
    ours.load_state_dict(theirs.state_dict())
    picture = torch.randn(2, 3, 48, 64)
    for network in (ours, theirs):
        network.train()(picture)[-1].square().mean().backward()
    for (key, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=key)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", SCALES)
def test_names_of_weights_are_in_the_order_of_timm(name):
    torch.manual_seed(5)
    theirs, after = list(timm.create_model(name).state_dict()), torch.rand(1)
    torch.manual_seed(5)
    assert weight_names(name) == theirs
    assert torch.equal(torch.rand(1), after)


def test_the_padding_is_that_of_timm():
    for size in range(1, 9):
        x = torch.randn(1, 2, size, size + 1)
        for kernel, stride, dilation in ((3, 2, 1), (5, 2, 1), (3, 1, 2), (5, 3, 2)):
            theirs = timm.layers.Conv2dSame(2, 4, kernel, stride=stride, dilation=dilation)
            ours = Conv2dSame(2, 4, kernel, stride=stride, dilation=dilation)
            ours.load_state_dict(theirs.state_dict())
            assert torch.equal(ours(x), theirs(x))


def test_normalisation_is_what_timm_notes():
    for name in SCALES:
        noted = timm.models.get_pretrained_cfg(name)
        mean, std = normalisation(f"tu-{name}", "none")
        assert mean == tuple(255 * each for each in noted.mean)
        assert std == tuple(255 * each for each in noted.std)


def test_the_backbone_takes_any_size_without_padding():
    backbone = build_backbone("tu-tf_efficientnet_lite0").eval()
    assert isinstance(backbone.network, efficientnet_lite.EfficientNetLite)
    assert not backbone._pads
    assert backbone._rounds_up()  # what it is trusted to do


@pytest.mark.parametrize("stride", [8, 32])
def test_the_form_for_inference_makes_the_same_maps(stride):
    torch.manual_seed(1)
    network = EfficientNetLite("tf_efficientnet_lite1", stride).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # statistics, scales and shifts that matter
            for tensor, low in ((module.running_var, 0.5), (module.running_mean, -0.2), (module.weight, 0.5)):
                tensor.data.uniform_(low, low + 1)
            module.bias.data.uniform_(-0.5, 0.5)
    picture, quick = torch.randn(2, 3, 65, 97).double(), network.double().for_inference()
    assert not any(isinstance(each, torch.nn.BatchNorm2d) for each in quick.modules())
    with torch.no_grad():
        for own, other in zip(network(picture), quick(picture), strict=True):
            torch.testing.assert_close(own, other)
