"""What a reader of a format gives: the classes of a source, its pictures, and how their labels come about."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from joem.data.faults import UNREADABLE, Fault, Faults, FileFault
from joem.data.importing.drawing import Size
from joem.errors import BadUsage, JoemError
from joem.picture_files import SUFFIXES, read_picture

T = TypeVar("T")

Labels = NDArray[np.int64]
"""Labels (H, W): an index into the classes of the source, or `drawing.NOTHING` or `drawing.UNLABELLED`."""

Rest = Literal["background", "void"]
"""What pixels of no class are."""

BROKEN = Fault(
    "picture with broken annotations",
    "pictures with broken annotations",
    "Draw such a shape again, or delete it in the tool that wrote it.",
)
MISSING = Fault(
    "picture that is not there",
    "pictures that are not there",
    "Say with --images DIR where the pictures are.",
)
SEVERAL = Fault(
    "picture name that several files have",
    "picture names that several files have",
    "Give --images the folder that holds the right ones.",
)
NO_MASK = Fault("picture without a mask", "pictures without a mask", "Add the masks or take such pictures out.")
NO_AREA = Fault(
    "shape without area was left out", "shapes without area were left out", "Lines and points are no masks."
)
NOT_ANNOTATED = Fault(
    "picture without annotations was left out",
    "pictures without annotations were left out",
    "Save it in the labelling tool, even if it shows nothing, to have it too.",
)

_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Wanted:
    """What a reader is asked for.

    Args:
        images: the folder of the pictures, or a column of a Hugging Face dataset; the usual one if None.
        masks: the folder of the masks, or a column.
        names: the classes: a file, or names with commas between them.
    """

    images: str | None = None
    masks: str | None = None
    names: str | None = None


@dataclass(frozen=True)
class Entry:
    """One picture of a source.

    Args:
        name: its name without suffix; folders may stand before it.
        image: its file, or what gives the content of one.
        draw: gives the labels for a picture of that size; faults of several shapes come as an `ExceptionGroup`.
        size: height and width that the annotations were made for, if they say so.
        split: the list it is in, such as train.
    """

    name: str
    image: Path | Callable[[], bytes]
    draw: Callable[[Size], Labels]
    size: Size | None = None
    split: str | None = None


@dataclass(frozen=True)
class Source:
    """A dataset in another format.

    Args:
        names: the classes.
        entries: the pictures.
        rest: what pixels of no class are, if nobody says otherwise.
        usual: the classes that are taken if nobody says otherwise; all if None.
        faults: what is wrong, apart from what drawing will find.
        notes: what was left out on purpose.
    """

    names: Sequence[str]
    entries: Sequence[Entry]
    rest: Rest
    usual: Sequence[str] | None = None
    faults: Faults = field(default_factory=Faults)
    notes: Faults = field(default_factory=Faults)


class PictureFiles:
    """The picture files in a folder and its subfolders, found by names that other machines wrote.

    Only files in the folder are ever found, whatever a name says.

    Args:
        folder: where to look.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BadUsage(f"There is no folder {folder}: say with --images DIR where the pictures are.")
        self.folder = folder
        self.names = {path: path.relative_to(folder).as_posix() for path in files_in(folder, SUFFIXES)}
        self._by_ending: dict[str, list[Path]] = {}
        for path, name in self.names.items():
            for ending in _endings(name):
                self._by_ending.setdefault(ending, []).append(path)

    def find(self, name: str) -> Path:
        r"""The file with the longest common end with a name such as "C:\\day1\\a.jpg"."""
        for ending in _endings(name.replace("\\", "/")):
            found = self._by_ending.get(ending, [])
            exact = [path for path in found if self.names[path] == ending]
            if len(exact or found) == 1:
                return (exact or found)[0]
            if found:
                raise FileFault.of(SEVERAL, name)
        raise FileFault.of(MISSING, name)


def files_in(folder: Path, suffixes: frozenset[str] | set[str]) -> list[Path]:
    """The files with these suffixes in a folder and its subfolders, sorted, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def existing(source: str | Path) -> Path:
    """The path of a source that must be there."""
    path = Path(source)
    if not path.exists():
        raise BadUsage(f"There is no {path}: say which file or folder to import.")
    return path


def without_suffix(name: str) -> str:
    r"""The name of a picture for an `Entry`: a path from any machine, without suffix and dots.

    >>> without_suffix("day1/a.b.jpg"), without_suffix("..\\x\\a.png")
    ('day1/a.b', 'x/a')
    """
    path = PurePosixPath(name.replace("\\", "/"))
    parts = [part for part in path.with_suffix("").parts if part not in {"/", "..", "."}]
    return "/".join(parts)


def split_of_folder(folder: str | PurePath) -> str | None:
    """The split that the last part of a path that is the name of one tells.

    >>> split_of_folder("images/val2017"), split_of_folder("valid"), split_of_folder("toy train")
    ('val', 'val', None)
    """
    parts = reversed(PurePosixPath(folder).parts)
    return next((_SPLITS[word] for part in parts if (word := part.lower().rstrip("0123456789")) in _SPLITS), None)


def split_of_file(name: str) -> str | None:
    """The split that a word in the name of a file with annotations tells.

    >>> split_of_file("instances_train2017.json"), split_of_file("trains.json")
    ('train', None)
    """
    words = re.split(r"[^a-z]+", name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def read_content(content: Path | bytes, name: str) -> Image.Image:
    """A picture as it is stored, from its file or the content of one."""
    with unreadable_told():
        return read_picture(content if isinstance(content, Path) else BytesIO(content), name)


@contextmanager
def unreadable_told() -> Iterator[None]:
    """Whatever is wrong with a whole file, as a fault that is counted with its like."""
    try:
        yield
    except FileFault:
        raise
    except JoemError as error:
        raise FileFault(str(error), UNREADABLE, str(error).rstrip(".")) from None


@contextmanager
def broken_told(item: str) -> Iterator[None]:
    """Whatever wrong values in annotations lead to, as a fault of that item."""
    try:
        yield
    except KeyError as error:
        raise FileFault.of(BROKEN, f"{item} ({error.args[0]!r} is missing)") from None
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise FileFault.of(BROKEN, f"{item} ({error})") from None


def all_drawn(shapes: Iterable[tuple[str, Callable[[], T]]]) -> list[T]:
    """What drawing every shape gives, each with its name; the faults of all broken ones come as an `ExceptionGroup`."""
    drawn: list[T] = []
    faults: list[FileFault] = []
    for item, draw in shapes:
        try:
            with broken_told(item):
                drawn.append(draw())
        except FileFault as fault:
            faults.append(fault)
    if faults:
        raise ExceptionGroup("broken annotations", faults)
    return drawn


def _endings(name: str) -> list[str]:
    """A path and what is left of it without its first parts.

    >>> _endings("a/b/c.jpg")
    ['a/b/c.jpg', 'b/c.jpg', 'c.jpg']
    """
    parts = [part for part in name.split("/") if part not in {"", ".", ".."}]
    return ["/".join(parts[first:]) for first in range(len(parts))]
