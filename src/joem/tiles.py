"""Features of pictures too large to encode at once: overlapping tiles, faded into one another.

A tile's features depend on the tile: its borders are padded, and encoders that pool over the whole input (ASPP does)
see another input. So tiles overlap by `OVERLAP` pixels, and a tile's weight falls linearly to zero across the
overlap, where its neighbour's rises: features change from one tile to the next as gradually as that, without a step.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

SIDE = 1024
"""Pixels; a picture with no longer side is encoded whole."""

OVERLAP = 256
"""Pixels by which neighbouring tiles overlap, up to a step of the grid less."""

GRID = 32
"""Tiles start at multiples of this, the stride of the coarsest map in most backbones, so that features line up."""


def encode(features: Callable[[Tensor], Tensor], pixels: Tensor, stride: int, unit: int | None = None) -> Tensor:
    """Features (1,C,H,W) of a picture (3,Ho,Wo), whole if it is small enough.

    Args:
        features: the visual encoder, (3,h,w) -> (1,C,ceil(h/stride),ceil(w/stride)).
        pixels: the picture.
        stride: of the features.
        unit: the pixels after which all maps of the backbone begin again, a multiple of the stride; tiles start at
            multiples of it. The stride itself if None.
    """
    unit = unit or stride
    height, width = pixels.shape[1:]
    if max(height, width) <= SIDE:
        return features(pixels)
    side = tile_side(unit)
    rows, columns = -(-height // stride), -(-width // stride)
    total, weights = torch.empty(0), torch.zeros(rows, columns)
    for top, left in itertools.product(starts(height, unit), starts(width, unit)):
        part = features(pixels[:, top : top + side, left : left + side])
        if not total.numel():  # how many channels there are is known from the first tile
            total, weights = part.new_zeros(1, part.shape[1], rows, columns), weights.to(part)
        down = _taper(part.shape[2], stride, not_first=top > 0, not_last=top + side < height)
        across = _taper(part.shape[3], stride, not_first=left > 0, not_last=left + side < width)
        taper = torch.outer(down, across).to(part.device)
        first_row, first_column = top // stride, left // stride
        here = (slice(first_row, first_row + len(down)), slice(first_column, first_column + len(across)))
        total[:, :, *here] += taper * part
        weights[here] += taper
    return total.div_(weights)


def tile_side(stride: int) -> int:
    """Pixels of a tile: `SIDE`, or what comes next below it that the grid divides.

    >>> tile_side(4), tile_side(14)
    (1024, 1022)
    """
    return SIDE // _grid(stride) * _grid(stride)


def starts(length: int, stride: int) -> list[int]:
    """Where the tiles of a side begin, evenly spread.

    >>> starts(1024, 4), starts(1025, 4), starts(2500, 4), starts(2500, 14)
    ([0], [0, 32], [0, 768, 1504], [0, 742, 1484])
    """
    side, grid = tile_side(stride), _grid(stride)
    if length <= side:
        return [0]
    count = -(-(length - OVERLAP) // (side - OVERLAP))
    return [-(-(length - side) * index // ((count - 1) * grid)) * grid for index in range(count)]


def _grid(stride: int) -> int:
    return stride if GRID % stride else GRID


def _taper(count: int, stride: int, *, not_first: bool, not_last: bool) -> Tensor:
    """Weights of a tile's `count` rows of features: falling towards a neighbour, whole towards the picture's edge."""
    ramp = ((torch.arange(count) + 0.5) * stride / OVERLAP).clamp(max=1)
    whole = torch.ones(count)
    return torch.minimum(ramp if not_first else whole, ramp.flip(0) if not_last else whole)
