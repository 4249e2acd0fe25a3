"""Scores of a segmentation, from one confusion matrix summed over the whole set, never averaged per image."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joem.errors import BadUsage
from joem.vocabulary import VOID, Classes, class_mask

SCORES = ("miou_seen", "miou_unseen", "hiou")
"""The scores of the field, as `Scores` calls them."""

Labels = Tensor | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Scores:
    """What a confusion matrix says, in percent.

    Attributes:
        miou_seen: mean intersection over union of the seen classes.
        miou_unseen: the same for the unseen classes.
        hiou: the harmonic mean of the two; 0 if either is 0.
        miou: the mean over all classes.
        pixel_accuracy: the share of pixels that are right.
        per_class: intersection over union of every class; nan where there is none.
    """

    miou_seen: float
    miou_unseen: float
    hiou: float
    miou: float
    pixel_accuracy: float
    per_class: tuple[float, ...]

    def __str__(self) -> str:
        return "seen {:.1f} unseen {:.1f} hIoU {:.1f}".format(*self.three)

    @property
    def three(self) -> tuple[float, float, float]:
        """The values of `SCORES`."""
        return self.miou_seen, self.miou_unseen, self.hiou

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold: nan, which JSON does not know, becomes None."""
        data = asdict(self)
        per_class = [_none_if_nan(value) for value in data.pop("per_class")]
        return {name: _none_if_nan(value) for name, value in data.items()} | {"per_class": per_class}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scores":
        """The inverse of `to_dict`; other keys may be there too."""
        single = {field.name: _nan_if_none(values[field.name]) for field in fields(cls) if field.name != "per_class"}
        return cls(**single, per_class=tuple(map(_nan_if_none, values["per_class"])))


def confusion(truth: Labels, predicted: Labels, count: int) -> Tensor:
    """How many pixels of every true class got every label; sum the matrices of all images.

    Args:
        truth: labels of any shape; void pixels are left out.
        predicted: labels of the same shape; they may be anything where the truth is void.
        count: the number of classes K.

    Returns:
        the counts, (K,K) int64, indexed [truth, predicted].

    >>> confusion(torch.tensor([0, 0, 1, 255]), torch.tensor([0, 1, 1, 0]), count=2)
    tensor([[1, 1],
            [0, 1]])
    """
    truth, predicted = _as_int64(truth), _as_int64(predicted)
    if truth.shape != predicted.shape:
        raise BadUsage(
            "truth and predicted must have the same shape, "
            f"got {tuple(truth.shape)} and {tuple(predicted.shape)}: resize the prediction to the mask first."
        )
    # Void pixels are counted in a bin of their own, cut off at last: several times faster than to pick the others out.
    void = truth == VOID
    truth, predicted = truth.masked_fill(void, 0), predicted.masked_fill(void, 0)
    for name, values in (("truth", truth), ("predicted", predicted)):
        for extreme in values.aminmax() if values.numel() else ():
            if not 0 <= extreme < count:
                raise BadUsage(f"{name} holds the label {int(extreme)}, expected 0 to {count - 1}.")
    pairs = (truth * count + predicted).masked_fill_(void, count**2)
    return torch.bincount(pairs.flatten(), minlength=count**2 + 1)[:-1].reshape(count, count)


def scores(confusion: Labels, unseen: Classes) -> Scores:
    """Intersection over union per class and its means.

        IoU_c = n_cc / (Σ_j n_cj + Σ_i n_ic - n_cc),   hIoU = 2 mIoU_S mIoU_U / (mIoU_S + mIoU_U)

    A class that is neither in the truth nor predicted has no IoU: nan, and left out of the means. A mean over
    no class is nan, and so is hIoU where there is no seen or no unseen class.

    Args:
        confusion: counts (K,K), indexed [truth, predicted].
        unseen: the unseen classes, as indices or as K booleans.

    >>> print(scores(torch.tensor([[6, 2], [0, 4]]), unseen=[1]))
    seen 75.0 unseen 66.7 hIoU 70.6
    """
    counts = _as_int64(confusion).cpu()
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise BadUsage(f"A confusion matrix must be square, got {tuple(counts.shape)}.")
    return from_counts(counts.diagonal(), counts.sum(dim=1), counts.sum(dim=0), unseen)


def from_counts(right: Tensor, actual: Tensor, predicted: Tensor, unseen: Classes) -> Scores:
    """The same scores from three counts per class, for thousands of classes without their confusion matrix.

    Args:
        right: pixels of each class that got its label, n_cc, (K,).
        actual: pixels of each class, Σ_j n_cj, (K,).
        predicted: pixels that got its label, Σ_i n_ic, (K,).
        unseen: the unseen classes, as indices or as K booleans.

    >>> print(from_counts(torch.tensor([6, 4]), torch.tensor([8, 4]), torch.tensor([6, 6]), unseen=[1]))
    seen 75.0 unseen 66.7 hIoU 70.6
    """
    is_unseen = class_mask(unseen, len(right))
    right, actual, predicted = (counts.double() for counts in (right, actual, predicted))
    iou = 100 * right / (actual + predicted - right)
    miou_seen, miou_unseen = iou[~is_unseen].nanmean().item(), iou[is_unseen].nanmean().item()
    return Scores(
        miou_seen=miou_seen,
        miou_unseen=miou_unseen,
        hiou=_harmonic_mean(miou_seen, miou_unseen),
        miou=iou.nanmean().item(),
        pixel_accuracy=(100 * right.sum() / actual.sum()).item(),
        per_class=tuple(iou.tolist()),
    )


def trade_off_area(seen: Sequence[float], unseen: Sequence[float]) -> float:
    """Area under the curve of mIoU_U over mIoU_S that a sweep traces, in percent.

    Only the best compromises count: points such that no other is at least as good on both (the Pareto front).
    Neighbours on the front are joined by straight lines. Left of its leftmost point the curve stays level
    down to mIoU_S = 0, since a worse mIoU_S is always to be had; right of its rightmost point it is 0. The
    area is 100 where both scores can be 100 at once.

    Args:
        seen: mIoU_S of every setting of the sweep, in percent.
        unseen: mIoU_U of the same settings, in percent.

    >>> trade_off_area([50, 60, 40], [20, 10, 5])  # (50 x 20 + 10 x 15) / 100; the others beat (40, 5)
    11.5
    """
    if len(seen) != len(unseen) or not len(seen):
        raise BadUsage(f"Expected as many seen as unseen scores, at least one, got {len(seen)} and {len(unseen)}.")
    if any(math.isnan(score) for score in (*seen, *unseen)):
        raise BadUsage("A trade-off needs both scores at every point, got nan: are there classes of both kinds?")
    best_seen_first = sorted(zip(seen, unseen, strict=True), reverse=True)
    front = best_seen_first[:1]
    for point in best_seen_first[1:]:
        if point[1] > front[-1][1]:
            front.append(point)
    front.append((0.0, front[-1][1]))
    return sum((x - left) * (y + higher) / 2 for (x, y), (left, higher) in pairwise(front)) / 100


def _harmonic_mean(a: float, b: float) -> float:
    return 0.0 if a + b == 0 else 2 * a * b / (a + b)


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else value


def _as_int64(values: Labels) -> Tensor:
    # Copies an array: torch warns about the read-only ones that Pillow gives.
    return values.long() if isinstance(values, Tensor) else torch.from_numpy(np.array(values, dtype=np.int64))
