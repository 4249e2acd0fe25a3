"""Datasets by name: adding one is a new file and one line here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from joem.data.coco_stuff import CocoStuff
from joem.data.context import Context
from joem.data.folder import Folder
from joem.data.samples import Dataset
from joem.data.scenes import open_split
from joem.data.voc import VOC
from joem.errors import BadUsage, choose

_ON_DISK: dict[str, Callable[..., Dataset]] = {
    "voc": VOC,
    "context": Context,
    "coco-stuff": CocoStuff,
    "folder": Folder,
}

KINDS = ("scenes", *_ON_DISK)
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
    choose("dataset", kind, KINDS)
    if kind == "scenes":
        return open_split(split or "train", **options)
    if root is None:
        raise BadUsage(
            f"Dataset {kind!r} is read from files: say where with --root DIR, or --data.root DIR with a recipe."
        )
    return _ON_DISK[kind](root, split, **options)
