"""From features and prototypes to distances, the nearest class, and the ranking that every rule decides by.

By definition the features v (B,C,H,W) are upsampled to the image size (Ho,Wo), bilinear with
align_corners=False, and then the distance d(v, mu_c) to every prototype is taken. What runs is equal but never
holds C channels at image size. With v and mu_c both shifted by the mean feature, which changes no distance,

    d(v, mu_c)^2 = |v|^2 - score_c(v),    score_c(v) = 2 v . mu_c - |mu_c|^2.

The score is affine in v, so it is computed at feature size and interpolated: the nearest class has the largest.
|v|^2 is the same for all classes and follows from four maps at feature size (`_squared_norms`). Images are cut
into bands of rows and classes into blocks, so that memory stays near `BUDGET` for 2 or 20,000 classes.

Half-precision inputs are computed in float32. In float32 a squared distance carries an error of about
1e-7 (|v|^2 + |mu_c|^2), both seen from the mean feature: give float64 tensors where that is too much.
No function here passes gradients.
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.errors import BadUsage, JoemError
from joem.vocabulary import Classes, class_mask

BUDGET = 24 << 20
"""Bytes of working memory to stay near; one row of the image and what it is interpolated from always fit."""

_SEEN_BY_GLIBC = 31 << 20  # just below the largest block that glibc adapts to
_BLOCK = 1024  # classes scored together
_GROUPS = 32  # groups in which the classes of a large block are searched
_TILE = 1 << 21  # interpolated scores held at a time, 8 MB: few enough for the cache, enough for all threads


class Ranking(NamedTuple):
    """What every rule needs to know of every pixel, each (B,Ho,Wo): rank once, decide many times.

    Where there is no such class, its distance is infinite and its label -1.
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


class Norms(NamedTuple):
    """What `rank` can reuse as long as features and size are the same: see `norms`."""

    centre: Tensor
    """The mean feature, (C,)."""
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
    problem = _Problem(features, prototypes, size)
    result = features.new_empty((len(features), *problem.size, len(prototypes)), dtype=problem.dtype)

    def fill(band: _Band) -> None:
        norms = _squared_norms(band).unsqueeze(1)
        targets = torch.split(result[band.image, band.rows].flatten(0, 1), _BLOCK, dim=1)
        for mu, target in zip(torch.split(problem.prototypes, _BLOCK), targets, strict=True):
            table, parts = _scores(band, *_affine(mu)), band.pixels.split(_BLOCK)
            rows = len(parts[0].starts)
            for pixels, norm, part in zip(parts, torch.split(norms, rows), torch.split(target, rows), strict=True):
                part.copy_((norm - pixels.interpolate(table)).clamp_(min=0).sqrt_())

    problem.each_band(fill)
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
    problem = _Problem(features, features.mean((0, 2, 3)).unsqueeze(0), size)
    squares = features.new_empty((len(features), *problem.size), dtype=problem.dtype)

    def fill(band: _Band) -> None:
        target = squares[band.image, band.rows]
        target.copy_(_squared_norms(band).clamp_(min=0).view_as(target))  # rounding may leave less than nothing

    problem.each_band(fill)
    return Norms(problem.centre, squares)


