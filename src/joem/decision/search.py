"""The work behind a ranking: bands of rows, blocks of classes, and the search for the best class of every pixel.

See `joem.decision.ranking` for what is computed and why it is exact.
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

from joem.decision import compiled
from joem.errors import BadUsage

BUDGET = 24 << 20
"""Bytes of working memory to stay near; one row of the image and what it is interpolated from always fit."""

WINDOW = 1 << 21
"""Pixels of a window, see `windows`: a ranking takes 28 bytes for each."""

BLOCK = 1024  # classes scored together
_GROUPS = 32  # groups in which the classes of a large block are searched
_CENTRE_ROWS = 4  # that the centre of the features is found from
_TILE = 1 << 21  # interpolated scores held at a time, 8 MB: few enough for the cache, enough for all threads


class Window(NamedTuple):
    """The rows from `top` up to `bottom` of an image; it stands where a size may, for what is too large to hold."""

    height: int
    width: int
    top: int
    bottom: int

    @property
    def rows(self) -> slice:
        """The rows of it in the whole."""
        return slice(self.top, self.bottom)


def windows(size: tuple[int, int]) -> list[Window]:
    """An image in windows from top to bottom; one of ordinary size in one.

    >>> [(each.top, each.bottom) for each in windows((10, 1 << 19))]
    [(0, 4), (4, 8), (8, 10)]
    """
    height, width = size
    rows = max(1, WINDOW // width)
    return [Window(height, width, top, min(top + rows, height)) for top in range(0, height, rows)]


class Axis(NamedTuple):
    """Linear interpolation along one axis: output i is (1 - step[i]) x[low[i]] + step[i] x[low[i] + 1]."""

    low: Tensor
    step: Tensor


class Pixels(NamedTuple):
    """Whole rows of output pixels, N in all, and the four features around each."""

    corners: Tensor  # (4N,) places in a table with one row per feature
    weights: Tensor  # (4N,)
    starts: Tensor  # (N,) where each pixel's corners start
    width: int

    def interpolate(self, table: Tensor) -> Tensor:
        """The weighted sum of four rows of the table for each pixel: (features,n) -> (N,n)."""
        return F.embedding_bag(self.corners, table, self.starts, per_sample_weights=self.weights, mode="sum")

    def split(self, columns: int) -> "list[Pixels]":
        """So few rows at a time that `columns` numbers per pixel fill a tile."""
        pixels = max(1, _TILE // (columns * self.width)) * self.width
        parts = zip(torch.split(self.corners, 4 * pixels), torch.split(self.weights, 4 * pixels), strict=True)
        return [Pixels(corners, weights, self.starts[: len(corners) // 4], self.width) for corners, weights in parts]


class Band(NamedTuple):
    """Some rows of one output image and the features they are interpolated from."""

    image: int
    rows: slice
    features: Tensor  # (C,h,W), shifted by the mean feature
    vertical: Axis  # from the h rows
    horizontal: Axis

    def pixels(self) -> Pixels:
        """All of its pixels."""
        return _pixels(self.vertical, self.horizontal, self.features.shape[2])


class Block(NamedTuple):
    """Classes that are scored together: their scores are v @ weight + bias, v shifted by the mean feature.

    Column j belongs to group j % groups. The first `window` groups hold the classes of the first side, the others,
    no more than those, the classes of a second side. Columns without a class have hopeless scores and the label -1.
    """

    labels: Tensor  # of every column
    weight: Tensor
    bias: Tensor
    groups: int
    window: int


class Best(NamedTuple):
    """The best scores of N pixels on S sides."""

    first: Tensor  # (S,N)
    second: Tensor  # (1,N), the second best of the first side; nothing of use where it was not asked for
    label: Tensor  # (S,N), of the best


class Work:
    """Checked inputs, cut into bands of rows and blocks of classes.

    Attributes:
        features: v, at least two rows and columns.
        prototypes: mu.
        centre: a point amid the features, which v and mu are seen from.
        size: (Ho,Wo) of what is wanted.
        axes: where its rows and columns lie among the features.
        is_compiled: whether the kernel does the work, which looks for values that are not finite too.
    """

    def __init__(
        self, features: Tensor, prototypes: Tensor, size: Sequence[int] | None, centre: Tensor | None = None
    ) -> None:
        _check(features, prototypes)
        batch, channels, height, width = features.shape
        whole = _checked_window((height, width) if size is None else size)
        self.size, self._height = (whole.bottom - whole.top, whole.width), whole.height
        self.dtype = torch.promote_types(torch.promote_types(features.dtype, prototypes.dtype), torch.float32)
        self.prototypes = prototypes.to(self.dtype)
        self.is_compiled = compiled.is_usable(self.prototypes)
        if self.is_compiled:
            features = features.to(self.dtype)
        elif not _is_finite(features):
            raise compiled.not_finite("features")
        # A lone row or column is repeated, so that every feature has neighbours.
        self.features = features.expand(batch, channels, max(height, 2), max(width, 2))
        self.centre = _centre(features, self.dtype) if centre is None else centre
        source = self.features.shape[2:]
        down, across = map(partial(_axis, like=self.centre), source, (whole.height, whole.width))
        self.axes = Axis(*(part[whole.rows] for part in down)), across

    def blocks(self, *sides: Tensor) -> list[Block]:
        """The classes of one or two sides in blocks, each with its part of every side."""
        count = math.ceil(sum(map(len, sides)) / BLOCK)
        return [self._block(parts) for parts in zip(*(side.tensor_split(count) for side in sides), strict=True)]

    def _block(self, sides: Sequence[Tensor]) -> Block:
        classes = sum(map(len, sides))
        per_group = math.ceil(classes / _GROUPS) if classes > 2 * _GROUPS else 1
        while per_group > 1 and sum(math.ceil(len(side) / per_group) for side in sides) > _GROUPS:
            per_group += 1
        groups = [max(1, math.ceil(len(side) / per_group)) for side in sides]
        groups[0] = max(groups[0], groups[-1], _GROUPS - sum(groups[1:]) if per_group > 1 else 0)
        filled = [
            F.pad(side, (0, per_group * n - len(side)), value=-1).view(per_group, n)
            for side, n in zip(sides, groups, strict=True)
        ]
        labels = torch.cat(filled, 1).flatten().to(self.prototypes.device)
        weight, bias = affine(self.prototypes[labels] - self.centre)
        return Block(labels, weight, bias.masked_fill(labels < 0, _hopeless(bias.dtype)), sum(groups), groups[0])

    def each_band(self, work: Callable[[Band], None]) -> None:
        """Call `work` with every band: all rows of all images, as many rows at a time as the budget allows."""
        compiled.keep_freed_blocks()
        rows = self._rows_per_band()
        for image, start in itertools.product(range(len(self.features)), range(0, self.size[0], rows)):
            work(self._band(image, slice(start, min(start + rows, self.size[0]))))

    def _rows_per_band(self) -> int:
        _, channels, height, width = self.features.shape
        classes = len(self.prototypes)
        # Numbers held per row: some for each pixel, and the features and scores below it in two copies.
        numbers = 32 * self.size[1] + 2 * width * (channels + min(classes, BLOCK)) * height / self._height
        bands = math.ceil(self.size[0] * numbers * self.dtype.itemsize / BUDGET)
        return math.ceil(self.size[0] / bands)

    def _band(self, image: int, rows: slice) -> Band:
        vertical, horizontal = self.axes
        low, step = (part[rows] for part in vertical)
        first, last = int(low[0]), int(low[-1]) + 1
        features = self.features[image, :, first : last + 1].to(self.dtype) - self.centre[:, None, None]
        return Band(image, rows, features.contiguous(), Axis(low - first, step), horizontal)


def _centre(features: Tensor, dtype: torch.dtype) -> Tensor:
    """The mean feature (C,) of some rows: rounding is least from amid the features, but any point does."""
    some = features[:, :, :: math.ceil(features.shape[2] / _CENTRE_ROWS)]
    if features.stride(1) == 1:  # where channels are neighbours, torch's mean over the others takes six times as long
        return some.movedim(1, -1).flatten(0, 2).mean(0, dtype=dtype)
    return some.mean((0, 2, 3), dtype=dtype)


def _axis(source: int, target: int, like: Tensor) -> Axis:
    """What F.interpolate(mode="bilinear", align_corners=False) does along one axis, for a source of 2 or more."""
    place = (torch.arange(target, dtype=like.dtype, device=like.device) + 0.5) * (source / target) - 0.5
    place.clamp_(0, source - 1)
    low = place.long().clamp_(max=source - 2)
    return Axis(low, place - low)


def _pixels(vertical: Axis, horizontal: Axis, width: int) -> Pixels:
    """The output pixels of two axes, over features in rows of `width`."""
    offsets = torch.tensor((0, 1, width, width + 1), device=horizontal.low.device)
    corners = vertical.low[:, None] * width + (horizontal.low[:, None] + offsets).flatten()
    right = horizontal.step
    upper = torch.stack((1 - right, right, torch.zeros_like(right), torch.zeros_like(right)), 1)
    weights = torch.lerp(upper.flatten(), upper.roll(2, 1).flatten(), vertical.step[:, None])
    starts = torch.arange(0, corners.numel(), 4, device=corners.device)
    return Pixels(corners.flatten(), weights.flatten(), starts, len(right))


def affine(prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the scores 2 v . mu_c - |mu_c|^2."""
    return 2 * prototypes.T, -prototypes.square().sum(1)


