"""A palette PNG written band by band, for masks that are too large to hold."""

import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from joem.vocabulary import Colour


def palette_png(size: tuple[int, int], colours: Sequence[Colour], bands: Iterable[Tensor]) -> bytes:
    """The file of labels (H,W) that come in bands of rows, each (rows,W); only what is compressed is held.

    Rows are not filtered, so that a reader needs nothing but zlib.
    """
    height, width = size
    deflate = zlib.compressobj(6)
    parts = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))]
    parts.append(_chunk(b"PLTE", bytes(channel for colour in colours for channel in colour)))
    for band in bands:
        rows = np.zeros((len(band), width + 1), np.uint8)  # each begins with its filter: 0, none
        rows[:, 1:] = band.numpy()
        parts.append(_chunk(b"IDAT", deflate.compress(rows.tobytes())))
    parts += [_chunk(b"IDAT", deflate.flush()), _chunk(b"IEND", b"")]
    return b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
