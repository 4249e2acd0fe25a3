"""Pictures with the names of what they show written into them, and sheets of pictures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from joem.data import Sample, class_pixels, class_presence, scenes
from joem.errors import BadUsage
from joem.overlay import overlay
from joem.vocabulary import VOID, Vocabulary

if TYPE_CHECKING:
    from joem.engine import Problem
    from joem.segmenter import Segmenter

_SHARE = 0.05  # of the labelled pixels: what has less can hardly be seen in a small picture
_Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def named(
    pixels: Tensor, labels: Tensor, vocabulary: Vocabulary, side: int = 256, smallest: float = 0.008
) -> Image.Image:
    """A small picture enlarged and tinted, with the name of every class written where it lies.

    Unseen names carry a star. Classes that cover less than the share `smallest` stay unnamed.
    """
    colours = [scenes.tint(name) or own for name, own in zip(vocabulary.names, vocabulary.colours, strict=True)]
    tinted = overlay(pixels, labels, vocabulary.names, colours, opacity=0.55, legend=False)
    image = tinted.resize((side, side * tinted.height // tinted.width), Image.Resampling.NEAREST)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(max(11, side // 20))
    scale = image.width / tinted.width
    taken: list[_Box] = []
    for label in torch.unique(labels).tolist():
        positions = (labels == label).nonzero().float()
        if label >= len(vocabulary) or vocabulary.names[label] == vocabulary.background:
            continue
        if len(positions) < smallest * labels.numel():
            continue
        row, column = (scale * (positions.median(dim=0).values + 0.5)).tolist()
        name = vocabulary.starred[label]
        left, top, right, bottom = draw.textbbox((0, 0), name, font=font, anchor="mm", stroke_width=2)
        column = min(max(column, 3 - left), image.width - right - 3)
        row = free_row(row, (left + column, top, right + column, bottom), taken, image.height)
        taken.append((left + column, top + row, right + column, bottom + row))
        draw.text((column, row), name, fill="white", font=font, anchor="mm", stroke_width=2, stroke_fill="black")
    return image


def free_row(row: float, box: _Box, taken: Sequence[_Box], height: float) -> float:
    """The row nearest to the wished one where a box, given around row 0, overlaps no other; the wished one if none is.

    >>> free_row(10, (0, -5, 20, 5), [(0, 5, 20, 15)], 100)
    20.0
    """
    left, top, right, bottom = box
    for away in range(int(height)):
        for found in (float(row + away), float(row - away)):
            inside = found + top >= 0 and found + bottom <= height
            if inside and not any(
                left < other[2] and other[0] < right and found + top < other[3] and other[1] < found + bottom
                for other in taken
            ):
                return found
    return row


def unseen_first(problem: "Problem") -> list[int]:
    """The evaluation pictures, those that show most unseen classes first."""
    shown = class_presence(problem.val)[:, list(problem.vocabulary.unseen_indices)].sum(dim=1)
    return shown.argsort(descending=True, stable=True).tolist()


def spread_unseen(problem: "Problem", count: int = 6) -> list[int]:
    """Evaluation pictures to compare models on, chosen by their masks alone: neither results nor chance take part.

    A picture is a candidate where an unseen class has at least 5 % of its labelled pixels. The candidates are put in
    the order of that class (the largest, where there are several), those of one class in the order of the dataset, and
    `count` of them are taken at even distances.
    """
    unseen, pixels = list(problem.vocabulary.unseen_indices), class_pixels(problem.val)
    largest, which = pixels[:, unseen].max(dim=1) if unseen else (torch.zeros(len(pixels)),) * 2
    shown = (largest > 0) & (largest >= _SHARE * pixels.sum(dim=1))
    candidates = sorted((int(which[index]), index) for index in shown.nonzero().flatten().tolist())
    if not candidates:
        raise BadUsage(
            "No evaluation picture shows an unseen class on 5 % of its labelled pixels or more, so there is none to "
            "compare on: name the pictures to show."
        )
    taken = min(count, len(candidates))
    return [candidates[(2 * place + 1) * len(candidates) // (2 * taken)][1] for place in range(taken)]


def picture_sheet(
    segmenter: "Segmenter", samples: Iterable[Sample], vocabulary: Vocabulary, columns: Mapping[str, Mapping[str, Any]]
) -> Image.Image:
    """Labelled pictures in rows: the picture, the truth, then what a model finds; void does not count and stays bare.

    Args:
        segmenter: the model.
        samples: the pictures.
        vocabulary: their classes, which names are written in and who has a star.
        columns: title -> options of `Scene.segment`.
    """
    rows = []
    for sample in samples:
        scene, void = segmenter.encode(sample.image), sample.labels == VOID
        found = [scene.segment(**options).labels.masked_fill(void, VOID) for options in columns.values()]
        named_by_each = [named(scene.pixels, labels, vocabulary) for labels in (sample.labels, *found)]
        rows.append([Image.fromarray(scene.pixels.permute(1, 2, 0).numpy()), *named_by_each])
    return contact_sheet(rows, ["picture", "truth", *columns])


def contact_sheet(rows: Sequence[Sequence[Image.Image]], titles: Sequence[str], cell: int = 256) -> Image.Image:
    """Pictures in rows and columns under column titles, each as large as fits a square of `cell` pixels."""
    gap, head = 8, 30 + 20 * max(title.count("\n") for title in titles)
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
