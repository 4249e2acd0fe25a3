import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import tiles


def local(pixels, stride=4):
    """An encoder that sees a feature's own pixels only."""
    return F.avg_pool2d(pixels[None].float(), stride, ceil_mode=True)


def pooling(pixels):
    """An encoder that sees nothing but the mean of what it is given."""
    height, width = (-(-side // 4) for side in pixels.shape[1:])
    return pixels.float().mean().expand(1, 1, height, width)


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "SIDE", 128)
    monkeypatch.setattr(tiles, "OVERLAP", 64)


def picture(height, width):
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 20_000), st.sampled_from([1, 4, 8, 14, 16, 28, 32, 64]))
def test_tiles_cover_a_side_line_up_and_overlap(length, stride):
    side, starts = tiles.tile_side(stride), tiles.starts(length, stride)
    grid = max(tiles.GRID, stride) if stride % 14 else stride
    assert tiles.SIDE - grid < side <= tiles.SIDE
    assert side % stride == 0
    assert starts[0] == 0
    assert starts[-1] + side >= length
    assert all(start % grid == 0 for start in starts)
    assert length <= side or starts[-1] + side - length < grid  # no sliver at the end
    for start, following in itertools.pairwise(starts):
        assert start < following <= start + side - tiles.OVERLAP + grid


def test_strides_that_divide_the_grid_cut_pictures_alike():
    """As the starts were before a stride was given."""
    for length in (1025, 1500, 2500, 4000, 9999):
        count = -(-(length - 256) // 768)
        expected = [-(-(length - 1024) * index // ((count - 1) * 32)) * 32 for index in range(count)]
        assert all(tiles.starts(length, stride) == expected for stride in (1, 2, 4, 8, 16, 32))


@pytest.mark.parametrize("size", [(128, 128), (128, 1), (1, 1), (77, 128)])
def test_a_picture_within_one_tile_is_untouched(small_tiles, size):
    given_pixels = picture(*size)
    seen = []

    def encoder(pixels):
        seen.append(pixels)
        return local(pixels)

    features = tiles.encode(encoder, given_pixels, 4)
    assert len(seen) == 1
    assert seen[0] is given_pixels
    assert torch.equal(features, local(given_pixels))


@pytest.mark.parametrize("size", [(129, 128), (1, 300), (300, 1), (250, 333), (128, 513)])
@pytest.mark.parametrize("stride", [1, 4, 14, 32])
def test_where_tiles_agree_the_result_is_that_of_the_whole_picture(small_tiles, size, stride):
    pixels, encoder = picture(*size), partial(local, stride=stride)
    torch.testing.assert_close(tiles.encode(encoder, pixels, stride), encoder(pixels))


def test_where_tiles_differ_features_change_gradually(small_tiles):
    pixels = torch.zeros(3, 400, 500, dtype=torch.uint8)
    pixels[:, :, 250:] = 240
    features = tiles.encode(pooling, pixels, 4)
    assert features.max() - features.min() > 200  # so the tiles do differ
    steepest = 240 * 4 / tiles.OVERLAP  # a ramp from one tile's value to the next one's
    assert features.diff(dim=3).abs().max() <= steepest
    assert features.diff(dim=2).abs().max() < 1e-3  # nothing changes downwards


def test_a_tile_counts_fully_at_the_edge_of_the_picture_and_not_at_all_at_its_own(small_tiles):
    pixels = torch.zeros(3, 100, 192, dtype=torch.uint8)
    pixels[:, :, 128:] = 200
    features = tiles.encode(pooling, pixels, 4)[0, 0, 0]
    first, second = (pooling(pixels[:, :, part]).flatten()[0] for part in (slice(0, 128), slice(64, 192)))
    assert features[0] == first
    assert features[-1] == second
    middle = 64 // 4 + 5  # 5.5 cells of 4 pixels into an overlap of 64
    share = 5.5 * 4 / 64
    assert features[middle] == pytest.approx(float((1 - share) * first + share * second))


@pytest.mark.parametrize("size", [(250, 333), (128, 513)])
def test_tiles_begin_where_the_coarsest_map_does(small_tiles, size):
    """Features of stride 7 beside a map of stride 28, as PiT has them."""

    def encoder(pixels):
        fine, coarse = local(pixels, 7), local(pixels, 28)
        return fine + coarse.repeat_interleave(4, 2).repeat_interleave(4, 3)[..., : fine.shape[2], : fine.shape[3]]

    pixels = picture(*size)
    torch.testing.assert_close(tiles.encode(encoder, pixels, 7, unit=28), encoder(pixels))
