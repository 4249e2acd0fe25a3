"""Encoders: features of any picture, and only what should learn learns."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from joem.errors import BadUsage
from joem.models import (
    HEADS,
    Backbone,
    DeepLabV3PlusHead,
    FeatureMaps,
    Head,
    HypercolumnHead,
    build_encoder,
    build_trunk,
    semantic_encoder,
)
from joem.models.backbones import FAMILIES
from joem.models.heads import DeepLabV2Settings, DeepLabV3PlusSettings, HypercolumnSettings
from joem.recipe import Recipe
from joem.settings import Count, HeadSettings, ModelSettings, Positive, settings

V3PLUS = DeepLabV3PlusSettings(channels=8, rates=(1, 2, 3))


def small(head=V3PLUS, **changes):
    return ModelSettings(backbone="tu-test_efficientnet", head=head, **changes)


@pytest.mark.parametrize("size", [(64, 64), (65, 97), (33, 40)])
@pytest.mark.parametrize("stride", [8, 16, 32])
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (V3PLUS, {8: 4, 16: 4, 32: 4}),
        (DeepLabV2Settings(channels=8), {8: 8, 16: 16, 32: 32}),
        (HypercolumnSettings(channels=8, hidden=4), {8: 8, 16: 8, 32: 8}),
    ],
)
def test_features_of_any_size_have_the_stride_that_the_encoder_states(size, stride, head, expected):
    encoder = build_encoder(small(head, stride=stride)).eval()
    assert encoder.stride == expected[stride]
    features = encoder(torch.randn(1, 3, *size))
    assert features.shape == (1, 8, -(-size[0] // encoder.stride), -(-size[1] // encoder.stride))


class OneMap(Backbone):
    """A backbone with a single map of an unusual stride."""

    def __init__(self, name, weights, stride):
        super().__init__()
        self.channels, self.strides = [6], (14,)
        self.embed = nn.Conv2d(3, 6, 14, stride=14)

    def forward(self, pictures):
        height, width = pictures.shape[-2:]
        return FeatureMaps([self.embed(F.pad(pictures, (0, -width % 14, 0, -height % 14)))], self.strides)


@pytest.mark.parametrize("kind", [DeepLabV3PlusSettings, DeepLabV2Settings, HypercolumnSettings])
def test_a_family_of_backbones_is_one_line_and_every_head_works_on_it(kind, monkeypatch):
    monkeypatch.setitem(FAMILIES, "one-", OneMap)
    encoder = build_encoder(ModelSettings(backbone="one-map", head=kind(channels=8))).eval()
    assert encoder.stride == 14
    assert encoder(torch.randn(2, 3, 30, 14)).shape == (2, 8, 3, 1)


@settings
class ScaledSettings(HeadSettings):
    """A head from outside.

    Args:
        scale: what the last map is multiplied by.
    """

    name: str = "scaled"
    channels: Count = 5
    scale: Positive = 1.0


class Scaled(Head):
    """The first channels of the last map."""

    settings_class = ScaledSettings

    def __init__(self, inputs, strides, channels, scale):
        super().__init__()
        self.stride, self.channels, self.scale = strides[-1], channels, scale

    def forward(self, inputs):
        return self.scale * inputs.maps[-1][:, : self.channels]


def test_a_head_from_outside_is_one_line(monkeypatch):
    monkeypatch.setitem(HEADS, "scaled", Scaled)
    model = {"backbone": "tu-test_efficientnet", "head": {"name": "scaled", "scale": 3}}
    loaded = Recipe.from_dict({"model": model})
    assert loaded.model.head == ScaledSettings(scale=3.0)
    assert Recipe.from_dict(loaded.to_dict()) == loaded
    encoder, pictures = build_encoder(loaded.model).eval(), torch.randn(1, 3, 40, 64)
    assert encoder.stride == 16
    torch.testing.assert_close(encoder(pictures), 3 * encoder.trunk(pictures).maps[-1][:, :5])
    with pytest.raises(BadUsage, match=r"model\.head\.hidden: there is no such .* has name, channels, scale") as caught:
        Recipe.from_dict({"model": {"head": {"name": "scaled", "scale": 0, "hidden": 3}}})
    assert "model.head.scale: Input should be greater than 0, got 0" in str(caught.value)


def test_every_head_has_settings_under_its_name():
    assert [kind.settings_class().name for kind in HEADS.values()] == list(HEADS)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("kind", [DeepLabV3PlusSettings, DeepLabV2Settings, HypercolumnSettings])
def test_features_are_negative_too_only_without_a_relu(kind, relu):
    encoder = build_encoder(small(kind(channels=8, relu=relu))).eval()
    assert (encoder(torch.randn(2, 3, 64, 64)).min() < 0) == (not relu)


def test_deeplabv2_sums_its_branches():
    encoder = build_encoder(small(DeepLabV2Settings(channels=8, rates=(6, 12, 18, 24)), stride=8)).eval()
    images = torch.randn(1, 3, 65, 96)
    last = encoder.trunk(images).maps[-1]
    torch.testing.assert_close(encoder(images), sum(branch(last) for branch in encoder.head.branches))
    assert [branch.dilation for branch in encoder.head.branches] == [(6, 6), (12, 12), (18, 18), (24, 24)]


def test_the_rates_of_deeplabv3plus_are_settable():
    head = DeepLabV3PlusHead([4, 6], (4, 16), 8, rates=(2, 3, 5))
    dilations = {m.dilation[0] for m in head.aspp.modules() if isinstance(m, nn.Conv2d)}
    assert {2, 3, 5} <= dilations


def test_frozen_norm_keeps_statistics_and_trains_the_rest():
    encoder = build_encoder(small(freeze_norm=True)).train()
    backbone = encoder.trunk.backbone
    before = {k: v.clone() for k, v in backbone.state_dict().items() if "running" in k}
    encoder(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(torch.equal(v, backbone.state_dict()[k]) for k, v in before.items())
    norms = [m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(m.weight.grad is not None for m in norms)
    free = build_encoder(small(freeze_norm=False)).train()
    first = next(k for k in free.state_dict() if k.endswith("running_mean"))
    was = free.state_dict()[first].clone()
    free(torch.randn(2, 3, 64, 64))
    assert not torch.equal(was, free.state_dict()[first])


def test_frozen_backbone_has_nothing_to_train():
    encoder = build_encoder(small(freeze_backbone=True)).train()
    assert not any(p.requires_grad for p in encoder.trunk.parameters())
    assert not any(m.training for m in encoder.trunk.backbone.modules())
    assert all(p.requires_grad for p in encoder.head.parameters())
    assert encoder.head.training


def test_pictures_are_normalised_by_the_mean_and_deviation_that_the_backbone_expects():
    trunk, picture = build_trunk(small(None)), torch.randint(0, 256, (3, 2, 5), dtype=torch.uint8)
    trunk.mean, trunk.std = (10.0, 120.0, 30.0), (50.0, 60.0, 7.0)
    found = trunk.normalised(picture)
    assert found.dtype == torch.float32
    for channel in range(3):
        for y, x in ((0, 0), (1, 4)):
            expected = (int(picture[channel, y, x]) - trunk.mean[channel]) / trunk.std[channel]
            assert float(found[channel, y, x]) == pytest.approx(expected, rel=1e-6)


def test_side_resizes_what_the_backbone_sees():
    trunk = build_trunk(small(side=64)).eval()
    assert trunk(torch.randn(1, 3, 32, 48)).maps[-3].shape[-2:] == (8, 12)


@pytest.mark.parametrize(("size", "seen"), [((1200, 900), (85, 64)), ((1, 1500), (1, 256)), ((40, 1100), (9, 256))])
def test_side_takes_pictures_of_any_size(size, seen):
    encoder = build_encoder(small(HypercolumnSettings(channels=8, hidden=4), side=64)).eval()
    assert encoder(torch.randn(1, 3, *size)).shape[-2:] == tuple(-(-length // 8) for length in seen)


def test_an_encoder_needs_a_head_and_heads_need_no_encoder():
    with pytest.raises(BadUsage, match=r"--model.head.name to one of deeplabv3plus, deeplabv2, hypercolumn"):
        build_encoder(small(None))
    trunk = build_trunk(small(None)).eval()
    maps = trunk(torch.randn(1, 3, 64, 64))
    assert HypercolumnHead(trunk.channels, trunk.strides, channels=3, hidden=4).eval()(maps).shape == (1, 3, 8, 8)


def test_semantic_encoders():
    assert semantic_encoder("linear", 5, 3)(torch.zeros(2, 5)).shape == (2, 3)
    assert semantic_encoder("mlp", 5, 3)(torch.zeros(2, 5)).shape == (2, 3)
    with pytest.raises(BadUsage, match="linear, mlp"):
        semantic_encoder("cnn", 5, 3)
