"""From features and prototypes to labels: Euclidean distances and the rules NN, CS, AC and ratio.

The definition is: upsample the features v (B,C,H,W) to the image size (Ho,Wo), bilinear with align_corners=False,
then measure d(v, mu_c) to every prototype. What runs never holds C channels at image size, because with mu_c and v
both shifted by the mean prototype (which changes no distance)

    d(v, mu_c)^2 = |v|^2 - (2 v . mu_c - |mu_c|^2)

the bracket, called the score, is linear in v: it is computed at feature size and interpolated, K numbers per pixel
instead of C. |v|^2 is the same for every class and follows from four maps at feature size (`_squared_norms`).
The nearest class has the largest score. Everything runs in bands of image rows and blocks of classes, so that memory
stays near `BUDGET` for 2 or 20,000 classes.

Half-precision inputs are computed in float32. Rounding leaves an error of about 1e-7 (|v|^2 + |mu_c|^2), both taken
from the mean prototype, in a squared float32 distance; give float64 tensors where that is too much. No gradients.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.errors import BadUsage, JoemError, choose

BUDGET = 32 << 20
"""Bytes of features and scores held at a time, beside the result (never less than two rows of features need)."""

_BLOCK = 1024  # classes scored together
_GROUPS = (
    32  # torch finds a maximum fast but its place slowly: find the group of the winner, then look inside it
)
_TILE = 1 << 20  # interpolated scores at a time: 4 MB, so that two cores read them back from their own caches


class Ranking(NamedTuple):
    """What every rule needs to know about every pixel, each (B,Ho,Wo): rank once, decide many times.

    Where there is no such class its distance is infinite and its label -1.
    """

    seen: Tensor
    """Label of the nearest seen class, int64."""
    seen_distance: Tensor
    """Distance to it."""
    second_seen_distance: Tensor
    """Distance to the second nearest seen class."""
    unseen: Tensor
    """Label of the nearest unseen class, int64."""
    unseen_distance: Tensor
    """Distance to it."""


@torch.no_grad()
def distances(features: Tensor, prototypes: Tensor, size: Sequence[int] | None = None) -> Tensor:
    """Euclidean distance d(v, mu_c) from every pixel to every prototype.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        size: (Ho,Wo) the features are upsampled to before the distance is taken; their own size if None.

    Returns:
        (B,K,Ho,Wo), in channels-last memory order.

    >>> v = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).T.reshape(1, 2, 1, 2)
    >>> distances(v, torch.zeros(1, 2)).squeeze()
    tensor([0., 5.])
    """
    problem = _Problem(features, prototypes, size)
    blocks = problem.blocks(torch.arange(len(prototypes), device=features.device), pad=False)
    result = features.new_empty((len(features), *problem.size, len(prototypes)), dtype=problem.dtype)
    for band in problem.bands():
        norms = _squared_norms(band).unsqueeze(1)
        target = result[band.image, band.rows].flatten(0, 1)
        for block in blocks:
            scores = _interpolate(_scores(band, block), band.corners, band.weights)
            target[:, block.labels] = (norms - scores).clamp_(min=0).sqrt_()
    return result.permute(0, 3, 1, 2)


@torch.no_grad()
def rank(
    features: Tensor, prototypes: Tensor, unseen: Tensor | Sequence[int], size: Sequence[int] | None = None
) -> Ranking:
    """The nearest seen class, the second seen distance and the nearest unseen class of every pixel.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        size: (Ho,Wo) the features are upsampled to before the distance is taken; their own size if None.

    >>> ranking = rank(torch.zeros(1, 1, 1, 1), torch.tensor([[3.0], [1.0], [2.0]]), unseen=[1])
    >>> [x.item() for x in ranking]
    [2, 2.0, 3.0, 1, 1.0]
    """
    problem = _Problem(features, prototypes, size)
    is_unseen = _unseen_mask(unseen, len(prototypes)).to(features.device)
    seen_blocks, unseen_blocks = (
        problem.blocks(mask.nonzero().squeeze(1)) for mask in (~is_unseen, is_unseen)
    )
    shape = (len(features), *problem.size)
    label, distance = (
        features.new_empty(shape, dtype=torch.long),
        features.new_empty(shape, dtype=problem.dtype),
    )
    result = Ranking(label, distance, distance.clone(), label.clone(), distance.clone())
    for band in problem.bands():
        norms = _squared_norms(band)
        seen, first_unseen = _best_two(band, seen_blocks), _best_two(band, unseen_blocks)
        scores = torch.stack((seen.first, seen.second, first_unseen.first))
        near, second, unseen_near = (norms - scores).clamp_(min=0).sqrt_()
        for field, value in zip(
            result, (seen.label, near, second, first_unseen.label, unseen_near), strict=True
        ):
            target = field[band.image, band.rows]
            target.copy_(value.view_as(target))
    return result


@torch.no_grad()
def nearest(features: Tensor, prototypes: Tensor, size: Sequence[int] | None = None) -> Tensor:
    """NN, the nearest class: argmin_c d(v, mu_c), as labels (B,Ho,Wo).

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        size: (Ho,Wo) the features are upsampled to before the distance is taken; their own size if None.

    >>> nearest(torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[0.0], [1.0]]), size=(1, 4))
    tensor([[[0, 0, 1, 1]]])
    """
    problem = _Problem(features, prototypes, size)
    blocks = problem.blocks(torch.arange(len(prototypes), device=features.device))
    labels = features.new_empty((len(features), *problem.size), dtype=torch.long)
    for band in problem.bands():
        target = labels[band.image, band.rows]
        target.copy_(_best_two(band, blocks).label.view_as(target))
    return labels


def calibrated_stacking(
    features: Tensor,
    prototypes: Tensor,
    unseen: Tensor | Sequence[int],
    gamma: float,
    size: Sequence[int] | None = None,
) -> Tensor:
    """CS: argmin_c d(v, mu_c) - gamma [c is unseen], as labels (B,Ho,Wo); gamma = 0 is NN.

    The other arguments are those of `rank`.

    >>> v, mu = torch.tensor([[[[0.0, 1.0, 2.0]]]]), torch.tensor([[0.0], [3.0]])
    >>> calibrated_stacking(v, mu, unseen=[1], gamma=2.0)
    tensor([[[0, 1, 1]]])
    """
    return decide(rank(features, prototypes, unseen, size), "cs", gamma=gamma)


def apollonius(
    features: Tensor,
    prototypes: Tensor,
    unseen: Tensor | Sequence[int],
    sigma: float,
    size: Sequence[int] | None = None,
    squared: bool = False,
) -> Tensor:
    """AC, Apollonius calibration, as labels (B,Ho,Wo).

    Where the nearest class c1 is seen and the second nearest c2 is unseen, c1 is kept if d1 / d2 <= sigma (inside
    the Apollonius circle) and gives way to c2 otherwise; everywhere else it is NN. sigma = 1 is NN.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        sigma: in (0,1].
        size: (Ho,Wo) the features are upsampled to before the distance is taken; their own size if None.
        squared: compare squared distances with sigma, as the authors' code does.

    >>> v, mu = torch.tensor([[[[0.5, 1.0, 1.2]]]]), torch.tensor([[0.0], [3.0]])
    >>> apollonius(v, mu, unseen=[1], sigma=0.5)
    tensor([[[0, 0, 1]]])
    """
    return decide(rank(features, prototypes, unseen, size), "ac", sigma=sigma, squared=squared)


def decide(
    ranking: Ranking,
    rule: str = "nn",
    gamma: float | None = None,
    sigma: float | None = None,
    squared: bool = False,
) -> Tensor:
    """Labels (B,Ho,Wo) of a ranked picture by one of `RULES`.

    Args:
        ranking: what `rank` gives.
        rule: "nn"; "cs", which needs gamma; "ac" or "ratio", which need sigma. A rule ignores what it does not need.
        gamma: how much nearer CS takes unseen classes to be, finite and not negative.
        sigma: the ratio of distances above which an unseen class is preferred, in (0,1].
        squared: compare squared distances with sigma, as the authors' code does.

    >>> ranking = rank(torch.tensor([[[[0.5, 1.0, 1.2]]]]), torch.tensor([[0.0], [3.0]]), unseen=[1])
    >>> [decide(ranking, "ac", sigma=sigma).tolist() for sigma in (1.0, 0.4)]
    [[[[0, 0, 0]]], [[[0, 1, 1]]]]
    """
    unseen_wins = RULES[choose("rule", rule, RULES)](ranking, gamma=gamma, sigma=sigma, squared=squared)
    return torch.where(unseen_wins, ranking.unseen, ranking.seen)


def _nn(ranking: Ranking, **_: object) -> Tensor:
    return ranking.unseen_distance < ranking.seen_distance


def _cs(ranking: Ranking, *, gamma: float | None, **_: object) -> Tensor:
    if gamma is None or not (0 <= gamma < math.inf):
        raise BadUsage(
            f"The rule cs needs a finite gamma of 0 or more (0 is nearest neighbour), got {gamma}."
        )
    return ranking.unseen_distance - gamma < ranking.seen_distance


def _ac(ranking: Ranking, **sigma: object) -> Tensor:
    two_nearest_are_seen_then_unseen = ranking.unseen_distance < ranking.second_seen_distance
    return _nn(ranking) | (two_nearest_are_seen_then_unseen & _ratio(ranking, **sigma))


def _ratio(ranking: Ranking, *, sigma: float | None, squared: bool, **_: object) -> Tensor:
    """Beyond the paper: the ratio test between the nearest seen and the nearest unseen class wherever they rank."""
    if sigma is None or not (0 < sigma <= 1):
        raise BadUsage(f"The rules ac and ratio need a sigma in (0,1] (1 is nearest neighbour), got {sigma}.")
    return ranking.seen_distance > (math.sqrt(sigma) if squared else sigma) * ranking.unseen_distance


RULES: dict[str, Callable[..., Tensor]] = {"nn": _nn, "cs": _cs, "ac": _ac, "ratio": _ratio}
"""Each rule answers where the nearest unseen class wins over the nearest seen one."""


class _Axis(NamedTuple):
    """Where each output of a linear interpolation reads along one axis: two neighbours and their weights, (n,2)."""

    index: Tensor
    weight: Tensor


class _Band(NamedTuple):
    """Some rows of one output image and the features they are interpolated from; N pixels, row by row."""

    image: int
    rows: slice
    features: Tensor  # (C,h,W), shifted by the mean prototype
    vertical: _Axis  # into the h rows
    horizontal: _Axis
    corners: Tensor  # (N,4) positions in the h * W features
    weights: Tensor  # (N,4)


class _Block(NamedTuple):
    """Classes that are scored together: score = v @ weight + bias, for v shifted by the mean prototype."""

    labels: Tensor
    weight: Tensor
    bias: Tensor


class _BestTwo(NamedTuple):
    """The two largest scores of each pixel and the label (or column) of the first."""

    first: Tensor
    second: Tensor
    label: Tensor


class _Problem:
    """Checked inputs, cut into bands of rows and blocks of classes."""

    def __init__(self, features: Tensor, prototypes: Tensor, size: Sequence[int] | None) -> None:
        _check(features, prototypes)
        self.size = _checked_size(size, features)
        self.dtype = torch.promote_types(torch.promote_types(features.dtype, prototypes.dtype), torch.float32)
        self._features = features
        prototypes = prototypes.to(self.dtype)
        self._centre = prototypes.mean(0)
        self._prototypes = prototypes - self._centre

    def blocks(self, labels: Tensor, pad: bool = True) -> list[_Block]:
        """The given classes in blocks; with `pad`, long ones are filled up to whole groups with hopeless scores."""
        blocks = []
        for chosen in labels.split(_BLOCK) if len(labels) else ():
            mu = self._prototypes[chosen]
            missing = -len(chosen) % _GROUPS if pad and len(chosen) > 2 * _GROUPS else 0
            lowest = torch.finfo(self.dtype).min / 2  # not -inf, which a weight of zero would turn into NaN
            weight, bias = 2 * mu.T, -mu.square().sum(1)
            blocks.append(
                _Block(chosen, F.pad(weight, (0, missing)), F.pad(bias, (0, missing), value=lowest))
            )
        return blocks

    def bands(self) -> Iterator[_Band]:
        """Every row of every output image, as many rows at a time as the budget allows."""
        batch, channels, height, width = self._features.shape
        vertical, horizontal = (
            _axis(source, target, self._centre)
            for source, target in zip((height, width), self.size, strict=True)
        )
        # Scores are held in two layouts; the features with three temporaries of `_squared_norms`.
        bytes_per_row = width * (4 * channels + 2 * min(len(self._prototypes), _BLOCK)) * self.dtype.itemsize
        rows = max(1, (BUDGET // bytes_per_row - 1) * self.size[0] // height)
        for start in range(0, self.size[0], rows):
            band = slice(start, min(start + rows, self.size[0]))
            index, weight = vertical.index[band], vertical.weight[band]
            first, last = int(index[0, 0]), int(index[-1, 1])
            index = index - first
            corners = (index[:, None, :, None] * width + horizontal.index[:, None, :]).view(-1, 4)
            weights = (weight[:, None, :, None] * horizontal.weight[:, None, :]).view(-1, 4)
            for image in range(batch):
                source = self._features[image, :, first : last + 1].to(self.dtype)
                features = (source - self._centre[:, None, None]).contiguous()
                yield _Band(image, band, features, _Axis(index, weight), horizontal, corners, weights)


def _axis(source: int, target: int, like: Tensor) -> _Axis:
    """The neighbours and weights of F.interpolate(mode="bilinear", align_corners=False), edges clamped as there."""
    place = (torch.arange(target, dtype=like.dtype, device=like.device) + 0.5) * (source / target) - 0.5
    place.clamp_(min=0)
    low = place.long().clamp_(max=source - 1)
    high = (low + 1).clamp_(max=source - 1)
    step = (place - low).clamp_(0, 1)
    return _Axis(torch.stack((low, high), 1), torch.stack((1 - step, step), 1))


def _interpolate(table: Tensor, corners: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of four rows of `table` per pixel: (cells,n) -> (N,n)."""
    return F.embedding_bag(corners, table, per_sample_weights=weights, mode="sum")


