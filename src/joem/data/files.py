"""Pictures and masks in files: reading them, and a dataset of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from joem.data.dataset import Sample
from joem.data.faults import (
    NO_COLOURS,
    OTHER_SIZE,
    UNKNOWN_COLOUR,
    UNKNOWN_LABEL,
    UNREADABLE,
    FileFault,
    listed,
)
from joem.errors import JoemError
from joem.io import atomic_file, damage_told
from joem.picture_files import read_picture, upright
from joem.vocabulary import VOID, Colour, Vocabulary

_VOID_COLOUR = (224, 224, 192)
_COLOURED = {"RGB", "RGBA"}  # what Pillow calls the kinds of pictures that masks can be
_LABELLED = {"1", "L", "LA", "P", "PA", "I", "I;16", "I;16B"}
_BAND = 1 << 20  # pixels that are converted together


class Item(NamedTuple):
    """A picture and its mask on disk."""

    name: str
    image: Path
    mask: Path


class FileDataset:
    """A dataset of picture and mask files.

    Args:
        vocabulary: the classes.
        items: the files, in order.
        colours: which label every colour of an RGB mask means; palette and grey masks hold labels themselves.
    """

    def __init__(
        self, vocabulary: Vocabulary, items: Sequence[Item], colours: Mapping[Colour, int] | None = None
    ) -> None:
        self.names, self.background = vocabulary.names, vocabulary.background
        self.items = tuple(items)
        self._colours = dict(colours or {})

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Sample:
        item = self.items[index]
        image, labels = read_image(item.image), self.labels(index)
        if image.shape[1:] != labels.shape:
            raise FileFault(
                f"Image {item.image} is {_size(image)} (width x height) and its mask {item.mask} is "
                f"{_size(labels)}: they must have one size. Export the mask again at the size of the picture.",
                OTHER_SIZE,
                f"{item.mask.name} ({_size(labels)}, picture {_size(image)})",
            )
        return Sample(image, labels, item.name)

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, without reading the picture."""
        return read_labels(self.items[index].mask, len(self.names), self._colours)

    def name(self, index: int) -> str:
        """What the picture is called."""
        return self.items[index].name

    def version(self, index: int) -> str:
        """Size and time of the picture's file."""
        return file_version(self.items[index].image)


def file_version(path: Path) -> str:
    """Size and time of a picture's file, which change when the picture does."""
    try:
        found = path.stat()
    except OSError as error:
        raise JoemError(f"Image {path} cannot be read ({error}).") from error
    return f"{found.st_size} bytes of {found.st_mtime_ns}"


def read_image(path: Path | IO[bytes]) -> Tensor:
    """Read any picture file, by its path or open, as (3, H, W) uint8 RGB, upright according to its EXIF orientation."""
    with _faults_told(path) as name:
        return as_pixels(read_picture(path, name))


def as_pixels(picture: Image.Image) -> Tensor:
    """Any Pillow picture (grey, 16-bit, CMYK, palette) as (3, H, W) uint8 RGB, upright by its EXIF.

    Transparent parts show white, not the colour that happens to be stored under them.

    >>> as_pixels(Image.new("L", (5, 4), 7)).shape
    torch.Size([3, 4, 5])
    """
    picture = upright(picture)
    pixels = torch.empty(3, picture.height, picture.width, dtype=torch.uint8)
    rows = max(1, _BAND // max(1, picture.width))  # all at once, copies would take several times the memory
    for top in range(0, picture.height, rows):
        bottom = min(top + rows, picture.height)
        band = _as_rgb(picture.crop((0, top, picture.width, bottom)))
        pixels[:, top:bottom] = torch.from_numpy(np.array(band)).permute(2, 0, 1)
    return pixels


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255 instead of scaling
        picture = Image.fromarray((np.asarray(picture) / 257).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def read_labels(path: Path, classes: int, colours: Mapping[Colour, int]) -> Tensor:
    """Read a mask file as (H, W) int64 labels below `classes`, or void.

    Palette and grey masks hold the labels themselves, 255 for void; RGB masks are translated by `colours`.
    """
    mask = open_image(path)
    if mask.mode not in _LABELLED | _COLOURED:
        raise FileFault(
            f"Mask {path} is of the kind {mask.mode}: save masks as palette, grey or RGB.",
            UNREADABLE,
            f"{path.name} (of the kind {mask.mode})",
        )
    labels: NDArray[np.integer]
    if mask.mode in _COLOURED:
        labels = _from_colours(np.asarray(mask.convert("RGB")), path, colours)
    else:
        labels = np.asarray(mask.getchannel(0) if mask.mode.endswith("A") else mask)  # of eight bits: quick to look at
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != VOID)].astype(np.int64)
    if wrong.size:
        raise FileFault(
            f"Mask {path} holds {_most_frequent(wrong)}, but the classes are 0 to {classes - 1} and void is "
            f"{VOID}. List the missing class or repaint the mask.",
            UNKNOWN_LABEL,
            f"{path.name} ({_most_frequent(wrong)})",
        )
    return torch.from_numpy(labels.astype(np.int64))


