"""Picture files from anywhere: known formats only, and all that a damaged file does to its decoder is one error.

Nothing here imports torch.
"""

import warnings
from pathlib import Path
from typing import IO, NamedTuple

from PIL import Image, UnidentifiedImageError

from joem.errors import JoemError
from joem.io import damage_told


class Format(NamedTuple):
    """A kind of picture file."""

    media_type: str
    suffixes: tuple[str, ...]


# Those that Pillow always has at hand come first: it imports the others when it comes to them.
FORMATS: dict[str, Format] = {
    "JPEG": Format("image/jpeg", (".jpg", ".jpeg")),
    "PNG": Format("image/png", (".png",)),
    "BMP": Format("image/bmp", (".bmp",)),
    "GIF": Format("image/gif", (".gif",)),
    "PPM": Format("image/x-portable-pixmap", (".ppm", ".pgm")),
    "WEBP": Format("image/webp", (".webp",)),
    "AVIF": Format("image/avif", (".avif",)),
    "TIFF": Format("image/tiff", (".tif", ".tiff")),
    "JPEG2000": Format("image/jp2", (".jp2",)),
}
"""The formats that are read, by Pillow's names. It knows others, some of which start other programs (EPS)."""

SUFFIXES = frozenset(suffix for each in FORMATS.values() for suffix in each.suffixes)
"""How the names of picture files end."""

_ORIENTATION = 0x0112  # the tag of EXIF
_METADATA = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")  # where Pillow looks for it
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class NotAPicture(JoemError):
    """A file that is no picture of a known format."""


class TooManyPixels(JoemError):
    """A picture that has more pixels than are allowed."""


def read_picture(file: Path | IO[bytes], name: str, pixels: int | None = None) -> Image.Image:
    """Decode a picture file; it is not turned yet, see `upright`.

    Args:
        file: its path, or the open file.
        name: what errors call it.
        pixels: how many it may have, checked before one is decoded; those that Pillow takes for safe if None.
    """
    with damage_told(name):
        picture = _opened(file, name)
        if pixels is not None and picture.width * picture.height > pixels:
            raise TooManyPixels(f"{name} has {picture.width} x {picture.height} pixels.")
        picture.load()
    return picture


def upright(picture: Image.Image) -> Image.Image:
    """A picture turned as its EXIF block says; as it is stored where that block is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turn = _TURNS.get(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # Pillow raises whatever a damaged block leads it to
        return picture
    if turn is None:
        return picture
    turned = picture.transpose(turn)
    for block in _METADATA:
        turned.info.pop(block, None)  # or it would be turned again
    return turned


def _opened(file: Path | IO[bytes], name: str) -> Image.Image:
    try:
        # Pillow warns of half as many pixels as it refuses.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(file, formats=tuple(FORMATS))
    except Image.DecompressionBombError:
        raise TooManyPixels(f"{name} has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels.") from None
    except UnidentifiedImageError:
        raise NotAPicture(f"{name} is no picture of a known format ({', '.join(FORMATS)}), or is damaged.") from None
