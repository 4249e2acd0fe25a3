"""Pictures from strangers: known formats only, and their size is checked before a pixel is decoded."""

import io
import warnings

from PIL import Image, UnidentifiedImageError

from joem.web.failures import Refusal

MEDIA_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
"""Pillow's names of the formats that are read, and their media types."""

_KNOWN = ", ".join(MEDIA_TYPES)


def read_picture(body: bytes, pixels: int) -> Image.Image:
    """Decode a picture file of at most so many pixels."""
    try:
        # A header that promises more pixels than Pillow likes warns first; the check below is stricter.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(body), formats=tuple(MEDIA_TYPES))
    except Image.DecompressionBombError:
        raise Refusal(413, f"The picture has far more than the {pixels:,} pixels allowed: reduce it.") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise Refusal(415, f"The {len(body)} bytes sent are no picture of a known kind: send {_KNOWN}.") from None
    if picture.width * picture.height > pixels:
        raise Refusal(
            413, f"The picture has {picture.width} x {picture.height} pixels, {pixels:,} are allowed: reduce it."
        )
    try:
        picture.load()
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise Refusal(400, f"The picture is damaged ({error}): send the whole file.") from None
    return picture