def mask_colours(vocabulary: Vocabulary) -> bytes:
    """The colours of a mask file: those of the vocabulary, and a pale one for void."""
    colours = np.zeros((VOID + 1, 3), np.uint8)
    colours[: len(vocabulary)] = vocabulary.colours
    colours[VOID] = _VOID_COLOUR
    return colours.tobytes()


def write_mask(path: Path, labels: NDArray[np.uint8], colours: bytes, lasting: bool = True) -> None:
    """Write labels (H, W) as a PNG that holds the labels themselves and shows them in the given colours."""
    mask = Image.fromarray(labels)
    mask.putpalette(colours)
    with atomic_file(path, lasting) as draft:
        mask.save(draft, format="PNG")


def pair(split: str, stems: Sequence[str], pictures: Path, masks: Mapping[str, Path], advice: str) -> list[Item]:
    """The JPEG pictures of a split with their masks; pictures without one are an error that ends with `advice`."""
    missing = [stem for stem in stems if stem not in masks]
    if missing:
        raise JoemError(
            f"{len(missing)} of the {len(stems)} pictures of split {split!r} have no mask: {listed(missing)}. {advice}"
        )
    return [Item(stem, pictures / f"{stem}.jpg", masks[stem]) for stem in stems]


def by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    """The files of a folder with that suffix, by their names without it, sorted."""
    return {path.stem: path for path in sorted(folder.glob(f"*{suffix}"))}


def read_list(path: Path) -> list[str]:
    """The picture names in a split file, one per line; blank lines do not count."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise JoemError(f"{path} is not UTF-8: save it as UTF-8 ({error}).") from None


def open_image(path: Path | IO[bytes]) -> Image.Image:
    """Open any picture file, by its path or open, upright according to its EXIF orientation."""
    with _faults_told(path) as name:
        return upright(read_picture(path, name))


@contextmanager
def _faults_told(path: Path | IO[bytes]) -> Iterator[str]:
    """What to call a file; what is wrong with it is a fault of the dataset it belongs to."""
    name = str(path) if isinstance(path, Path) else "The picture"
    try:
        with damage_told(name):
            yield name
    except JoemError as error:
        item = str(error).removesuffix(".")
        if isinstance(path, Path):
            item = item.replace(name, path.name)
        raise FileFault(f"{error} Replace the file or leave it out.", UNREADABLE, item) from None


def _from_colours(pixels: NDArray[np.uint8], path: Path, colours: Mapping[Colour, int]) -> NDArray[np.int64]:
    if not colours:
        raise FileFault(
            f"Mask {path} is an RGB picture, and no colours are given: write each class of classes.txt "
            "as 'name #RRGGBB', or save masks as palette or grey PNG that hold the labels.",
            NO_COLOURS,
            path.name,
        )
    codes = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    present, positions = np.unique(codes, return_inverse=True)
    table = {(red << 16) + (green << 8) + blue: label for (red, green, blue), label in colours.items()}
    labels = np.array([table.get(int(code), -1) for code in present])[positions.reshape(codes.shape)]
    if (labels < 0).any():
        found = _most_frequent(codes[labels < 0], "#{:06X}")
        raise FileFault(
            f"Mask {path} holds {found}, which classes.txt does not "
            "list. List the colour, or save masks without smoothing and without JPEG compression.",
            UNKNOWN_COLOUR,
            f"{path.name} ({found})",
        )
    return labels


def _most_frequent(values: NDArray[np.int64], form: str = "{}") -> str:
    distinct, counts = np.unique(values, return_counts=True)
    others = f" and {len(distinct) - 1} more such values" if len(distinct) > 1 else ""
    return f"the value {form.format(distinct[counts.argmax()])} at {counts.max()} pixels{others}"


def _size(pixels: Tensor) -> str:
    return f"{pixels.shape[-1]}x{pixels.shape[-2]}"