@torch.no_grad()
def rank(
    features: Tensor,
    prototypes: Tensor,
    unseen: Classes,
    size: Sequence[int] | None = None,
    known: Norms | None = None,
) -> Ranking:
    """The nearest seen class, the second seen distance and the nearest unseen class of every pixel.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).
        known: what `norms` gave for the same features and size; saves a quarter of the time with few classes.

    >>> ranking = rank(torch.zeros(1, 1, 1, 1), torch.tensor([[3.0], [1.0], [2.0]]), unseen=[1])
    >>> [part.item() for part in ranking]
    [2, 2.0, 3.0, 1, 1.0]
    """
    problem = _Problem(features, prototypes, size, None if known is None else known.centre)
    if known is not None and known.squares.shape != (len(features), *problem.size):
        expected = (len(features), *problem.size)
        raise BadUsage(f"known holds norms of {tuple(known.squares.shape)}, expected {expected}: call norms again.")
    is_unseen = class_mask(unseen, len(prototypes))
    sides = [mask.nonzero().squeeze(1) for mask in (~is_unseen, is_unseen)]
    blocks = problem.blocks(*sides)
    shape = (len(features), *problem.size)
    dtypes = (torch.long, problem.dtype, problem.dtype, torch.long, problem.dtype)
    result = Ranking(*(features.new_empty(shape, dtype=dtype) for dtype in dtypes))

    def fill(band: _Band) -> None:
        best = _best(band, blocks, with_second=True)
        squares = _squared_norms(band) if known is None else known.squares[band.image, band.rows].flatten()
        scores = torch.cat((best.first, best.second))
        seen_distance, unseen_distance, second = (squares - scores).clamp_(min=0).sqrt_()
        parts = Ranking(best.label[0], seen_distance, second, best.label[1], unseen_distance)
        for whole, part in zip(result, parts, strict=True):
            target = whole[band.image, band.rows]
            target.copy_(part.view_as(target))

    problem.each_band(fill)
    return result


@torch.no_grad()
def nearest(features: Tensor, prototypes: Tensor, size: Sequence[int] | None = None) -> Tensor:
    """NN, the nearest class: argmin_c d(v, mu_c), as labels (B,Ho,Wo).

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).

    >>> nearest(torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[0.0], [1.0]]), size=(1, 4))
    tensor([[[0, 0, 1, 1]]])
    """
    problem = _Problem(features, prototypes, size)
    blocks = problem.blocks(torch.arange(len(prototypes)))
    labels = features.new_empty((len(features), *problem.size), dtype=torch.long)

    def fill(band: _Band) -> None:
        target = labels[band.image, band.rows]
        target.copy_(_best(band, blocks).label.view_as(target))

    problem.each_band(fill)
    return labels


class _Axis(NamedTuple):
    """Linear interpolation along one axis: output i is (1 - step[i]) x[low[i]] + step[i] x[low[i] + 1]."""

    low: Tensor
    step: Tensor


