"""How unlike the training pixels a pixel is: what no mask ever showed belongs to a word without masks.

A student is as sure of a cow as of a horse if it never met one. What a pixel looks like to the frozen backbone tells
them apart: training pixels fill few directions of its space, and what they never showed lies outside of these.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from joem.methods.experts.expert import Expert, ExpertSettings, Shared, attend, resized, trained
from joem.methods.experts.view import View
from joem.models import Hypercolumns
from joem.settings import Count, Positive, Weight, settings

_PARTS = 3  # the last map, its mean over neighbours and its mean over the picture
_USUAL = 1.0  # deviations above the mean: what is less unlike the training pixels does not speak for new words
_MOST = 4.0  # deviations: beyond that a picture is of another kind, and nothing follows for its classes


@settings
class NoveltySettings(ExpertSettings):
    """How far a pixel lies outside of what training pixels look like.

    Args:
        directions: how many principal directions of the training pixels count as known.
        attention: mix the novelty of positions that look alike, by a softmax over this many times their cosine; 0
            leaves each position its own.
    """

    kind: str = "novelty"
    weight: Positive = 0.1
    directions: Count = 128
    attention: Weight = 8.0


class Novelty(Expert):
    """v = n / 2 with the novelty n of a pixel; mu is -1 for a class with masks and 1 for every other word.

    With x the standardised last map beside its means over neighbours and over the picture, and A the principal
    directions of x on training pixels, a pixel's residual is r = |x - A^T A x|, and n = (r - m) / s - 1, cut off at
    both ends. So the squared distance to a word without masks is 2n less than that to a class with masks, all else
    being equal; for most pixels of seen classes n is negative.

    m and s are the mean and the deviation of r on training pictures that A was not fitted to: A of one half of the
    pictures measures the other half. Before it is fitted, n is 0 everywhere.
    """

    settings_class = NoveltySettings
    settings: NoveltySettings
    unit: ClassVar[bool] = False
    mean: Tensor
    scale: Tensor
    axes: Tensor
    middle: Tensor
    sharpness: Tensor

    def __init__(self, settings: NoveltySettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        size = _PARTS * shared.channels[-1]
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("axes", torch.zeros(min(settings.directions, size), size))
        self.register_buffer("middle", torch.zeros(()))
        self.register_buffer("sharpness", torch.zeros(()))  # 1 / s

    def looks(self, view: View) -> Tensor:
        """The last map beside its means over neighbours and over the picture, (B,C,h,w)."""
        last = self.shared.channels[-1]
        if isinstance(view.columns, Hypercolumns):
            return view.columns.values[:, -_PARTS * last :]
        own = view.columns.coarse[-1][:, -2 * last :]
        return torch.cat([own, view.columns.everywhere.expand(-1, -1, *own.shape[-2:])], dim=1)

    def learn_looks(self, samples: Sequence[Tensor]) -> None:
        """Fit A, m and s to the looks (P,C) of labelled pixels of training pictures, one tensor per picture."""
        samples = [each.to(self.mean) for each in samples]
        pixels = torch.cat(samples)
        self.mean.copy_(pixels.mean(dim=0))
        self.scale.copy_(pixels.std(dim=0).clamp(min=1e-6).reciprocal())
        halves = [torch.cat([self._standardised(each) for each in samples[start::2]]) for start in (0, 1)]
        self.axes.copy_(self._directions(torch.cat(halves)))
        of_others = [residual(pixels, self._directions(fitted)) for fitted, pixels in (halves, reversed(halves))]
        residuals = torch.cat(of_others)
        self.middle.copy_(residuals.mean())
        self.sharpness.copy_(residuals.std().clamp(min=1e-6).reciprocal())

    def _standardised(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) * self.scale

    def _directions(self, pixels: Tensor) -> Tensor:
        """The principal directions of standardised pixels (P,C), as many as there are axes; (A,C)."""
        wide = pixels.double()
        _, vectors = torch.linalg.eigh(wide.T @ wide / len(wide))
        first: Tensor = vectors.flip(1)[:, : len(self.axes)].T
        return first.to(pixels)

    def novelty(self, view: View) -> Tensor:
        """N at every position of the last map, (B,1,h,w)."""
        looks = self.looks(view)
        pixels = self._standardised(looks.movedim(1, -1))
        found = (residual(pixels, self.axes) - self.middle) * self.sharpness
        own = (found.clamp(-_MOST, _MOST) - _USUAL * (self.sharpness > 0)).unsqueeze(1)
        if not self.settings.attention:
            return own
        return attend(pixels.movedim(-1, 1)[:, : self.shared.channels[-1]], own, self.settings.attention)

    def features(self, view: View) -> Tensor:
        """N / 2, at the size of the other experts' features."""
        return resized(self.novelty(view), view) / 2

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """-1 for the word of a class with masks, 1 for any other."""
        rows, _ = trained(vectors, known[list(self.shared.vocabulary.seen_indices)])
        return torch.where(rows, -1.0, 1.0).to(vectors).unsqueeze(1)


def residual(pixels: Tensor, axes: Tensor) -> Tensor:
    """|x - A^T A x| of pixels (..., C), with A orthonormal rows (A,C).

    >>> residual(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([4.])
    """
    squares = pixels.square().sum(dim=-1) - (pixels @ axes.T).square().sum(dim=-1)
    return squares.clamp(min=0).sqrt()
