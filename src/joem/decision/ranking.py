"""From features and prototypes to distances, the nearest class, and the ranking that every rule decides by.

By definition the features v (B,C,H,W) are upsampled to the image size (Ho,Wo), bilinear with
align_corners=False, and then the distance d(v, mu_c) to every prototype is taken. What runs is equal but never
holds C channels at image size. With v and mu_c both seen from a point amid the features, which changes no distance,

    d(v, mu_c)^2 = |v|^2 - score_c(v),    score_c(v) = 2 v . mu_c - |mu_c|^2.

The score is affine in v, so it is computed at feature size and interpolated: the nearest class has the largest.
|v|^2 is the same for all classes and follows from four maps at feature size (`search.squared_norms`).

A kernel in C does all of it in one go (`joem.decision.compiled`), for tensors of single precision on a CPU; else torch
does. Images are cut into bands of rows and classes into blocks then, so that memory stays near `search.BUDGET` for 2 or
20,000 classes.

Half-precision inputs are computed in float32. In float32 a squared distance carries an error of about
1e-7 (|v|^2 + |mu_c|^2), both seen from that point: give float64 tensors where that is too much.
No function here passes gradients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.decision import compiled, search
from joem.decision.search import Band, Window, Work, affine, find_best, scores, squared_norms, windows
from joem.errors import BadUsage
from joem.vocabulary import Classes, class_mask


class Ranking(NamedTuple):
    """What every rule needs to know of every pixel, each (B,Ho,Wo): rank once, decide many times.

    Where there is no such class, its distance is infinite and its label -1.
    """

    seen: Tensor
    """Label of the nearest seen class, int64."""
    seen_distance: Tensor
    """Distance to it."""
    second_seen_distance: Tensor
    """Distance to the second nearest seen class; NaN where it was not asked for."""
    unseen: Tensor
    """Label of the nearest unseen class, int64."""
    unseen_distance: Tensor
    """Distance to it."""


__all__ = ["Norms", "Ranking", "Window", "distances", "nearest", "norms", "rank", "windows"]


class Norms(NamedTuple):
    """What `rank` can reuse as long as features and size are the same: see `norms`."""

    centre: Tensor
    """A point amid the features, (C,)."""
    squares: Tensor
    """Squared distance to it from every pixel, (B,Ho,Wo)."""


@torch.no_grad()
def distances(features: Tensor, prototypes: Tensor, size: Sequence[int] | None = None) -> Tensor:
    """Euclidean distance d(v, mu_c) from every pixel to every prototype.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).

    Returns:
        (B,K,Ho,Wo), in channels-last memory order.

    >>> distances(torch.tensor([[[[0.0, 3.0]], [[0.0, 4.0]]]]), torch.zeros(1, 2))
    tensor([[[[0., 5.]]]])
    """
    work = Work(features, prototypes, size)
    result = features.new_empty((len(features), *work.size, len(prototypes)), dtype=work.dtype)

    def fill(band: Band) -> None:
        norms, pixels_of_band = squared_norms(band).unsqueeze(1), band.pixels()
        targets = torch.split(result[band.image, band.rows].flatten(0, 1), search.BLOCK, dim=1)
        for mu, target in zip(torch.split(work.prototypes - work.centre, search.BLOCK), targets, strict=True):
            table, parts = scores(band, *affine(mu)), pixels_of_band.split(search.BLOCK)
            rows = len(parts[0].starts)
            for pixels, norm, part in zip(parts, torch.split(norms, rows), torch.split(target, rows), strict=True):
                part.copy_((norm - pixels.interpolate(table)).clamp_(min=0).sqrt_())

    work.each_band(fill)
    return result.permute(0, 3, 1, 2)


@torch.no_grad()
def norms(features: Tensor, size: Sequence[int] | None = None) -> Norms:
    """The part of `rank` that does not depend on the prototypes; worth keeping to rank a picture more than once.

    Args:
        features: v, (B,C,H,W).
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).

    >>> norms(torch.tensor([[[[0.0, 2.0]]]]), size=(1, 4)).squares
    tensor([[[1.0000, 0.2500, 0.2500, 1.0000]]])
    """
    work = Work(features, features.new_zeros(1, features.shape[1]), size)
    squares = features.new_empty((len(features), *work.size), dtype=work.dtype)
    if work.is_compiled:
        none = torch.empty(0, dtype=torch.long)
        compiled.run(work, none, 0, none, {"squares": squares})
        return Norms(work.centre, squares)

    def fill(band: Band) -> None:
        target = squares[band.image, band.rows]
        target.copy_(squared_norms(band).clamp_(min=0).view_as(target))  # rounding may leave less than nothing

    work.each_band(fill)
    return Norms(work.centre, squares)


@torch.no_grad()
def rank(
    features: Tensor,
    prototypes: Tensor,
    unseen: Classes,
    size: Sequence[int] | None = None,
    known: Norms | None = None,
    owners: Tensor | None = None,
    second: bool = True,
) -> Ranking:
    """The nearest seen class, the second seen distance and the nearest unseen class of every pixel.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        size: (Ho,Wo) the features are upsampled to before the distance is taken, or a `Window` of that, to rank some
            of its rows; None keeps (H,W).
        known: what `norms` gave for the same features and size; saves a quarter of the time with few classes.
        owners: (K,), which class each prototype belongs to, where a class may have several: distances are those to the
            nearest of them. None where each prototype is a class.
        second: whether the second seen distance is needed; it is NaN otherwise.

    >>> ranking = rank(torch.zeros(1, 1, 1, 1), torch.tensor([[3.0], [1.0], [2.0]]), unseen=[1])
    >>> [part.item() for part in ranking]
    [2, 2.0, 3.0, 1, 1.0]
    """
    compiled.keep_freed_blocks()
    work = Work(features, prototypes, size, None if known is None else known.centre)
    if known is not None and known.squares.shape != (len(features), *work.size):
        expected = (len(features), *work.size)
        raise BadUsage(f"known holds norms of {tuple(known.squares.shape)}, expected {expected}: call norms again.")
    is_unseen = class_mask(unseen, len(prototypes))
    sides = [mask.nonzero().squeeze(1) for mask in (~is_unseen, is_unseen)]
    shape = (len(features), *work.size)
    dtypes = (torch.long, work.dtype, work.dtype, torch.long, work.dtype)
    result = Ranking(*(features.new_empty(shape, dtype=dtype) for dtype in dtypes))
    if not second:
        result.second_seen_distance.fill_(torch.nan)
    if work.is_compiled:
        if owners is not None:  # the prototypes of a class are neighbours to the kernel
            sides = [side[owners[side].argsort(stable=True)] for side in sides]
        order, names = torch.cat(sides), ("label", "distance", "second", "other_label", "other_distance")
        wanted = {name: part for name, part in zip(names, result, strict=True) if second or name != "second"}
        known_squares = {} if known is None else {"known": known.squares}
        compiled.run(work, order, len(sides[0]), order if owners is None else owners[order], wanted | known_squares)
        return result
    _rank_by_torch(work, sides, known, owners, second, result)
    if owners is None or not second:
        return result
    for index in torch.bincount(owners[~is_unseen]).gt(1).nonzero().flatten().tolist():
        others = prototypes[~is_unseen & (owners != index)]  # the second class, not the second prototype
        apart = rank(features, others, (), size, known, second=False).seen_distance if len(others) else torch.inf
        found = torch.where(result.seen == index, apart, result.second_seen_distance)
        result = result._replace(second_seen_distance=found)
    return result


def _rank_by_torch(
    work: Work, sides: Sequence[Tensor], known: Norms | None, owners: Tensor | None, second: bool, result: Ranking
) -> None:
    """Fill a ranking, see `rank`."""
    blocks = work.blocks(*sides)
    if owners is not None:
        table = F.pad(owners, (0, 1), value=-1).to(work.centre.device)  # -1, no class, stays -1
        blocks = [block._replace(labels=table[block.labels]) for block in blocks]

    def fill(band: Band) -> None:
        best = find_best(band, blocks, with_second=second)
        squares = squared_norms(band) if known is None else known.squares[band.image, band.rows].flatten()
        scores = torch.cat((best.first, best.second))
        seen_distance, unseen_distance, next_distance = (squares - scores).clamp_(min=0).sqrt_()
        parts = Ranking(best.label[0], seen_distance, next_distance, best.label[1], unseen_distance)
        for number, (whole, part) in enumerate(zip(result, parts, strict=True)):
            if second or number != 2:
                target = whole[band.image, band.rows]
                target.copy_(part.view_as(target))

    work.each_band(fill)


@torch.no_grad()
def nearest(
    features: Tensor, prototypes: Tensor, size: Sequence[int] | None = None, owners: Tensor | None = None
) -> Tensor:
    """NN, the nearest class: argmin_c d(v, mu_c), as labels (B,Ho,Wo).

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        size: (Ho,Wo) the features are upsampled to before the distance is taken, or a `Window` of that; None keeps
            (H,W).
        owners: (K,), which class each prototype belongs to; None where each is a class.

    >>> nearest(torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[0.0], [1.0]]), size=(1, 4))
    tensor([[[0, 0, 1, 1]]])
    """
    compiled.keep_freed_blocks()
    work = Work(features, prototypes, size)
    labels = features.new_empty((len(features), *work.size), dtype=torch.long)
    every = torch.arange(len(prototypes))
    if work.is_compiled:
        order = every if owners is None else owners.argsort(stable=True)
        compiled.run(work, order, len(order), order if owners is None else owners[order], {"label": labels})
        return labels
    blocks = work.blocks(every)

    def fill(band: Band) -> None:
        target = labels[band.image, band.rows]
        target.copy_(find_best(band, blocks).label.view_as(target))

    work.each_band(fill)
    return labels if owners is None else owners.to(labels.device)[labels]
