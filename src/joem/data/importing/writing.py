"""From a source to a folder: whole or not there, and everything that is wrong with the source told at once."""

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from joem import progress
from joem.data.faults import OTHER_SIZE, Fault, Faults, FileFault
from joem.data.files import mask_colours, write_mask
from joem.data.folder import IMAGES
from joem.data.importing.annotated import Entry, Source, read_content
from joem.data.importing.class_choice import ClassChoice
from joem.errors import BadUsage, JoemError
from joem.io import atomic_folder
from joem.picture_files import FORMATS, upright
from joem.vocabulary import VOID

TURNED = Fault(
    "mask was turned like its picture, which lies on its side",
    "masks were turned like their pictures, which lie on their sides",
    "Look at some of them.",
)
RENAMED = Fault(
    "picture got another name", "pictures got other names", "Their own were taken, or could not name a file."
)
EMPTY = Fault("picture shows no class", "pictures show no class", "All their pixels are background or void.")

_UNFIT = re.compile(r'[\x00-\x1f<>:"|?*\\/]+')  # in the name of a file, on one system or another


@dataclass(frozen=True)
class Imported:
    """What was imported.

    Args:
        folder: where it is.
        names: the classes.
        images: how many pictures there are.
        splits: how many of them are in each list.
        notes: what is worth a look.
        left_out: the faults of pictures that were left out.
    """

    folder: Path
    names: tuple[str, ...]
    images: int
    splits: dict[str, int]
    notes: Faults
    left_out: Faults

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        told = {"notes": self.notes.to_dict(), "left_out": self.left_out.to_dict()}
        return {**vars(self), "folder": str(self.folder), "names": list(self.names), **told}


class _Written(NamedTuple):
    """The file of a picture in the new folder, and what is worth a note; None and faults if it could not be used."""

    file: str | None
    faults: Sequence[JoemError] = ()
    notes: Sequence[JoemError] = ()


