"""Datasets by name: adding one is a new file and one line in `KINDS`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from joem.data.coco_stuff import CocoStuff
from joem.data.context import Context
from joem.data.dataset import Dataset
from joem.data.folder import Folder
from joem.data.scenes import open_split
from joem.data.voc import VOC
from joem.errors import BadUsage, choose


class Kind(NamedTuple):
    """How a kind of dataset is opened.

    Attributes:
        open: makes it from a folder and the name of a split, or from the name of a split where nothing is on disk.
        on_disk: whether it is read from files.
    """

    open: Callable[..., Dataset]
    on_disk: bool = True


KINDS: dict[str, Kind] = {
    "scenes": Kind(open_split, on_disk=False),
    "voc": Kind(VOC),
    "context": Kind(Context),
    "coco-stuff": Kind(CocoStuff),
    "folder": Kind(Folder),
}
"""The kinds of dataset that `open` knows."""


def open(kind: str, root: str | Path | None, split: str | None, **options: Any) -> Dataset:
    """Open a dataset by the name of its kind.

    Args:
        kind: scenes (generated), voc, context, coco-stuff or folder.
        root: where its files are; scenes needs none.
        split: which list of pictures; a folder without lists takes None.
        options: further arguments of `scenes.open_split`.

    >>> len(open("scenes", None, "train", count=3))
    3
    """
    found = KINDS[choose("dataset", kind, KINDS)]
    if not found.on_disk:
        return found.open(split or "train", **options)
    if root is None:
        raise BadUsage(
            f"Dataset {kind!r} is read from files: say where with --root DIR, or --data.root DIR with a recipe."
        )
    return found.open(root, split, **options)