class _Pixels(NamedTuple):
    """Whole rows of output pixels, N in all, and the four features around each."""

    corners: Tensor  # (4N,) places in a table with one row per feature
    weights: Tensor  # (4N,)
    starts: Tensor  # (N,) where each pixel's corners start
    width: int

    def interpolate(self, table: Tensor) -> Tensor:
        """The weighted sum of four rows of the table for each pixel: (features,n) -> (N,n)."""
        return F.embedding_bag(self.corners, table, self.starts, per_sample_weights=self.weights, mode="sum")

    def split(self, columns: int) -> "list[_Pixels]":
        """So few rows at a time that `columns` numbers per pixel fill a tile."""
        pixels = max(1, _TILE // (columns * self.width)) * self.width
        parts = zip(torch.split(self.corners, 4 * pixels), torch.split(self.weights, 4 * pixels), strict=True)
        return [_Pixels(corners, weights, self.starts[: len(corners) // 4], self.width) for corners, weights in parts]


class _Band(NamedTuple):
    """Some rows of one output image and the features they are interpolated from."""

    image: int
    rows: slice
    features: Tensor  # (C,h,W), shifted by the mean feature
    vertical: _Axis  # from the h rows
    horizontal: _Axis
    pixels: _Pixels


class _Block(NamedTuple):
    """Classes that are scored together: their scores are v @ weight + bias, v shifted by the mean feature.

    Column j belongs to group j % groups. The first `window` groups hold the classes of the first side, the others,
    no more than those, the classes of a second side. Columns without a class have hopeless scores and the label -1.
    """

    labels: Tensor  # of every column
    weight: Tensor
    bias: Tensor
    groups: int
    window: int


class _Best(NamedTuple):
    """The best scores of N pixels on S sides."""

    first: Tensor  # (S,N)
    second: Tensor  # (1,N), the second best of the first side; nothing of use where it was not asked for
    label: Tensor  # (S,N), of the best


class _Problem:
    """Checked inputs, cut into bands of rows and blocks of classes."""

    def __init__(
        self, features: Tensor, prototypes: Tensor, size: Sequence[int] | None, centre: Tensor | None = None
    ) -> None:
        _check(features, prototypes)
        batch, channels, height, width = features.shape
        self.size = _checked_size((height, width) if size is None else size)
        self.dtype = torch.promote_types(torch.promote_types(features.dtype, prototypes.dtype), torch.float32)
        # A lone row or column is repeated, so that every feature has neighbours.
        self._features = features.expand(batch, channels, max(height, 2), max(width, 2))
        self.centre = features.mean((0, 2, 3), dtype=self.dtype) if centre is None else centre
        self.prototypes = prototypes.to(self.dtype) - self.centre
        source = self._features.shape[2:]
        self._vertical, self._horizontal = map(partial(_axis, like=self.centre), source, self.size)

    def blocks(self, *sides: Tensor) -> list[_Block]:
        """The classes of one or two sides in blocks, each with its part of every side."""
        count = math.ceil(sum(map(len, sides)) / _BLOCK)
        return [self._block(parts) for parts in zip(*(side.tensor_split(count) for side in sides), strict=True)]

    def _block(self, sides: Sequence[Tensor]) -> _Block:
        classes = sum(map(len, sides))
        members = math.ceil(classes / _GROUPS) if classes > 2 * _GROUPS else 1
        while members > 1 and sum(math.ceil(len(side) / members) for side in sides) > _GROUPS:
            members += 1
        groups = [max(1, math.ceil(len(side) / members)) for side in sides]
        groups[0] = max(groups[0], groups[-1], _GROUPS - sum(groups[1:]) if members > 1 else 0)
        filled = [
            F.pad(side, (0, members * n - len(side)), value=-1).view(members, n)
            for side, n in zip(sides, groups, strict=True)
        ]
        labels = torch.cat(filled, 1).flatten().to(self.prototypes.device)
        weight, bias = _affine(self.prototypes[labels])
        return _Block(labels, weight, bias.masked_fill(labels < 0, _hopeless(bias.dtype)), sum(groups), groups[0])

    def each_band(self, work: Callable[[_Band], None]) -> None:
        """Call `work` with every band: all rows of all images, as many rows at a time as the budget allows."""
        # glibc gives freed memory back to the system, which must then clear it again, until it has seen a block of
        # this size come and go: a quarter of the time with many classes.
        torch.empty(_SEEN_BY_GLIBC, dtype=torch.uint8, device="cpu")
        rows = self._rows_per_band()
        for image, start in itertools.product(range(len(self._features)), range(0, self.size[0], rows)):
            work(self._band(image, slice(start, min(start + rows, self.size[0]))))

    def _rows_per_band(self) -> int:
        _, channels, height, width = self._features.shape
        classes = len(self.prototypes)
        # Numbers held per row: some for each pixel, and the features and scores below it in two copies.
        numbers = 32 * self.size[1] + 2 * width * (channels + min(classes, _BLOCK)) * height / self.size[0]
        bands = math.ceil(self.size[0] * numbers * self.dtype.itemsize / BUDGET)
        return math.ceil(self.size[0] / bands)

    def _band(self, image: int, rows: slice) -> _Band:
        low, step = (part[rows] for part in self._vertical)
        first, last = int(low[0]), int(low[-1]) + 1
        features = self._features[image, :, first : last + 1].to(self.dtype) - self.centre[:, None, None]
        vertical = _Axis(low - first, step)
        pixels = _pixels(vertical, self._horizontal, features.shape[2])
        return _Band(image, rows, features.contiguous(), vertical, self._horizontal, pixels)


def _axis(source: int, target: int, like: Tensor) -> _Axis:
    """What F.interpolate(mode="bilinear", align_corners=False) does along one axis, for a source of 2 or more."""
    place = (torch.arange(target, dtype=like.dtype, device=like.device) + 0.5) * (source / target) - 0.5
    place.clamp_(0, source - 1)
    low = place.long().clamp_(max=source - 2)
    return _Axis(low, place - low)


def _pixels(vertical: _Axis, horizontal: _Axis, width: int) -> _Pixels:
    """The output pixels of two axes, over features in rows of `width`."""
    offsets = torch.tensor((0, 1, width, width + 1), device=horizontal.low.device)
    corners = vertical.low[:, None] * width + (horizontal.low[:, None] + offsets).flatten()
    right = horizontal.step
    upper = torch.stack((1 - right, right, torch.zeros_like(right), torch.zeros_like(right)), 1)
    weights = torch.lerp(upper.flatten(), upper.roll(2, 1).flatten(), vertical.step[:, None])
    starts = torch.arange(0, corners.numel(), 4, device=corners.device)
    return _Pixels(corners.flatten(), weights.flatten(), starts, len(right))


def _affine(prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the scores 2 v . mu_c - |mu_c|^2."""
    return 2 * prototypes.T, -prototypes.square().sum(1)


def _scores(band: _Band, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores at feature size: (h * W, columns)."""
    return torch.addmm(bias, band.features.flatten(1).T, weight)


def _hopeless(dtype: torch.dtype) -> float:
    """The score of no class: low, but not -inf, which a weight of zero would turn into NaN."""
    return torch.finfo(dtype).min / 4


def _squared_norms(band: _Band) -> Tensor:
    """|v|^2 of every interpolated pixel, (N,).

    |(1-t) a + t b|^2 = (1-t)^2 |a|^2 + t^2 |b|^2 + t (1-t) 2 a . b, first along x and then along y, needs only
    the products of each feature with itself and with its right, lower and diagonal neighbours.
    """

    def along(axis: _Axis, squares: Tensor, twice_products: Tensor) -> Tensor:
        low, t = axis.low, axis.step.unsqueeze(1)
        return (1 - t).square() * squares[low] + t.square() * squares[low + 1] + t * (1 - t) * twice_products[low]

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(0).T  # columns first, as `along` takes them

    v = band.features
    left, right = v[:, :, :-1], v[:, :, 1:]
    squares = along(band.horizontal, dot(v, v), 2 * dot(left, right)).T
    diagonals = dot(left[:, :-1], right[:, 1:]) + dot(right[:, :-1], left[:, 1:])
    products = along(band.horizontal, dot(v[:, :-1], v[:, 1:]), diagonals).T
    return along(band.vertical, squares, 2 * products).flatten()


def _best(band: _Band, blocks: list[_Block], with_second: bool = False) -> _Best:
    """The best of all blocks; -inf and -1 where a side has no class."""
    first, second, label = reduce(_better, (_best_in_block(band, block, with_second) for block in blocks))
    hopeless = _hopeless(first.dtype) / 2  # interpolation may have changed its last digit
    return _Best(F.threshold(first, hopeless, -math.inf), F.threshold(second, hopeless, -math.inf), label)


def _better(a: _Best, b: _Best) -> _Best:
    second = torch.minimum(a.first[:1], b.first[:1]).maximum(a.second).maximum(b.second)
    return _Best(a.first.maximum(b.first), second, torch.where(b.first > a.first, b.label, a.label))


def _best_in_block(band: _Band, block: _Block, with_second: bool) -> _Best:
    table = _scores(band, block.weight, block.bias)
    by_group = None
    if table.shape[1] > block.groups:
        by_group = _transposed(table.view(len(table), -1, block.groups)).flatten(0, 1)
    parts = [_best_column(table, by_group, pixels, block, with_second) for pixels in band.pixels.split(2 * _GROUPS)]
    first, second, column = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return _Best(first, second, block.labels[column])


def _best_column(table: Tensor, by_group: Tensor | None, pixels: _Pixels, block: _Block, with_second: bool) -> _Best:
    """The best of the interpolated columns of `table`, whose places stand for labels.

    With groups, the best one of each side is found by values alone, which is fast, and then its columns are
    interpolated once more to find the best among them. `by_group` has a row for each group of each row of `table`.
    """
    if by_group is None:
        return _top(pixels.interpolate(table), block.window, pixels.width, with_second)
    columns, groups = table.shape[1], block.groups
    peaks = [part.interpolate(table).view(-1, columns // groups, groups).amax(1) for part in pixels.split(columns)]
    best = _top(torch.cat(peaks), block.window, pixels.width, with_second)
    members = []
    for side, group in enumerate(best.label):
        corners = torch.add(group.unsqueeze(1), pixels.corners.view(-1, 4), alpha=groups).flatten()
        scores = pixels._replace(corners=corners).interpolate(by_group)
        members.append(_top(scores, columns // groups, pixels.width, with_second and side == 0))
    first, place = (torch.cat([getattr(member, part) for member in members]) for part in ("first", "label"))
    return _Best(first, members[0].second.maximum(best.second), place * groups + best.label)


def _top(scores: Tensor, window: int, width: int, with_second: bool) -> _Best:
    """The best among the first `window` columns and, if there are more, among the others, for (N,n) scores.

    Pooling is what finds maxima and their places fastest in torch: a row of `width` pixels is an image to it, with
    the pixels as channels and the columns as height.
    """
    images = _transposed(scores.view(-1, width, scores.shape[1])).unsqueeze(2).permute(0, 3, 1, 2)
    first, place = F.max_pool2d_with_indices(images, (window, 1), ceil_mode=True)
    second = first[:, :, :1]
    if with_second:
        second = images.scatter_(2, place[:, :, :1], -math.inf)[:, :, :window].amax(2, keepdim=True)
    return _Best(*(part.squeeze(3).permute(2, 0, 1).flatten(1) for part in (first, second, place)))


def _transposed(matrices: Tensor) -> Tensor:
    """Each matrix transposed, as a copy: (N,a,b) -> (N,b,a). To shuffle channels is the fastest way in torch."""
    count, rows, columns = matrices.shape
    images = matrices.view(1, count, 1, rows * columns).permute(0, 3, 1, 2)  # a matrix is the channels of a pixel
    return torch.channel_shuffle(images, rows).permute(0, 2, 3, 1).reshape(count, columns, rows)


def _check(features: Tensor, prototypes: Tensor) -> None:
    for name, tensor, shape in (("features", features, "(B,C,H,W)"), ("prototypes", prototypes, "(K,C)")):
        if tensor.dim() != shape.count(",") + 1 or not tensor.is_floating_point() or tensor.numel() == 0:
            got = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise BadUsage(f"{name} must be a non-empty floating-point tensor {shape}, got {got}.")
    if features.shape[1] != prototypes.shape[1]:
        raise BadUsage(
            f"features have {features.shape[1]} channels but prototypes {prototypes.shape[1]}: "
            "both must come from the same model."
        )
    if features.device != prototypes.device:
        raise BadUsage(
            f"features are on {features.device} but prototypes on {prototypes.device}: move one to the other."
        )
    for name, tensor in (("features", features), ("prototypes", prototypes)):
        if not torch.stack(tensor.aminmax()).isfinite().all():
            raise JoemError(f"{name} hold NaN or infinite values, so no class is nearest: check what made them.")


def _checked_size(size: Sequence[int]) -> tuple[int, int]:
    try:
        height, width = (operator.index(value) for value in size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise BadUsage(f"size must be two positive integers, the image's (height, width), got {size}.")
    return height, width