def _scores(band: _Band, block: _Block) -> Tensor:
    """2 v . mu_c - |mu_c|^2 at feature size: (h * W, classes)."""
    return torch.addmm(block.bias, band.features.flatten(1).T, block.weight)


def _squared_norms(band: _Band) -> Tensor:
    """|v|^2 of every interpolated pixel, (N,), from maps at feature size.

    On a line |(1-t) a + t b|^2 = (1-t) |a|^2 + t |b|^2 - t (1-t) |b-a|^2. Applied along x to v and to its step down,
    then along y, this needs |.|^2 of v, of its steps right and down, and of the step right of the step down.
    """

    def along(axis: _Axis, squares: Tensor, squared_steps: Tensor) -> Tensor:
        (low, high), (near, far) = axis.index.unbind(1), axis.weight.unsqueeze(2).unbind(1)
        return near * squares[low] + far * squares[high] - near * far * squared_steps[low]

    def along_x(features: Tensor) -> Tensor:
        right = features.diff(dim=2, append=features[:, :, -1:])
        return along(band.horizontal, *(torch.linalg.vecdot(x, x, dim=0).T for x in (features, right))).T

    down = band.features.diff(dim=1, append=band.features[:, -1:])
    return along(band.vertical, along_x(band.features), along_x(down)).flatten()


