"""From outlines and run lengths to pixels."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Size = tuple[int, int]
"""Height and width."""

_FAR = 1e9

UNLABELLED, NOTHING = -2, -1
"""Labels of pixels that a source marks as void, and of those that are of none of its classes; those count from 0."""


class Region(NamedTuple):
    """Some pixels of a picture.

    Attributes:
        top: the first row.
        left: the first column.
        mask: which pixels from there on, (h, w) bool.
    """

    top: int
    left: int
    mask: NDArray[np.bool_]

    @property
    def area(self) -> int:
        """The number of pixels."""
        return int(self.mask.sum())


def polygon(points: Sequence[Sequence[float]], size: Size) -> Region:
    """The pixels whose centre is inside an outline of (x, y); where it crosses itself, by the even-odd rule.

    The centre of the pixel in row 0 and column 0 is (0.5, 0.5).

    >>> polygon([(0, 0), (3, 0), (0, 3)], (3, 3)).mask.astype(int).tolist()
    [[1, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    corners = np.asarray(points, np.float64)
    if corners.ndim != 2 or corners.shape[1] != 2 or len(corners) < 3:
        raise ValueError(f"an outline has three or more corners of two numbers, got {corners.size} numbers")
    top, bottom, left, right = _bounds(corners.min(axis=0), corners.max(axis=0), size)
    height, width = bottom - top, right - left
    x0, y0 = (corners - (left, top)).T
    x1, y1 = np.roll((x0, y0), -1, axis=1)
    ends = np.ceil(np.stack([y0, y1]) - 0.5).clip(0, height).astype(np.int64)
    first, last = ends.min(axis=0), ends.max(axis=0)
    edge = np.repeat(np.arange(len(x0)), last - first)  # every edge, once for every row whose centre it crosses
    rows = np.arange(len(edge)) - np.repeat(np.cumsum(last - first) - last, last - first)
    slope = (x1[edge] - x0[edge]) / (y1[edge] - y0[edge])
    columns = np.ceil(x0[edge] + (rows + 0.5 - y0[edge]) * slope - 0.5).clip(0, width).astype(np.int64)
    crossings = np.zeros((height, width + 1), np.int64)
    np.add.at(crossings, (rows, columns), 1)
    return Region(top, left, crossings.cumsum(axis=1)[:, :width] % 2 == 1)


def box(left: float, top: float, right: float, bottom: float, degrees: float, size: Size) -> Region:
    """The pixels whose centre is inside a box that was turned clockwise around its middle."""
    middle = np.array([(left + right) / 2, (top + bottom) / 2])
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64) - middle
    return polygon((corners @ np.array([[cosine, sine], [-sine, cosine]]) + middle).tolist(), size)


def ellipse(x: float, y: float, across: float, down: float, degrees: float, size: Size) -> Region:
    """The pixels whose centre is inside an ellipse around (x, y) with these radii, turned clockwise."""
    if not min(across, down) > 0:
        raise ValueError(f"an ellipse has two radii above zero, got {across} and {down}")
    middle, reach = np.array([x, y]), max(across, down)
    top, bottom, left, right = _bounds(middle - reach, middle + reach, size)
    rows, columns = np.mgrid[top:bottom, left:right] + 0.5
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    along = ((columns - x) * cosine + (rows - y) * sine) / across
    beside = ((rows - y) * cosine - (columns - x) * sine) / down
    return Region(top, left, along**2 + beside**2 <= 1)


def run_lengths(counts: Sequence[int], size: Size, order: Literal["columns", "rows"]) -> NDArray[np.bool_]:
    """A mask (H, W) from the lengths of its runs of zeros and ones in turn, zeros first.

    >>> run_lengths([1, 3], (2, 2), "columns").astype(int).tolist()
    [[0, 1], [1, 1]]
    """
    lengths = np.asarray(counts, np.int64).reshape(-1)
    total = size[0] * size[1]
    if (lengths < 0).any() or (lengths > total).any() or lengths.sum() != total:
        raise ValueError(f"run lengths must add up to {size[1]} x {size[0]} pixels, got {lengths.sum()}")
    flat = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return flat.reshape(size[1], size[0]).T if order == "columns" else flat.reshape(size)


def coco_counts(text: str) -> list[int]:
    """The run lengths in COCO's compressed text.

    A number is given in groups of five bits, lowest first, each as the character 48 + group, with 32 added where more
    follow; the last group has its sign. From the fourth number on, it is the difference to the last but one.

    >>> coco_counts("52203")
    [5, 2, 2, 2, 5]
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64:
            raise ValueError(f"compressed run lengths hold the character {character!r}")
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("compressed run lengths end in the middle of a number")
    return counts


def paint(size: Size, shapes: Iterable[tuple[int, Sequence[Region]]]) -> NDArray[np.int64]:
    """Labels (H, W) of shapes laid over each other, each the label and its regions; the last lies on top."""
    labels = np.full(size, NOTHING, np.int64)
    for label, regions in shapes:
        for top, left, mask in regions:
            height, width = mask.shape
            labels[top : top + height, left : left + width][mask] = label
    return labels


def _bounds(low: NDArray[np.float64], high: NDArray[np.float64], size: Size) -> tuple[int, int, int, int]:
    """The rows and columns of a picture that hold everything from one point (x, y) to another."""
    if not (np.abs([low, high]) < _FAR).all():
        raise ValueError("a corner is far outside of the picture, or no number")
    (left, top), (right, bottom) = np.floor(low).astype(np.int64), np.ceil(high).astype(np.int64)
    height, width = size
    rows, columns = np.clip([top, bottom], 0, height), np.clip([left, right], 0, width)
    return int(rows[0]), int(rows[1]), int(columns[0]), int(columns[1])