def scores(band: Band, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores at feature size: (h * W, columns)."""
    return torch.addmm(bias, band.features.flatten(1).T, weight)


def _hopeless(dtype: torch.dtype) -> float:
    """The score of no class: low, but not -inf, which a weight of zero would turn into NaN."""
    return torch.finfo(dtype).min / 4


def squared_norms(band: Band) -> Tensor:
    """|v|^2 of every interpolated pixel, (N,).

    |(1-t) a + t b|^2 = (1-t)^2 |a|^2 + t^2 |b|^2 + t (1-t) 2 a . b, first along x and then along y, needs only
    the products of each feature with itself and with its right, lower and diagonal neighbours.
    """

    def along(axis: Axis, squares: Tensor, twice_products: Tensor) -> Tensor:
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


def find_best(band: Band, blocks: list[Block], with_second: bool = False) -> Best:
    """The best of all blocks; -inf and -1 where a side has no class."""
    pixels = band.pixels()
    first, second, label = reduce(_better, (_best_in_block(band, pixels, block, with_second) for block in blocks))
    hopeless = _hopeless(first.dtype) / 2  # interpolation may have changed its last digit
    return Best(F.threshold(first, hopeless, -math.inf), F.threshold(second, hopeless, -math.inf), label)


def _better(a: Best, b: Best) -> Best:
    second = torch.minimum(a.first[:1], b.first[:1]).maximum(a.second).maximum(b.second)
    return Best(a.first.maximum(b.first), second, torch.where(b.first > a.first, b.label, a.label))


def _best_in_block(band: Band, pixels: Pixels, block: Block, with_second: bool) -> Best:
    table = scores(band, block.weight, block.bias)
    by_group = None
    if table.shape[1] > block.groups:
        by_group = _transposed(table.view(len(table), -1, block.groups)).flatten(0, 1)
    parts = [_best_column(table, by_group, part, block, with_second) for part in pixels.split(2 * _GROUPS)]
    first, second, column = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return Best(first, second, block.labels[column])


def _best_column(table: Tensor, by_group: Tensor | None, pixels: Pixels, block: Block, with_second: bool) -> Best:
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
    return Best(first, members[0].second.maximum(best.second), place * groups + best.label)


def _top(scores: Tensor, window: int, width: int, with_second: bool) -> Best:
    """The best among the first `window` columns and, if there are more, among the others, for (N,n) scores.

    Pooling is what finds maxima and their places fastest in torch: a row of `width` pixels is an image to it, with
    the pixels as channels and the columns as height.
    """
    images = _transposed(scores.view(-1, width, scores.shape[1])).unsqueeze(2).permute(0, 3, 1, 2)
    first, place = F.max_pool2d_with_indices(images, (window, 1), ceil_mode=True)
    second = first[:, :, :1]
    if with_second:
        second = images.scatter_(2, place[:, :, :1], -math.inf)[:, :, :window].amax(2, keepdim=True)
    return Best(*(part.squeeze(3).permute(2, 0, 1).flatten(1) for part in (first, second, place)))


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
    if not _is_finite(prototypes):
        raise compiled.not_finite("prototypes")


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.stack(tensor.aminmax()).isfinite().all())


def _checked_window(size: Sequence[int]) -> Window:
    if isinstance(size, Window):
        return size
    try:
        height, width = (operator.index(value) for value in size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise BadUsage(f"size must be two positive integers, the image's (height, width), got {size}.")
    return Window(height, width, 0, height)
