"""Outlines that follow the picture: labels sharpened by a guided filter.

Features lie on a coarse grid, so outlines between classes run smoothly past the picture's own edges. The guided filter
(He, Sun and Tang, 2013) fits the mask q of a class, in every window w of pixels p with colours I, by a linear function
of the colours:

    min over a, b of  Σ_{p in w} (a . I(p) + b - q(p))^2 + ε |a|^2

A pixel's filtered mask is the mean of a . I(p) + b over the windows that hold it, and the pixel takes the class whose
filtered mask is the largest. Where the colours of two classes differ, the outline moves to where they change; where
they do not, it stays about where it was.

The functions are fitted on a picture reduced to a shorter side of `SIDE` pixels and then applied to every pixel of the
whole one, so a window is the same part of a small and of a large picture, and large pictures cost little more.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 160
"""Pixels of the shorter side that windows are fitted on; smaller pictures are taken as they are."""

RADIUS = 4
"""Of a window, which has 2 RADIUS + 1 pixels on each side."""

EPSILON = 1e-3
"""How much the colours, from 0 to 1, must vary in a window before the mask follows them."""


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
    present = labels.unique()
    if len(present) < 2:
        return labels
    guide = pixels.float() / 255
    fitted = _Fit(guide)
    best = torch.full(labels.shape, -torch.inf)
    found, rest = torch.zeros_like(labels), torch.ones(labels.shape)
    for label in present:
        # Masks add up to one, and so do filtered masks: the last one is known.
        mask = rest if label == present[-1] else fitted.filtered((labels == label).float())
        rest = rest - mask
        found = torch.where(mask > best, label, found)
        best = torch.maximum(best, mask)
    return found


class _Fit:
    """What the fits to all masks share: the picture, reduced and whole, and how its colours vary in every window."""

    def __init__(self, guide: Tensor) -> None:
        self.guide = guide
        scale = min(1.0, SIDE / min(guide.shape[1:]))
        self.size = [max(1, round(length * scale)) for length in guide.shape[1:]]
        self.reduced = self._reduce(guide)
        self.mean = _window_mean(self.reduced)
        rows, columns = torch.triu_indices(3, 3)
        products = self.reduced[rows] * self.reduced[columns]
        self.inverse = _inverse(_window_mean(products) - self.mean[rows] * self.mean[columns])

    def filtered(self, mask: Tensor) -> Tensor:
        """A filtered mask (H,W)."""
        reduced = self._reduce(mask[None])
        mean = _window_mean(reduced)
        covariance = _window_mean(self.reduced * reduced) - self.mean * mean
        slope = (self.inverse * covariance).sum(1)
        offset = mean - (slope * self.mean).sum(0, keepdim=True)
        fit = _window_mean(torch.cat([slope, offset]))
        whole = F.interpolate(fit[None], self.guide.shape[1:], mode="bilinear", align_corners=False)[0]
        return (whole[:3] * self.guide).sum(0) + whole[3]

    def _reduce(self, maps: Tensor) -> Tensor:
        return F.interpolate(maps[None], self.size, mode="area")[0]


def _window_mean(maps: Tensor) -> Tensor:
    """Means of maps (C,H,W) over the windows around every pixel, or over what of a window lies in the picture."""
    side = 2 * RADIUS + 1
    for shape, padding in (((side, 1), (RADIUS, 0)), ((1, side), (0, RADIUS))):
        maps = F.avg_pool2d(maps, shape, stride=1, padding=padding, count_include_pad=False)
    return maps


def _inverse(covariance: Tensor) -> Tensor:
    """The inverses (3,3,H,W) of covariance + ε identity, from the upper triangle (6,H,W): adjugate by determinant."""
    xx, xy, xz, yy, yz, zz = covariance
    xx, yy, zz = xx + EPSILON, yy + EPSILON, zz + EPSILON
    a, b, c = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    d, e, f = xx * zz - xz * xz, xy * xz - xx * yz, xx * yy - xy * xy
    adjugate = torch.stack([a, b, c, b, d, e, c, e, f]).view(3, 3, *xx.shape)
    return adjugate / (xx * a + xy * b + xz * c)
