"""Pictures tinted by class, with names, legends and sheets of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from joem.vocabulary import Vocabulary

Colour = tuple[int, int, int]


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
    picture = pixels.permute(1, 2, 0).numpy().astype(np.float32)
    truth = labels.numpy()
    tint = np.zeros((256 if len(colours) <= 256 else truth.max() + 1, 3), np.float32)
    tint[: len(colours)] = colours
    known = (truth < len(colours))[..., None]
    mixed = np.where(known, (1 - opacity) * picture + opacity * tint[np.minimum(truth, len(tint) - 1)], picture)
    mixed[_outlines(truth)] = 255
    image = Image.fromarray(mixed.round().astype(np.uint8))
    if not legend:
        return image
    present = [label for label in np.unique(truth).tolist() if label < len(names)]
    entries = [(names[label] + (" *" if names[label] in unseen else ""), colours[label]) for label in present]
    return _with_legend(image, entries, starred=any(name.endswith(" *") for name, _ in entries))


def named(
    pixels: Tensor, labels: Tensor, vocabulary: Vocabulary, side: int = 256, smallest: float = 0.008
) -> Image.Image:
    """A small picture enlarged and tinted, with the name of every class written where it lies.

    Unseen names carry a star. Classes that cover less than the share `smallest` stay unnamed.
    """
    tinted = overlay(pixels, labels, vocabulary.names, vocabulary.colours, opacity=0.55, legend=False)
    image = tinted.resize((side, side * tinted.height // tinted.width), Image.Resampling.NEAREST)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(max(11, side // 20))
    scale = image.width / tinted.width
    for label in torch.unique(labels).tolist():
        place = (labels == label).nonzero().float()
        if label >= len(vocabulary) or vocabulary.names[label] == vocabulary.background:
            continue
        if len(place) < smallest * labels.numel():
            continue
        row, column = (scale * (place.median(dim=0).values + 0.5)).tolist()
        name = vocabulary.names[label] + ("*" if vocabulary.names[label] in vocabulary.unseen else "")
        half = font.getlength(name) / 2
        column = min(max(column, half + 3), image.width - half - 3)
        draw.text((column, row), name, fill="white", font=font, anchor="mm", stroke_width=2, stroke_fill="black")
    return image


def _outlines(labels: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    edge = np.zeros(labels.shape, bool)
    edge[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    edge[1:] |= labels[1:] != labels[:-1]
    return edge


def _with_legend(image: Image.Image, entries: Sequence[tuple[str, Colour]], starred: bool) -> Image.Image:
    """The picture with a strip below that says what the colours mean."""
    size = max(12, min(28, image.width // 28))
    font, pad = ImageFont.load_default(size), size // 2
    note = [("* never labelled in training", None)] if starred else []
    places: list[tuple[int, int, str, Colour | None]] = []
    x, y = pad, pad
    widths = [round(font.getlength(name)) + 3 * size for name, _ in [*entries, *note]]
    canvas_width = max(image.width, max(widths, default=0) + 2 * pad)
    for (name, colour), width in zip([*entries, *note], widths, strict=True):
        if x + width > canvas_width and x > pad:
            x, y = pad, y + round(1.6 * size)
        places.append((x, y, name, colour))
        x += width
    canvas = Image.new("RGB", (canvas_width, image.height + y + 2 * size), "white")
    canvas.paste(image, ((canvas_width - image.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    for left, top, name, colour in places:
        top += image.height  # noqa: PLW2901
        if colour is not None:
            draw.rounded_rectangle((left, top, left + size, top + size), size // 5, fill=colour, outline=(40, 40, 40))
        draw.text(
            (left + (round(1.4 * size) if colour else 0), top - size // 10),
            name,
            fill=(20, 20, 20),
            font=font,
        )
    return canvas


def contact_sheet(rows: Sequence[Sequence[Image.Image]], titles: Sequence[str], cell: int = 256) -> Image.Image:
    """Pictures in rows and columns under column titles, each as large as fits a square of `cell` pixels."""
    gap, head = 8, 30
    scaled = [[ImageOps.contain(image.convert("RGB"), (cell, cell)) for image in images] for images in rows]
    heights = [max(image.height for image in images) + gap for images in scaled]
    sheet = Image.new("RGB", (len(titles) * (cell + gap) + gap, head + sum(heights)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for column, title in enumerate(titles):
        draw.text((gap + column * (cell + gap), 6), title, fill=(20, 20, 20), font=font)
    for row, images in enumerate(scaled):
        for column, image in enumerate(images):
            sheet.paste(image, (gap + column * (cell + gap), head + sum(heights[:row])))
    return sheet
