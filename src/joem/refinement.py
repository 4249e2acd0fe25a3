"""Outlines that follow the picture: labels averaged over neighbours of like colour.

Features lie on a coarse grid, so outlines between classes run smoothly past the picture's own edges. On a copy of the
picture whose shorter side has `SIDE` pixels, the masks of the classes are averaged `ROUNDS` times over the 24 pixels at
`REACH` steps in eight directions, weighted by how alike the colours are:

    w(p, q)  proportional to  exp(-|I(p) - I(q)|^2 / (SIGMA v(p)))

where v(p) is how much the colours vary around p. Colours that differ little for their surroundings count as alike, so
labels spread within a thing and stop where its colour does. Every pixel then takes the class whose mask is the largest,
interpolated between the pixels of the copy.
"""

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 120
"""Pixels of the shorter side that masks are averaged on; smaller pictures are taken as they are."""

REACH, ROUNDS, SIGMA = (1, 2, 4), 10, 0.1
"""Chosen on folds, see docs/log/refinement.md."""

_WINDOW = 9  # side of the square in which v is taken
_LEAST = 1e-4  # of v, or noise on a plain wall would be an edge


@torch.no_grad()
def refine(labels: Tensor, pixels: Tensor) -> Tensor:
    """Labels (H,W) whose outlines follow the edges of their picture (3,H,W) uint8; no new label appears.

    >>> pixels = torch.zeros(3, 8, 9, dtype=torch.uint8)
    >>> pixels[:, :, 5:] = 200
    >>> labels = torch.zeros(8, 9, dtype=torch.int64)
    >>> labels[:, 4:] = 1
    >>> refine(labels, pixels)[0].tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    present = torch.bincount(labels.flatten()).nonzero().flatten().tolist()
    scale = min(1.0, SIDE / min(labels.shape))
    size = [max(1, round(length * scale)) for length in labels.shape]
    weights = _alike(F.interpolate(pixels[None].float() / 255, size, mode="area")[0])
    best = torch.full(labels.shape, -torch.inf)
    found, rest = labels.clone(), torch.ones(labels.shape)
    for label in present:
        if label == present[-1]:  # masks add up to one, and so do averaged masks
            mask = rest
        else:
            small = F.interpolate((labels == label)[None, None].float(), size, mode="area")[0]
            for _ in range(ROUNDS):
                small = (weights * _neighbours(small)).sum(0)
            mask = F.interpolate(small[None], labels.shape, mode="bilinear", align_corners=False)[0, 0]
            rest = rest - mask
        found = torch.where(mask > best, label, found)
        best = torch.maximum(best, mask)
    return found


def _alike(colours: Tensor) -> Tensor:
    """w, (24,1,H,W), of a picture (3,H,W)."""
    mean, square = (
        F.avg_pool2d(each[None], _WINDOW, 1, _WINDOW // 2, count_include_pad=False)[0]
        for each in (colours, colours.square())
    )
    varies = (square - mean.square()).clamp(min=0).sum(0) + _LEAST
    apart = (_neighbours(colours) - colours).square().sum(1, keepdim=True)
    return torch.softmax(-apart / (SIGMA * varies), 0)


def _neighbours(maps: Tensor) -> Tensor:
    """(24,C,H,W), what every pixel of maps (C,H,W) has around it; the border goes on beyond itself."""
    height, width = maps.shape[-2:]
    most = max(REACH)
    padded = F.pad(maps[None], (most,) * 4, mode="replicate")[0]
    steps = [(reach * y, reach * x) for reach in REACH for y, x in product((-1, 0, 1), repeat=2) if y or x]
    return torch.stack([padded[:, most + y : most + y + height, most + x : most + x + width] for y, x in steps])
