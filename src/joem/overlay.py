"""A picture tinted by class, with outlines and a legend."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from joem.vocabulary import Colour, starred


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
    picture, classes = pixels.permute(1, 2, 0).numpy().astype(np.float32), labels.numpy()
    is_class = classes < len(colours)
    tint = np.asarray(colours, np.float32)[np.where(is_class, classes, 0)]
    mixed = np.where(is_class[..., None], (1 - opacity) * picture + opacity * tint, picture)
    mixed[_outlines(classes)] = 255
    image = Image.fromarray(mixed.round().astype(np.uint8))
    if not legend:
        return image
    present = [label for label in np.unique(classes).tolist() if label < len(names)]
    is_unseen = [names[label] in unseen for label in present]
    entries = [
        (starred(names[label], star), colours[label]) for label, star in zip(present, is_unseen, strict=True)
    ]
    return _with_legend(image, entries, star=any(is_unseen))


def _outlines(labels: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    edge = np.zeros(labels.shape, bool)
    edge[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    edge[1:] |= labels[1:] != labels[:-1]
    return edge


def _with_legend(image: Image.Image, entries: Sequence[tuple[str, Colour]], star: bool) -> Image.Image:
    """The picture with a strip below that says what the colours mean."""
    size = max(12, min(28, image.width // 28))
    font, pad = ImageFont.load_default(size), size // 2
    note = [("* never labelled in training", None)] if star else []
    positions: list[tuple[int, int, str, Colour | None]] = []
    x, y = pad, image.height + pad
    widths = [round(font.getlength(name)) + 3 * size for name, _ in [*entries, *note]]
    canvas_width = max(image.width, max(widths, default=0) + 2 * pad)
    for (name, colour), width in zip([*entries, *note], widths, strict=True):
        if x + width > canvas_width and x > pad:
            x, y = pad, y + round(1.6 * size)
        positions.append((x, y, name, colour))
        x += width
    canvas = Image.new("RGB", (canvas_width, y + 2 * size), "white")
    canvas.paste(image, ((canvas_width - image.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    for left, top, name, colour in positions:
        if colour is not None:
            draw.rounded_rectangle((left, top, left + size, top + size), size // 5, fill=colour, outline=(40, 40, 40))
        indent = round(1.4 * size) if colour else 0
        draw.text((left + indent, top - size // 10), name, fill=(20, 20, 20), font=font)
    return canvas