def _best_two(band: _Band, blocks: list[_Block]) -> _BestTwo:
    """The two best scores of each pixel among all blocks; -inf and label -1 where there are no such classes."""
    none = band.weights.new_full((len(band.weights),), -math.inf)
    best = _BestTwo(none, none, torch.full_like(none, -1, dtype=torch.long))
    for block in blocks:
        found = _best_two_columns(_scores(band, block), band.corners, band.weights)
        best = _BestTwo(
            torch.maximum(best.first, found.first),
            torch.maximum(torch.minimum(best.first, found.first), torch.maximum(best.second, found.second)),
            torch.where(found.first > best.first, block.labels[found.label], best.label),
        )
    return best


def _best_two_columns(table: Tensor, corners: Tensor, weights: Tensor) -> _BestTwo:
    """The two best of the interpolated columns of `table`, a cache-sized tile of pixels at a time."""
    columns = table.shape[1]
    tile = max(1, _TILE // columns)
    tiles = zip(corners.split(tile), weights.split(tile), strict=True)
    if columns <= 2 * _GROUPS:
        found = [_top_two(_interpolate(table, *where)) for where in tiles]
    else:
        by_group = table.view(len(table), -1, _GROUPS).transpose(1, 2).flatten(0, 1).contiguous()
        found = [_top_two_by_group(table, by_group, *where) for where in tiles]
    return _BestTwo(*(torch.cat(part) for part in zip(*found, strict=True)))


def _top_two_by_group(table: Tensor, by_group: Tensor, corners: Tensor, weights: Tensor) -> _BestTwo:
    """`_top_two` of the interpolated columns: the best group by values alone, then the best column in that group.

    Column j is in group j % _GROUPS; `by_group` holds the same numbers with one row per cell and group.
    """
    peaks = _interpolate(table, corners, weights).view(len(corners), -1, _GROUPS).amax(1)
    group = _top_two(peaks)
    member = _top_two(_interpolate(by_group, corners * _GROUPS + group.label.unsqueeze(1), weights))
    second = torch.maximum(group.second, member.second)
    return _BestTwo(member.first, second, member.label * _GROUPS + group.label)


def _top_two(scores: Tensor) -> _BestTwo:
    """The two largest of each row and the place of the first; overwrites `scores`."""
    first, place = scores.max(1)
    second = scores.scatter_(1, place.unsqueeze(1), -math.inf).amax(1)
    return _BestTwo(first, second, place)


def _check(features: Tensor, prototypes: Tensor) -> None:
    for name, tensor, shape in (("features", features, "(B,C,H,W)"), ("prototypes", prototypes, "(K,C)")):
        if tensor.dim() != shape.count(",") + 1 or not tensor.is_floating_point() or tensor.numel() == 0:
            got = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise BadUsage(f"{name} must be a non-empty floating-point tensor {shape}, got {got}.")
        if not torch.stack(tensor.aminmax()).isfinite().all():
            raise JoemError(
                f"{name} hold NaN or infinite values, so no class is nearest: check what made them."
            )
    if features.shape[1] != prototypes.shape[1]:
        raise BadUsage(
            f"features have {features.shape[1]} channels but prototypes {prototypes.shape[1]}: "
            "they must come from the visual and the semantic encoder of one model."
        )
    if features.device != prototypes.device:
        raise BadUsage(
            f"features are on {features.device} but prototypes on {prototypes.device}: move one to the other."
        )


def _checked_size(size: Sequence[int] | None, features: Tensor) -> tuple[int, int]:
    values = tuple(features.shape[2:] if size is None else size)
    if len(values) != 2 or not all(isinstance(value, int) and value >= 1 for value in values):
        raise BadUsage(f"size must be two positive integers, the image's (height, width), got {size}.")
    return values[0], values[1]


def _unseen_mask(unseen: Tensor | Sequence[int], classes: int) -> Tensor:
    given = unseen if isinstance(unseen, Tensor) else torch.tensor(list(unseen))
    mask = torch.zeros(classes, dtype=torch.bool, device=given.device)
    if given.numel() == 0:
        return mask
    if given.dtype == torch.bool and given.shape == mask.shape:
        return given
    if given.dim() != 1 or given.is_floating_point() or given.dtype == torch.bool:
        raise BadUsage(
            f"unseen must be a list of class indices or {classes} booleans, one per prototype, "
            f"got {given.dtype} of shape {tuple(given.shape)}."
        )
    if given.min() < 0 or given.max() >= classes:
        raise BadUsage(f"unseen must hold class indices from 0 to {classes - 1}, got {given.tolist()}.")
    mask[given.long()] = True
    return mask
