"""Pictures with the names of what they show written into them, and sheets of pictures."""

from collections.abc import Iterable, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from joem.overlay import overlay
from joem.vocabulary import Vocabulary


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
        positions = (labels == label).nonzero().float()
        if label >= len(vocabulary) or vocabulary.names[label] == vocabulary.background:
            continue
        if len(positions) < smallest * labels.numel():
            continue
        row, column = (scale * (positions.median(dim=0).values + 0.5)).tolist()
        name = vocabulary.names[label] + ("*" if vocabulary.names[label] in vocabulary.unseen else "")
        half = font.getlength(name) / 2
        column = min(max(column, half + 3), image.width - half - 3)
        draw.text((column, row), name, fill="white", font=font, anchor="mm", stroke_width=2, stroke_fill="black")
    return image


def picture_row(pixels: Tensor, labels: Iterable[Tensor], vocabulary: Vocabulary) -> list[Image.Image]:
    """A picture (3,H,W) as it is, then named by each of the labels (H,W)."""
    plain = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    return [plain, *(named(pixels, each, vocabulary) for each in labels)]


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