def write(
    source: Source, choice: ClassChoice, out: Path, *, val: float | None, link: bool, skip_broken: bool
) -> Imported:
    """Write a source as a `Folder`.

    Args:
        source: what to write.
        choice: its classes.
        out: a new or empty folder.
        val: the share of pictures to put in the list val, the others in train; the source's own lists if None.
        link: link to pictures instead of copying them.
        skip_broken: leave out pictures with faults instead of writing nothing at all.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadUsage(f"{out} is not empty: give a new folder, or delete its files first.")
    faults, notes, lists = Faults(), Faults(), dict[str, list[str]]()
    faults.extend(source.faults)
    notes.extend(source.notes)
    names = _file_names([entry.name for entry in source.entries], notes)
    colours = mask_colours(choice.vocabulary)
    with atomic_folder(out) as draft:
        for part in ("images", "masks"):
            (draft / part).mkdir()

        def write_one(index: int) -> _Written:
            return _write_one(source.entries[index], names[index], choice, colours, draft, link)

        written = list(progress.in_threads(write_one, range(len(names)), "Importing"))
        for entry, one in zip(source.entries, written, strict=True):
            for found, errors in ((faults, one.faults), (notes, one.notes)):
                for error in errors:
                    found.add(error)
            if one.file is not None:
                lists.setdefault(entry.split or "", []).append(one.file)
        if not skip_broken:
            faults.raise_any("The source")
        if not lists:
            faults.raise_any("The source")
            raise JoemError("The source has no pictures.")
        splits = _splits(lists, val)
        _write_lists(draft, choice.vocabulary.names, splits)
    counts = {split: len(files) for split, files in splits.items()}
    return Imported(out, choice.vocabulary.names, sum(map(len, lists.values())), counts, notes, faults)


def _write_one(entry: Entry, name: str, choice: ClassChoice, colours: bytes, draft: Path, link: bool) -> _Written:
    try:
        content = entry.image if isinstance(entry.image, Path) else entry.image()
        picture = read_content(content, entry.name)
        labels, turned = _labels(entry, picture, choice)
        file = f"{name}{_suffix(content, picture)}"
        write_mask(draft / "masks" / f"{name}.png", labels, colours, lasting=False)  # the whole folder will be
        _write_picture(content, draft / "images" / file, link)
    except JoemError as fault:
        return _Written(None, faults=[fault])
    except ExceptionGroup as group:
        return _Written(None, faults=[fault for fault in group.exceptions if isinstance(fault, JoemError)])
    notes = [FileFault.of(TURNED, entry.name)] if turned else []
    background = [0] if choice.vocabulary.background else []
    if np.isin(labels, [*background, VOID]).all():
        notes.append(FileFault.of(EMPTY, entry.name))
    return _Written(file, notes=notes)


def _labels(entry: Entry, picture: Image.Image, choice: ClassChoice) -> tuple[NDArray[np.uint8], bool]:
    """The labels of an upright picture, and whether they had to be turned as its EXIF block turns the picture.

    Most tools show pictures upright and annotate what they show, some annotate the pixels as they are stored: the
    size tells which, but for square pictures and those that stand on their head, which are taken as shown.
    """
    shown = upright(picture)
    sizes = {"shown": (shown.height, shown.width), "stored": (picture.height, picture.width)}
    size = sizes["stored"] if entry.size == sizes["stored"] else sizes["shown"]
    if entry.size not in {None, *sizes.values()}:
        raise _other_size(entry, entry.size or size, sizes["shown"])
    labels = choice.of_folder(entry.draw(size))
    if labels.shape == sizes["shown"]:
        return labels, False
    if labels.shape != sizes["stored"]:
        raise _other_size(entry, labels.shape, sizes["shown"])
    stored = Image.fromarray(labels)
    stored.getexif().update(picture.getexif())
    return np.asarray(upright(stored)), True


def _other_size(entry: Entry, found: Sequence[int], expected: Sequence[int]) -> FileFault:
    return FileFault.of(OTHER_SIZE, f"{entry.name} ({found[1]}x{found[0]}, picture {expected[1]}x{expected[0]})")


def _suffix(content: Path | bytes, picture: Image.Image) -> str:
    if isinstance(content, Path) and content.suffix.lower() in IMAGES:
        return content.suffix.lower()
    return FORMATS.get(picture.format or "", FORMATS["JPEG"]).suffixes[0]  # several JPEG in one file have another name


def _write_picture(content: Path | bytes, path: Path, link: bool) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif link:
        path.symlink_to(content.resolve())
    else:
        shutil.copyfile(content, path)


def _file_names(names: Sequence[str], notes: Faults) -> list[str]:
    """A file name for every picture: its own, where several have it with their folders, else with a number."""
    own = [_fit(name.rpartition("/")[2]) for name in names]
    counts = Counter(name.lower() for name in own)  # some systems do not tell cases apart
    long = [_fit(name) if counts[short.lower()] > 1 else short for name, short in zip(names, own, strict=True)]
    used: set[str] = set()
    for index, name in enumerate(long):
        free, number = name, 1
        while free.lower() in used:
            number += 1
            free = f"{name}-{number}"
        used.add(free.lower())
        long[index] = free
        if free != names[index].rpartition("/")[2]:
            notes.add(FileFault.of(RENAMED, f"{names[index]} is {free}"))
    return long


def _fit(name: str) -> str:
    """A name that can name a file on any system."""
    return _UNFIT.sub("-", name).strip(" .")[:200] or "picture"


def _splits(lists: dict[str, list[str]], val: float | None) -> dict[str, list[str]]:
    """The lists to write: those of the source, or a share of all pictures drawn by their names, always the same."""
    if val is None:
        return {split: files for split, files in lists.items() if split}
    files = [file for each in lists.values() for file in each]
    drawn = sorted(files, key=lambda file: hashlib.sha256(Path(file).stem.encode()).digest())
    if len(files) < 2:
        raise JoemError("To divide them into train and val takes two pictures or more, got one: leave --val out.")
    held = set(drawn[: min(max(1, round(val * len(files))), len(files) - 1)])
    return {
        "train": [file for file in files if file not in held],
        "val": [file for file in files if file in held],
    }


def _write_lists(draft: Path, names: Iterable[str], splits: dict[str, list[str]]) -> None:
    (draft / "classes.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    if splits:
        (draft / "splits").mkdir()
    for split, files in splits.items():
        text = "".join(f"{file}\n" for file in sorted(files))
        (draft / "splits" / f"{split}.txt").write_text(text, encoding="utf-8")
