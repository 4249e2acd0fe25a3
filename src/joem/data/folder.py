"""Your own pictures: a folder of images, a folder of masks and a list of classes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from joem import progress
from joem.data.counts import find_faults
from joem.data.dataset import Dataset
from joem.data.faults import Faults, FaultsFound, listed
from joem.data.files import FileDataset, Item, mask_colours, read_list, read_text, write_mask
from joem.errors import BadUsage, JoemError, choose
from joem.picture_files import SUFFIXES
from joem.vocabulary import VOID, Colour, Vocabulary

LAYOUT = "images/ (pictures), masks/ (one mask per picture, same name) and classes.txt (one class per line)"

IMAGES = SUFFIXES
MASKS = {".png", ".bmp", ".tif", ".tiff"}
"""How the names of picture and mask files may end."""

_HEX, _BYTE = re.compile(r"#[0-9a-fA-F]{6}"), re.compile(r"[0-9]{1,3}")


class Folder(FileDataset):
    """Pictures and masks in `images/` and `masks/`, classes in `classes.txt`.

    The number of a line in classes.txt, from 0, is the label of its class. Palette and grey masks hold
    labels, 255 for void. For masks painted in RGB colours a line also gives the colour, "cow #408000" or
    "cow 64 128 0", and a last line named "void" may give the colour of unlabelled pixels. A class named
    "background" is taken as the background. Masks without a picture are not used.

    Args:
        root: the folder that holds all of that.
        split: a list of picture names in splits/, such as train for splits/train.txt; all pictures if None. What a
            folder without splits/ is trained and evaluated on is settled by `joem.data.divide`.
    """

    def __init__(self, root: str | Path, split: str | None = None) -> None:
        found = _look(Path(root), split)
        found.faults.raise_any(str(root))
        super().__init__(found.vocabulary, found.items, found.palette)


def has_lists(root: str | Path) -> bool:
    """Whether a folder says itself what to train and to evaluate on."""
    return (Path(root) / "splits").exists()


def check_folder(root: str | Path, split: str | None = None) -> FileDataset:
    """Open a folder after reading all of it: everything that is wrong with it is told in one error.

    Args:
        root: as for `Folder`.
        split: as for `Folder`.
    """
    found = _look(Path(root), split)
    dataset = FileDataset(found.vocabulary, found.items, found.palette)
    if len(dataset) and found.classes_known:  # else every label would be a further fault
        found.faults.extend(find_faults(dataset))
    found.faults.raise_any(str(root))
    return dataset


def check_lists(root: str | Path, splits: Iterable[str | None]) -> None:
    """Read all pictures of some lists of a folder, of the folder itself where it has no lists, as `check_folder` does.

    Args:
        root: as for `Folder`.
        splits: the lists; None stands for all pictures.
    """
    faults = Faults()
    for split in dict.fromkeys(splits if has_lists(root) else (None,)):
        try:
            check_folder(root, split)
        except FaultsFound as found:
            faults.extend(found.faults)
        except BadUsage:  # there is no such list
            continue
    faults.raise_any(str(root))


def write_folder(dataset: Dataset, root: str | Path) -> None:
    """Write any dataset as a `Folder`, with PNG pictures and palette PNG masks in the vocabulary's colours.

    Args:
        dataset: what to write.
        root: a new or empty folder.
    """
    folder = Path(root)
    if folder.exists() and any(folder.iterdir()):
        raise BadUsage(f"{folder} is not empty: give a new folder, or delete its files first.")
    if len(dataset.names) > VOID:
        raise BadUsage(f"A mask file holds at most {VOID} classes, the dataset has {len(dataset.names)}.")
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in dataset.names), encoding="utf-8")
    colours = mask_colours(Vocabulary(dataset.names, background=dataset.background))
    for index in progress.track(range(len(dataset)), "Writing"):
        sample = dataset[index]
        Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(folder / "images" / f"{sample.name}.png")
        write_mask(folder / "masks" / f"{sample.name}.png", sample.labels.numpy().astype(np.uint8), colours)


class _Found(NamedTuple):
    """What a folder holds: the pictures that have masks, and what is wrong."""

    vocabulary: Vocabulary
    items: list[Item]
    palette: dict[Colour, int]
    faults: Faults
    classes_known: bool


def _look(folder: Path, split: str | None) -> _Found:
    parts = [folder / "images", folder / "masks", folder / "classes.txt"] if folder.exists() else [folder]
    missing = [str(path) for path in parts if not path.exists()]
    if missing:
        raise JoemError(f"There is no {' and no '.join(missing)}. A dataset folder holds {LAYOUT}.")
    faults, vocabulary, classes_known = Faults(), Vocabulary(("?",)), True
    palette: dict[Colour, int] = {}
    try:
        names, palette = _read_classes(folder / "classes.txt")
        vocabulary = Vocabulary(names, background="background" if "background" in names else None)
    except JoemError as error:
        faults.add(error)
        classes_known = False
    images, masks = _by_stem(folder / "images", IMAGES, faults), _by_stem(folder / "masks", MASKS, faults)
    stems = list(images)
    if not images:
        faults.add(JoemError(f"{folder / 'images'} holds no pictures ({', '.join(sorted(IMAGES))})."))
    elif split is not None:
        try:
            stems = _read_split(folder, split, images, faults)
        except BadUsage:
            raise
        except JoemError as error:
            faults.add(error)
    if bare := [images[stem].name for stem in stems if stem not in masks]:
        message = (
            f"{len(bare)} of {len(stems)} pictures have no mask of the same name "
            f"({', '.join(sorted(MASKS))}) in {folder / 'masks'}: {listed(bare)}. "
            "Add the masks or take the pictures out."
        )
        faults.add(JoemError(message))
    items = [Item(stem, images[stem], masks[stem]) for stem in stems if stem in masks]
    return _Found(vocabulary, items, palette, faults, classes_known)


def _read_classes(path: Path) -> tuple[tuple[str, ...], dict[Colour, int]]:
    """Class names in order, and the label of every colour."""
    lines = read_text(path).rstrip().splitlines()
    names: list[str] = []
    palette: dict[Colour, int] = {}
    for number, line in enumerate(lines):
        name, colour = read_class(line, f"line {number + 1} of {path}")
        is_void = name == "void"
        if is_void and number < len(lines) - 1:
            raise JoemError(f"'void' must be the last line of {path}, got line {number + 1}: it is not a class.")
        if colour in palette:
            raise JoemError(f"Line {number + 1} of {path} repeats the colour of another class: {line!r}.")
        if colour is not None:
            palette[colour] = VOID if is_void else number
        if not is_void:
            names.append(name)
    if not 1 <= len(names) <= VOID:
        raise JoemError(f"{path} must list 1 to {VOID} classes, one per line, got {len(names)}.")
    return tuple(names), palette


def read_class(line: str, where: str) -> tuple[str, Colour | None]:
    """The name and the colour of a class in a line of classes.txt.

    >>> read_class("traffic light #FAAA1E", "line 1"), read_class("cow", "line 2")
    (('traffic light', (250, 170, 30)), ('cow', None))
    """
    text = line.strip()
    if not text:
        raise JoemError(f"Expected a class name in {where}, got a blank line.")
    name, *word = text.rsplit(maxsplit=1)
    if word and _HEX.fullmatch(word[0]):
        red, green, blue = bytes.fromhex(word[0][1:])
        return name, (red, green, blue)
    name, *numbers = text.rsplit(maxsplit=3)
    if len(numbers) < 3 or not all(map(_BYTE.fullmatch, numbers)):
        return text, None
    red, green, blue = map(int, numbers)
    if max(red, green, blue) > 255:
        raise JoemError(f"A colour is three numbers from 0 to 255, got {' '.join(numbers)!r} in {where}.")
    return name, (red, green, blue)


def _by_stem(folder: Path, suffixes: Iterable[str], faults: Faults) -> dict[str, Path]:
    """Files of these kinds by name without suffix, sorted."""
    files: dict[str, Path] = {}
    repeated: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in suffixes or path.name.startswith("."):
            continue
        if path.stem in files:
            repeated.append(f"{files[path.stem].name} and {path.name}")
        else:
            files[path.stem] = path
    if repeated:
        message = f"Files in {folder} have the same name: {listed(repeated)}. Rename or delete one of each."
        faults.add(JoemError(message))
    return files


def _read_split(folder: Path, split: str, images: dict[str, Path], faults: Faults) -> list[str]:
    lists = {path.stem: path for path in sorted((folder / "splits").glob("*.txt"))}
    if not lists:
        raise JoemError(
            f"Split {split!r} needs the file {folder / 'splits' / split}.txt, one picture name per "
            "line; null instead of its name takes all pictures."
        )
    names = read_list(lists[choose("split", split, lists)])
    stems = [name.removesuffix(Path(name).suffix) if Path(name).suffix.lower() in IMAGES else name for name in names]
    unknown = [stem for stem in stems if stem not in images]
    if unknown:
        message = f"{len(unknown)} of {len(stems)} names in {lists[split]} have no picture in {folder / 'images'}"
        faults.add(JoemError(f"{message}: {listed(unknown)}."))
    if not stems:
        faults.add(JoemError(f"{lists[split]} lists no pictures."))
    return [stem for stem in stems if stem in images]
