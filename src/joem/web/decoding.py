"""Pictures from strangers: their size is checked before a pixel is decoded."""

import base64
import io

from PIL import Image

from joem import picture_files
from joem.errors import JoemError
from joem.picture_files import FORMATS, NotAPicture, TooManyPixels
from joem.web.failures import Refusal

MEDIA_TYPES = {name: each.media_type for name, each in FORMATS.items()}
"""Pillow's names of the formats that are read, and their media types."""


def read_picture(body: bytes, pixels: int) -> Image.Image:
    """Decode a picture file of at most so many pixels."""
    try:
        return picture_files.read_picture(io.BytesIO(body), "The picture", pixels)
    except TooManyPixels as error:
        raise Refusal(413, f"{error} {pixels:,} are allowed: reduce it.") from None
    except NotAPicture:
        known = ", ".join(FORMATS)
        raise Refusal(415, f"The {len(body)} bytes sent are no picture of a known kind: send {known}.") from None
    except JoemError as error:
        raise Refusal(400, f"{error} Send the whole file.") from None


def read_mask(text: str, pixels: int) -> Image.Image:
    """Decode a mask, a picture file in base64."""
    try:
        body = base64.b64decode(text, validate=True)
    except ValueError:
        raise Refusal(422, "examples: a mask must be a PNG file in base64.") from None
    return read_picture(body, pixels)
