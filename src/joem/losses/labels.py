"""Labels at the size of feature maps: what every loss starts from."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.vocabulary import VOID


def resized(labels: Tensor, size: Sequence[int]) -> Tensor:
    """Labels (B,Ho,Wo) at another height and width, by nearest neighbour.

    >>> resized(torch.tensor([[[0, 1], [2, 3]]]), (1, 2))
    tensor([[[0, 1]]])
    """
    rows, columns = (
        # Resizing positions instead of labels costs next to nothing and still rounds as torch does.
        F.interpolate(torch.arange(old, device=labels.device).float()[None, None], size=new)[0, 0].long()
        for old, new in zip(labels.shape[1:], size, strict=True)
    )
    return labels[:, rows[:, None], columns]


def labelled_fraction(labels: Tensor, size: Sequence[int]) -> Tensor:
    """The share of pixels that are labelled (not void) once labels have `size`.

    A loss is a mean over labelled pixels. The mean of the losses of equally large parts of a batch, weighted
    by this share, is the loss of the whole batch; the same holds for the gradient.

    Args:
        labels: (B,Ho,Wo).
        size: the height and width at which the loss counts pixels.

    >>> labelled_fraction(torch.tensor([[[0, 255], [1, 3]]]), size=(2, 2))
    tensor(0.7500)
    """
    return (resized(labels, size) != VOID).float().mean()
