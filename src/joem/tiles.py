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
"""Pixels by which neighbouring tiles overlap, up to `GRID` less."""

GRID = 32
"""Tiles start at multiples of this, the largest stride of any encoder, so that their features line up."""


def encode(features: Callable[[Tensor], Tensor], pixels: Tensor) -> Tensor:
    """Features (1,C,H,W) of a picture (3,Ho,Wo), whole if it is small enough.

    Args:
        features: the visual encoder, (3,h,w) -> (1,C,ceil(h/stride),ceil(w/stride)).
        pixels: the picture.
    """
    height, width = pixels.shape[1:]
    if max(height, width) <= SIDE:
        return features(pixels)
    stride, total, weights = 0, torch.empty(0), torch.empty(0)  # known once the first tile is
    for top, left in itertools.product(starts(height), starts(width)):
        part = features(pixels[:, top : top + SIDE, left : left + SIDE])
        if not stride:
            stride = SIDE // max(part.shape[2:])  # along a side that is cut, the first tile is whole
            total = part.new_zeros(1, part.shape[1], -(-height // stride), -(-width // stride))
            weights = part.new_zeros(total.shape[2:])
        down = _taper(part.shape[2], stride, not_first=top > 0, not_last=top + SIDE < height)
        across = _taper(part.shape[3], stride, not_first=left > 0, not_last=left + SIDE < width)
        taper = torch.outer(down, across).to(part.device)
        rows, columns = (slice(at // stride, at // stride + n) for at, n in zip((top, left), taper.shape, strict=True))
        total[:, :, rows, columns] += taper * part
        weights[rows, columns] += taper
    return total.div_(weights)


def starts(length: int) -> list[int]:
    """Where the tiles of a side begin, evenly spread.

    >>> starts(1024), starts(1025), starts(2500)
    ([0], [0, 32], [0, 768, 1504])
    """
    if length <= SIDE:
        return [0]
    count = -(-(length - OVERLAP) // (SIDE - OVERLAP))
    return [-(-(length - SIDE) * place // ((count - 1) * GRID)) * GRID for place in range(count)]


def _taper(count: int, stride: int, *, not_first: bool, not_last: bool) -> Tensor:
    """Weights of a tile's `count` rows of features: falling towards a neighbour, whole towards the picture's edge."""
    ramp = ((torch.arange(count) + 0.5) * stride / OVERLAP).clamp(max=1)
    whole = torch.ones(count)
    return torch.minimum(ramp if not_first else whole, ramp.flip(0) if not_last else whole)
