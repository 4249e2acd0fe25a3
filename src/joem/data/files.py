"""Pictures and masks in files: reading them, and a dataset of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from joem.data.dataset import Sample
from joem.errors import JoemError
from joem.io import atomic_file
from joem.vocabulary import VOID, Vocabulary

Colour = tuple[int, int, int]

_VOID_COLOUR = (224, 224, 192)


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
            raise JoemError(
                f"Image {item.image} is {_size(image)} (width x height) and its mask {item.mask} is "
                f"{_size(labels)}: they must have one size. Export the mask again at the size of the picture."
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
        path = self.items[index].image
        try:
            found = path.stat()
        except OSError as error:
            raise JoemError(f"Image {path} cannot be read ({error}).") from error
        return f"{found.st_size} bytes of {found.st_mtime_ns}"


def read_image(path: Path | IO[bytes]) -> Tensor:
    """Read any picture file, by its path or open, as (3, H, W) uint8 RGB, upright according to its EXIF orientation."""
    return as_pixels(_open(path))


def as_pixels(picture: Image.Image) -> Tensor:
    """Any Pillow picture (grey, 16-bit, CMYK, palette) as (3, H, W) uint8 RGB, upright by its EXIF.

    Transparent parts show white, not the colour that happens to be stored under them.

    >>> as_pixels(Image.new("L", (5, 4), 7)).shape
    torch.Size([3, 4, 5])
    """
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255 instead of scaling
        picture = Image.fromarray((np.asarray(picture) / 257).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1).contiguous()


def read_labels(path: Path, classes: int, colours: Mapping[Colour, int]) -> Tensor:
    """Read a mask file as (H, W) int64 labels below `classes`, or void.

    Palette and grey masks hold the labels themselves, 255 for void; RGB masks are translated by `colours`.
    """
    mask = _open(path)
    if mask.mode in {"RGB", "RGBA"}:
        labels = _from_colours(np.asarray(mask.convert("RGB")), path, colours)
    else:
        labels = np.asarray(mask.getchannel(0) if mask.mode == "LA" else mask).astype(np.int64)
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != VOID)]
    if wrong.size:
        raise JoemError(
            f"Mask {path} holds {_most_frequent(wrong)}, but the classes are 0 to {classes - 1} and void is "
            f"{VOID}. List the missing class or repaint the mask."
        )
    return torch.from_numpy(labels)


def mask_colours(vocabulary: Vocabulary) -> bytes:
    """The colours of a mask file: those of the vocabulary, and a pale one for void."""
    colours = np.zeros((VOID + 1, 3), np.uint8)
    colours[: len(vocabulary)] = vocabulary.colours
    colours[VOID] = _VOID_COLOUR
    return colours.tobytes()


def write_mask(path: Path, labels: NDArray[np.uint8], colours: bytes) -> None:
    """Write labels (H, W) as a PNG that holds the labels themselves and shows them in the given colours."""
    mask = Image.fromarray(labels)
    mask.putpalette(colours)
    with atomic_file(path) as draft:
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


def listed(names: Iterable[str]) -> str:
    """Up to five of the names, and how many more there are.

    >>> listed("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    every = list(names)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(every[:5]) + more


def read_list(path: Path) -> list[str]:
    """The picture names in a split file, one per line; blank lines do not count."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise JoemError(f"{path} is not UTF-8: save it as UTF-8 ({error}).") from None


def _open(path: Path | IO[bytes]) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return ImageOps.exif_transpose(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = str(error).rstrip(".")
        raise JoemError(f"Cannot read {path}: {reason}. Replace the file or leave it out.") from None


def _from_colours(pixels: NDArray[np.uint8], path: Path, colours: Mapping[Colour, int]) -> NDArray[np.int64]:
    if not colours:
        raise JoemError(
            f"Mask {path} is an RGB picture, and no colours are given: write each class of classes.txt "
            "as 'name #RRGGBB', or save masks as palette or grey PNG that hold the labels."
        )
    codes = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    present, positions = np.unique(codes, return_inverse=True)
    table = {(red << 16) + (green << 8) + blue: label for (red, green, blue), label in colours.items()}
    labels = np.array([table.get(int(code), -1) for code in present])[positions.reshape(codes.shape)]
    if (labels < 0).any():
        raise JoemError(
            f"Mask {path} holds {_most_frequent(codes[labels < 0], '#{:06X}')}, which classes.txt does not "
            "list. List the colour, or save masks without smoothing and without JPEG compression."
        )
    return labels


def _most_frequent(values: NDArray[np.int64], form: str = "{}") -> str:
    distinct, counts = np.unique(values, return_counts=True)
    others = f" and {len(distinct) - 1} more such values" if len(distinct) > 1 else ""
    return f"the value {form.format(distinct[counts.argmax()])} at {counts.max()} pixels{others}"


def _size(pixels: Tensor) -> str:
    return f"{pixels.shape[-1]}x{pixels.shape[-2]}"
