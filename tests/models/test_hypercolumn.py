"""Hypercolumns: gathered as defined, and a head that need not build them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem.models import FeatureMaps, HypercolumnHead, Hypercolumns, build_encoder, hypercolumn
from joem.models.heads import HypercolumnSettings
from joem.settings import ModelSettings


def bilinear(plane, x, y):
    """The value of a map at a position between -1 and 1, from the definition (align_corners=False, border)."""
    height, width = plane.shape
    across = min(max((x + 1) / 2 * width - 0.5, 0), width - 1)
    down = min(max((y + 1) / 2 * height - 0.5, 0), height - 1)
    left, top = int(across), int(down)
    right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
    a, b = across - left, down - top
    upper = (1 - a) * plane[top, left] + a * plane[top, right]
    lower = (1 - a) * plane[bottom, left] + a * plane[bottom, right]
    return float((1 - b) * upper + b * lower)


def neighbours(plane):
    """The mean over 5x5 neighbours that exist."""
    height, width = plane.shape
    result = torch.zeros_like(plane)
    for i in range(height):
        for j in range(width):
            result[i, j] = plane[max(0, i - 2) : i + 3, max(0, j - 2) : j + 3].mean()
    return result


def random_maps(strides, size=(60, 100), batch=2):
    """Maps with two, three, ... channels of a picture."""
    maps = [
        torch.randn(batch, 2 + level, -(-size[0] // stride), -(-size[1] // stride))
        for level, stride in enumerate(strides)
    ]
    return FeatureMaps(maps, strides)


STRIDES = st.sampled_from([(8, 16, 16), (8, 8, 8), (8, 16, 32), (2, 4, 8, 16, 32), (4, 8), (16, 16), (14,)])


@settings(max_examples=25, deadline=None)
@given(STRIDES, st.integers(1, 70), st.integers(1, 70), st.integers(0, 10**6))
def test_gather_follows_the_definition(strides, height, width, seed):
    torch.manual_seed(seed)
    maps = random_maps(strides, (height, width), batch=1)
    positions = torch.rand(1, 4, 2) * 2.2 - 1.1
    found = hypercolumn.gather(maps, positions[None])[0]
    levels = [each[0] for each in maps.maps[-3:]]
    planes = [plane for each in levels for plane in each] + [neighbours(plane) for plane in levels[-1]]
    for number, (x, y) in enumerate(positions[0].tolist()):
        expected = [bilinear(plane, x, y) for plane in planes] + [float(plane.mean()) for plane in levels[-1]]
        torch.testing.assert_close(found[:, 0, number], torch.tensor(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("strides", [(8, 16, 16), (8, 16, 32), (14,)])
def test_gather_everywhere_equals_gather_at_the_positions_of_the_finest_map(strides):
    maps = random_maps(strides)
    rows, columns = ((torch.arange(size) + 0.5) / size * 2 - 1 for size in maps.maps[0].shape[-2:])
    positions = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1).expand(2, -1, -1, -1)
    everywhere = hypercolumn.gather(maps)
    torch.testing.assert_close(everywhere, hypercolumn.gather(maps, positions))
    assert torch.equal(everywhere, hypercolumn.gather(hypercolumn.basis(maps)))


@settings(max_examples=25, deadline=None)
@given(STRIDES, st.integers(1, 70), st.integers(1, 70), st.integers(1, 3), st.integers(0, 10**6))
@torch.no_grad()
def test_a_head_makes_the_same_of_maps_their_basis_and_their_hypercolumns(strides, height, width, copies, seed):
    torch.manual_seed(seed)
    maps = random_maps(strides, (height, width))
    head = HypercolumnHead([each.shape[1] for each in maps.maps], maps.strides, channels=4, hidden=6, copies=copies)
    norm = head.layers[0]
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 3)
    columns = hypercolumn.gather(maps)
    expected = head.eval().layers(columns)
    assert expected.shape == (2, 4 * copies, *maps.maps[-3:][0].shape[-2:])
    for inputs in (maps, hypercolumn.basis(maps), Hypercolumns(columns)):
        torch.testing.assert_close(head(inputs), expected, atol=1e-4, rtol=1e-4)


def test_copies_are_perceptrons_of_their_own_size():
    maps = random_maps((8, 16, 16))
    both, single = (HypercolumnHead([2, 3, 4], (8, 16, 32), channels=7, hidden=5, copies=copies) for copies in (2, 1))
    for copy in range(2):
        with torch.no_grad():
            for number, size in ((1, 5), (3, 7)):
                part = slice(copy * size, (copy + 1) * size)
                single.layers[number].weight.copy_(both.layers[number].weight[part])
                single.layers[number].bias.copy_(both.layers[number].bias[part])
        features = both.eval()(maps)[:, 7 * copy : 7 * copy + 7]
        torch.testing.assert_close(single.eval()(maps), features)


def test_in_training_the_statistics_are_those_of_the_hypercolumns():
    maps = random_maps((8, 16, 16))
    head = HypercolumnHead([2, 3, 4], maps.strides, channels=7, hidden=5).train()
    head.layers[0].momentum = 1.0
    head(maps)
    mean = hypercolumn.gather(maps).mean(dim=(0, 2, 3))
    torch.testing.assert_close(head.layers[0].running_mean, mean, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_encoder_takes_pictures_maps_and_hypercolumns():
    head = HypercolumnSettings(channels=8, hidden=16)
    encoder = build_encoder(ModelSettings(backbone="tu-test_efficientnet", freeze_backbone=True, head=head))
    picture = torch.randn(2, 3, 50, 71)
    for _ in range(3):
        encoder.train()(picture)  # statistics that are not those of a new layer
    maps = encoder.eval().trunk(picture)
    columns = Hypercolumns(hypercolumn.gather(maps))
    expected = encoder.head.layers(columns.values)
    assert expected.shape[:2] == (2, 8)
    for inputs in (picture, maps, columns):
        torch.testing.assert_close(encoder(inputs), expected, atol=1e-4, rtol=1e-4)


def test_pixels_with_three_channels_are_no_pictures():
    encoder = build_encoder(
        ModelSettings(backbone="tu-test_efficientnet", head=HypercolumnSettings(channels=8, hidden=16))
    ).eval()
    encoder.head = HypercolumnHead([1], (8,), channels=5, hidden=4).eval()  # its hypercolumns have three channels
    assert encoder(Hypercolumns(torch.randn(2, 3, 1, 9))).shape == (2, 5, 1, 9)


def test_where_the_last_map_is_in_a_hypercolumn():
    maps = random_maps((4, 8, 16, 16))
    columns = hypercolumn.gather(maps, torch.zeros(2, 1, 1, 2))
    last = columns[:, hypercolumn.last_channels([each.shape[1] for each in maps.maps])]
    expected = hypercolumn.gather(FeatureMaps(maps.maps[-1:], (16,)), torch.zeros(2, 1, 1, 2))[:, :5]
    torch.testing.assert_close(last, expected)
