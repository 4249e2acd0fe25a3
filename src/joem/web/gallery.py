"""Pictures to start with, so that the page is never empty."""

import io
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from joem.data import as_pixels, scenes
from joem.errors import JoemError
from joem.examples import Points
from joem.segmenter import Segmenter
from joem.settings import DataSettings, split_names
from joem.web.decoding import MEDIA_TYPES, read_picture
from joem.web.failures import Refusal

_DRAWN = 6
_WORDS = ".txt"  # of a file with the words of the picture of the same name
_UNSHOWN = {"TIFF", "JPEG2000", "PPM"}  # what is read here, but not by browsers
_PHOTOS: dict[str, tuple[str, tuple[str, ...], Points]] = {
    "photographer": ("scenery", ("man", "sky", "building", "tripod"), {}),
    "astronaut": ("an example", ("person",), {"flag": [(60, 100)]}),
    "coffee": ("a new word", ("cup", "table"), {}),
    "cat": ("things", ("cat",), {}),
}
"""The photos in the package, whose CREDITS.md says where they are from: what each shows, by which words and points."""


class SamplePicture(NamedTuple):
    """A picture file that the page offers.

    Attributes:
        title: what it is called.
        media_type: of its content.
        content: the file.
        names: the classes to show it with, if it has some of its own.
        about: what it shows, in a few words.
        points: classes by points on it.
    """

    title: str
    media_type: str
    content: bytes
    names: tuple[str, ...] | None = None
    about: str | None = None
    points: Points | None = None


def for_model(segmenter: Segmenter) -> list[SamplePicture]:
    """Pictures of the kind that the model was trained on, which anyone may use."""
    settings = segmenter.model.recipe.data
    return generated(settings) if settings.kind == "scenes" else photos(segmenter)


def generated(settings: DataSettings) -> list[SamplePicture]:
    """Drawn pictures, of the size the model was trained on."""
    pictures = scenes.open_split("demo", _DRAWN, size=settings.size)
    return [_as_file(pictures, index) for index in range(_DRAWN)]


def photos(segmenter: Segmenter) -> list[SamplePicture]:
    """The photos in the package, with their words where the model's vectors know them."""
    folder = files("joem.web") / "photos"
    return [
        SamplePicture(
            title, "image/jpeg", (folder / f"{title}.jpg").read_bytes(), _if_known(names, segmenter), about, points
        )
        for title, (about, names, points) in _PHOTOS.items()
    ]


def _if_known(names: tuple[str, ...], segmenter: Segmenter) -> tuple[str, ...] | None:
    try:
        segmenter.classes(names)
    except JoemError:
        return None
    return names


def from_folder(folder: Path, pixels: int) -> list[SamplePicture]:
    """The picture files of a folder, in order of their names, with the words in text files of the same names."""
    files = [path for path in folder.glob("*") if path.is_file() and path.suffix != _WORDS] if folder.is_dir() else []
    paths = sorted(files)
    if not paths:
        raise JoemError(f"There are no sample pictures in {folder}: give a folder of {', '.join(MEDIA_TYPES)} files.")
    return [_read(path, pixels) for path in paths]


def _as_file(pictures: scenes.Scenes, index: int) -> SamplePicture:
    sample = pictures[index]
    shown = [pictures.names[label] for label in np.unique(sample.labels.numpy()).tolist() if label > 0]
    return SamplePicture(", ".join(reversed(shown)), "image/png", _png(sample.image), tuple(reversed(shown)))


def own_samples(model: Path) -> Path | None:
    """The folder of samples that a model brings along, beside its files or in the folder of its run."""
    folder = model / "samples"
    return folder if folder.is_dir() else None


def as_png(body: bytes, pixels: int) -> bytes:
    """A picture file of at most so many pixels as a PNG file, turned upright."""
    return _png(as_pixels(read_picture(body, pixels)))


def _words_beside(path: Path) -> tuple[str, ...] | None:
    words = path.with_suffix(_WORDS)
    names = split_names(words.read_text(encoding="utf-8").replace("\n", ",")) if words.is_file() else None
    return tuple(names) if names else None


def _read(path: Path, pixels: int) -> SamplePicture:
    content, names = path.read_bytes(), _words_beside(path)
    try:
        picture = read_picture(content, pixels)
    except Refusal as refusal:
        raise JoemError(f"{path} cannot be a sample. {refusal.detail}") from None
    if picture.format in _UNSHOWN:
        return SamplePicture(path.stem, "image/png", _png(as_pixels(picture)), names)
    return SamplePicture(path.stem, MEDIA_TYPES.get(picture.format or "", "image/jpeg"), content, names)


def _png(pixels: Tensor) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()
