"""Pictures to start with, so that the page is never empty."""

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from joem.data import scenes
from joem.errors import JoemError
from joem.recipe import DataSettings
from joem.web.pictures import MEDIA_TYPES, read_picture
from joem.web.problems import Refusal

_COUNT = 6


class SamplePicture(NamedTuple):
    """A picture file that the page offers."""

    title: str
    media_type: str
    content: bytes


def generated(settings: DataSettings) -> list[SamplePicture]:
    """Drawn pictures that anyone may use, of the size the model was trained on if it was trained on such."""
    size = settings.size if settings.kind == "scenes" else 256
    pictures = scenes.open_split("demo", _COUNT, size=size)
    return [_as_file(pictures, index) for index in range(_COUNT)]


def from_folder(folder: Path, pixels: int) -> list[SamplePicture]:
    """The picture files of a folder, in order of their names."""
    paths = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    if not paths:
        raise JoemError(f"There are no sample pictures in {folder}: give a folder of {', '.join(MEDIA_TYPES)} files.")
    return [_read(path, pixels) for path in paths]


def _as_file(pictures: scenes.Scenes, index: int) -> SamplePicture:
    sample = pictures[index]
    shown = [pictures.names[label] for label in np.unique(sample.labels.numpy()).tolist() if label > 0]
    file = io.BytesIO()
    Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(file, "PNG")
    return SamplePicture(", ".join(reversed(shown)), "image/png", file.getvalue())


def _read(path: Path, pixels: int) -> SamplePicture:
    content = path.read_bytes()
    try:
        picture = read_picture(content, pixels)
    except Refusal as refusal:
        raise JoemError(f"{path} cannot be a sample. {refusal.detail}") from None
    return SamplePicture(path.stem, MEDIA_TYPES.get(picture.format or "", "image/jpeg"), content)
