"""Labels that a method gives to unlabelled pixels itself, to go on learning from them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.models import Hypercolumns, Inputs
from joem.vocabulary import VOID

SCALES = (0.75, 1.25)
"""The scales at which a picture must be named as at its own, beside its mirror image."""


def surest(confidence: Tensor, candidates: Tensor, share: float) -> Tensor:
    """The share of the candidates (B,H,W) that is most confident, at least one of them.

    >>> surest(torch.tensor([0.1, 0.9, 0.5, 0.8]), torch.tensor([True, True, True, False]), share=0.34)
    tensor([False,  True, False, False])
    """
    if not candidates.any():
        return candidates
    # Not torch.quantile, which refuses more than 16 million values.
    values = confidence[candidates].sort(descending=True).values
    return candidates & (confidence >= values[max(1, round(share * len(values))) - 1])


def pseudo_labels(labels: Tensor, named: Tensor, taken: Tensor) -> Tensor:
    """Labels (B,H,W) where void pixels that were taken have the class they were named."""
    return torch.where(taken & (labels == VOID), named, labels)


def agreeing(name: Callable[[Inputs], Tensor], inputs: Inputs, named: Tensor) -> Tensor:
    """Where the mirror image and other scales of a batch are named alike (STRICT, Pastore 2021), (B,H,W).

    Args:
        name: gives the class of every position, (B,H,W).
        inputs: pictures, or hypercolumns gathered from stored maps. These are named position by position, so that a
            mirror image says nothing new: only what is named alike with its neighbours' mean agrees.
        named: what `name` says of the batch.
    """
    if isinstance(inputs, Hypercolumns):
        smooth = F.avg_pool2d(inputs.values, 3, stride=1, padding=1, count_include_pad=False)
        return name(Hypercolumns(smooth)) == named
    assert isinstance(inputs, Tensor)
    agreed = name(inputs.flip(-1)).flip(-1) == named
    for scale in SCALES:
        other = name(F.interpolate(inputs, scale_factor=scale, mode="bilinear", align_corners=False))
        resized = F.interpolate(other[:, None].float(), size=named.shape[1:], mode="nearest")[:, 0].long()
        agreed &= resized == named
    return agreed
