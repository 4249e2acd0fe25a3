"""A picture tinted by class, with outlines and a legend."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from joem.vocabulary import Colour, starred

_BAND = 1 << 20  # pixels


def overlay(
    pixels: Tensor,
    labels: Tensor,
    names: Sequence[str],
    colours: Sequence[Colour],
    unseen: Sequence[str] = (),
    opacity: float = 0.6,
    legend: bool = True,
) -> Image.Image:
    """A picture (3,H,W) tinted by its labels (H,W), with outlines and a legend of the names that occur.

    Names in `unseen` carry a star in the legend. Labels that are no class (void) stay untinted.
    """
    classes = labels.numpy()
    height, width = classes.shape
    entries: list[tuple[str, Colour]] = []
    if legend:
        present = sorted({label for rows in _bands(classes.shape) for label in np.unique(classes[rows]).tolist()})
        present = [label for label in present if label < len(names)]
        is_unseen = [names[label] in unseen for label in present]
        entries = [
            (starred(names[label], star), colours[label]) for label, star in zip(present, is_unseen, strict=True)
        ]
        canvas, left = room_with_legend(height, width, entries, star=any(is_unseen))
    else:
        canvas, left = Image.new("RGB", (width, height)), 0
    for rows in _bands(classes.shape):
        canvas.paste(_tinted(pixels, classes, rows, colours, opacity), (left, rows.start))
    return canvas


def _bands(shape: tuple[int, ...]) -> list[slice]:
    """Rows that are worked on together: all at once would take many times the memory of the picture."""
    height, width = shape
    rows = max(1, _BAND // width)
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def _tinted(
    pixels: Tensor, labels: NDArray[Any], rows: slice, colours: Sequence[Colour], opacity: float
) -> Image.Image:
    """Some rows of the picture, tinted, with outlines."""
    picture, classes = pixels[:, rows].permute(1, 2, 0).numpy().astype(np.float32), labels[rows]
    is_class = classes < len(colours)
    tint = np.asarray(colours, np.float32)[np.where(is_class, classes, 0)]
    mixed = np.where(is_class[..., None], (1 - opacity) * picture + opacity * tint, picture)
    before = labels[max(rows.start - 1, 0) : rows.stop]  # with the row above, where there is one
    edge = before[1:] != before[:-1]
    mixed[len(classes) - len(edge) :][edge] = 255
    mixed[:, 1:][classes[:, 1:] != classes[:, :-1]] = 255
    return Image.fromarray(mixed.round().astype(np.uint8))


def room_with_legend(
    height: int, picture_width: int, entries: Sequence[tuple[str, Colour]], star: bool, size: int | None = None
) -> tuple[Image.Image, int]:
    """Room for a picture with a strip below that says what the colours mean, and where the picture begins.

    Args:
        height: of the picture.
        picture_width: its width; the strip may be wider.
        entries: names with their colours.
        star: whether to explain the star of unseen names.
        size: of the letters in pixels; by the width if None.
    """
    size = size or max(12, min(28, picture_width // 28))
    font, pad = ImageFont.load_default(size), size // 2
    note = [("* never labelled in training", None)] if star else []
    positions: list[tuple[int, int, str, Colour | None]] = []
    x, y = pad, height + pad
    widths = [round(font.getlength(name)) + 3 * size for name, _ in [*entries, *note]]
    canvas_width = max(picture_width, max(widths, default=0) + 2 * pad)
    for (name, colour), width in zip([*entries, *note], widths, strict=True):
        if x + width > canvas_width and x > pad:
            x, y = pad, y + round(1.6 * size)
        positions.append((x, y, name, colour))
        x += width
    canvas = Image.new("RGB", (canvas_width, y + 2 * size), "white")
    draw = ImageDraw.Draw(canvas)
    for left, top, name, colour in positions:
        if colour is not None:
            draw.rounded_rectangle((left, top, left + size, top + size), size // 5, fill=colour, outline=(40, 40, 40))
        indent = round(1.4 * size) if colour else 0
        draw.text((left + indent, top - size // 10), name, fill=(20, 20, 20), font=font)
    return canvas, (canvas_width - picture_width) // 2
