"""How much of every class a dataset holds."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from joem import progress
from joem.data.dataset import Dataset
from joem.data.faults import Faults
from joem.errors import JoemError
from joem.vocabulary import VOID, Vocabulary

_scanned: WeakKeyDictionary[Dataset, Tensor] = WeakKeyDictionary()


@runtime_checkable
class CountsItself(Protocol):
    """A dataset that knows a quicker way than reading its masks."""

    def class_pixels(self) -> Tensor:
        """How many pixels of every class every picture has, (N, K)."""


def class_pixels(dataset: Dataset) -> Tensor:
    """How many pixels of every class every picture has: (N, K) int64; void does not count.

    Reads all masks once, in threads, and keeps the counts as long as the dataset lives. A view derives its counts from
    those of the dataset behind it.
    """
    if isinstance(dataset, CountsItself):
        return dataset.class_pixels()
    if dataset not in _scanned:
        _scanned[dataset] = _scan(dataset, dataset.labels, "Reading masks")
    return _scanned[dataset]


def check(dataset: Dataset) -> None:
    """Read all pictures and masks once: all that cannot be read, or differs in size, is told in one error.

    The counts of `class_pixels` are made on the way.
    """
    find_faults(dataset).raise_any("The dataset")


def find_faults(dataset: Dataset) -> Faults:
    """What `check` tells."""
    errors: dict[int, JoemError] = {}

    def labels(index: int) -> Tensor:
        try:
            return dataset[index].labels
        except JoemError as error:
            errors[index] = error
            return torch.empty(0, dtype=torch.int64)

    counts = _scan(dataset, labels, "Reading pictures and masks")
    if not errors:
        _scanned[dataset] = counts
    faults = Faults()
    for index in sorted(errors):
        faults.add(errors[index])
    return faults


def _scan(dataset: Dataset, labels: Callable[[int], Tensor], title: str) -> Tensor:
    def count(index: int) -> Tensor:
        return torch.bincount(labels(index).flatten(), minlength=VOID + 1)[: len(dataset.names)]

    return torch.stack(list(progress.in_threads(count, range(len(dataset)), title)))


def class_presence(dataset: Dataset) -> Tensor:
    """Which classes every picture shows: (N, K) bool.

    >>> from joem.data.scenes import Scenes
    >>> class_presence(Scenes(5, classes=["red circle"])).all()
    tensor(True)
    """
    return class_pixels(dataset) > 0


class ClassCount(NamedTuple):
    """How much of a class a dataset holds."""

    name: str
    unseen: bool
    images: int
    pixels: int


def describe(dataset: Dataset, vocabulary: Vocabulary | None = None) -> list[ClassCount]:
    """Count images and pixels per class, in index order; `vocabulary` tells which are unseen.

    >>> from joem.data.scenes import Scenes
    >>> [row.images for row in describe(Scenes(5, classes=["red circle", "blue star"], only=["blue star"]))]
    [5, 0, 5]
    """
    unseen = vocabulary.unseen if vocabulary is not None else ()
    pixels = class_pixels(dataset)
    images = (pixels > 0).sum(dim=0).tolist()
    counts = zip(dataset.names, images, pixels.sum(dim=0).tolist(), strict=True)
    return [ClassCount(name, name in unseen, shown, covered) for name, shown, covered in counts]
