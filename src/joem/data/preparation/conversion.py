"""For all datasets: the pieces that were found, and the conversion of MATLAB masks to PNG."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from joem import progress
from joem.data.files import mask_colours, write_mask
from joem.errors import JoemError
from joem.vocabulary import VOID, Vocabulary


@dataclass(frozen=True)
class Piece:
    """One thing that a dataset is made of.

    Args:
        name: what it is.
        path: where it is, or belongs.
        count: how many of it are there.
        expected: how many there should be.
        advice: what to download and where to put it.
    """

    name: str
    path: Path
    count: int
    expected: int
    advice: str

    @property
    def state(self) -> Literal["found", "incomplete", "missing"]:
        """Whether all of it, some of it or nothing is there."""
        if self.count == 0:
            return "missing"
        return "found" if self.count >= self.expected else "incomplete"


@dataclass(frozen=True)
class Conversion:
    """The outcome of converting masks.

    Args:
        written: how many were written now.
        kept: how many an earlier run had written.
        broken: the files that could not be converted, and why.
    """

    written: int = 0
    kept: int = 0
    broken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparation:
    """What of a dataset was found, and what was made from it.

    Args:
        folder: where the dataset is, or belongs.
        pieces: what it is made of.
        splits: the lists of pictures to train and to evaluate on.
        conversion: what had to be converted.
    """

    folder: Path
    pieces: tuple[Piece, ...]
    splits: tuple[str, str]
    conversion: Conversion = Conversion()

    @property
    def ready(self) -> bool:
        """Whether the dataset can be used."""
        return all(piece.state == "found" for piece in self.pieces) and not self.conversion.broken

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        pieces = [{**vars(piece), "path": str(piece.path), "state": piece.state} for piece in self.pieces]
        conversion = {**vars(self.conversion), "broken": dict(self.conversion.broken)}
        return {"folder": str(self.folder), "ready": self.ready, "pieces": pieces, "masks": conversion}


def convert(
    sources: Mapping[str, Path],
    labels_of: Callable[[dict[str, Any]], NDArray[Any]],
    pictures: Path,
    into: Path,
    vocabulary: Vocabulary,
) -> Conversion:
    """Write masks from MATLAB files as palette PNG; those there already stay, so an interrupted run goes on.

    Args:
        sources: the MATLAB file of every picture name.
        labels_of: the labels (H, W) in what such a file holds.
        pictures: the folder of the pictures, to compare sizes with.
        into: the folder for the masks.
        vocabulary: the classes of the labels.
    """
    todo = {stem: source for stem, source in sources.items() if not (into / f"{stem}.png").exists()}
    if not todo:
        return Conversion(kept=len(sources))
    load, colours, broken = _loader(), mask_colours(vocabulary), {}
    for stem, source in progress.track(todo.items(), "Converting masks"):
        try:
            labels = labels_of(load(source))
            _check(labels, pictures / f"{stem}.jpg", len(vocabulary))
        except Exception as error:  # scipy raises whatever a damaged file leads it to
            broken[str(source)] = str(error) if isinstance(error, JoemError) else f"{type(error).__name__}: {error}"
            continue
        write_mask(into / f"{stem}.png", labels.astype(np.uint8), colours)
    return Conversion(len(todo) - len(broken), len(sources) - len(todo), broken)


def _loader() -> Callable[[Path], dict[str, Any]]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise JoemError('Reading MATLAB files needs scipy: run pip install "joem[prepare]".') from None
    read: Callable[[Path], dict[str, Any]] = loadmat
    return read


def _check(labels: NDArray[Any], picture: Path, classes: int) -> None:
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != VOID)]
    if wrong.size:
        raise JoemError(f"holds the label {wrong[0]}, but the classes are 0 to {classes - 1}")
    with Image.open(picture) as image:
        if labels.shape != (image.height, image.width):
            size = "x".join(str(side) for side in reversed(labels.shape))
            raise JoemError(f"is {size} (width x height), but {picture} is {image.width}x{image.height}")
