"""The same pictures as several models label them, side by side: the form of the supplement's figures 5, 7, 8 and 9."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from joem import data, engine
from joem.decision import Decision, Ranking
from joem.engine import Model, Problem
from joem.overlay import overlay, room_with_legend
from joem.report.sheets import contact_sheet
from joem.vocabulary import VOID

_CELL = 256


class Column(NamedTuple):
    """One column of a grid.

    Attributes:
        title: what is written above it, in one line or more.
        model: what labels the pictures.
        decision: by which rule.
    """

    title: str
    model: Model
    decision: Decision


class _Labels:
    """Keeps the labels (Ho,Wo) that a rule gives every picture, as an evaluator of `engine.run`."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.found: dict[int, Tensor] = {}

    def update(self, index: int, ranking: Ranking, truth: Tensor) -> None:
        """Label a picture; its truth takes no part."""
        self.found[index] = self.decision.decide(ranking)[0].cpu()

    def merge(self, other: "_Labels") -> None:
        """Add other pictures."""
        self.found |= other.found


def labels_of(column: Column, problem: Problem, indices: Sequence[int]) -> list[Tensor]:
    """The labels (Ho,Wo) of some evaluation pictures, those that an evaluation counts."""
    labels = _Labels(column.decision)
    engine.run(column.model, problem, [labels], data.View(problem.val, indices))
    return [labels.found[place] for place in range(len(indices))]


def picture_grid(
    columns: Sequence[Column], problem: Problem, indices: Sequence[int], mask_background: bool = False
) -> Image.Image:
    """A row for every picture: itself with its name, the truth, then every column's labels; below, what colours mean.

    Colours are the vocabulary's, unseen classes have a star. Void stays bare in the truth.

    Args:
        columns: the models.
        problem: the data.
        indices: which of the evaluation pictures.
        mask_background: leave bare, in every column, what the truth takes for background or void, as the SPNet setting
            scores.
    """
    found = [labels_of(column, problem, indices) for column in columns]
    vocabulary, rows, present = problem.vocabulary.without_taught(), [], set()
    for place, index in enumerate(indices):
        sample = problem.val[index]
        shown = [sample.labels, *(each[place] for each in found)]
        if mask_background:
            hidden = sample.labels == VOID
            if vocabulary.background is not None:
                hidden = hidden | (sample.labels == vocabulary.index(vocabulary.background))
            shown = [labels.masked_fill(hidden, VOID) for labels in shown]
        tinted = [
            overlay(sample.image, labels, vocabulary.names, vocabulary.colours, opacity=0.8, legend=False)
            for labels in shown
        ]
        rows.append([_titled(sample.image, sample.name), *tinted])
        present |= {label for labels in shown for label in torch.unique(labels).tolist() if label < len(vocabulary)}
    sheet = contact_sheet(rows, ["picture", "truth", *(column.title for column in columns)], _CELL)
    entries = [(vocabulary.starred[label], vocabulary.colours[label]) for label in sorted(present)]
    star = not present.isdisjoint(vocabulary.unseen_indices)
    canvas, left = room_with_legend(sheet.height, sheet.width, entries, star, size=16)
    canvas.paste(sheet, (left, 0))
    return canvas


def _titled(pixels: Tensor, name: str) -> Image.Image:
    """A picture at the size it is shown at, with its name in it."""
    image = ImageOps.contain(Image.fromarray(pixels.permute(1, 2, 0).numpy()), (_CELL, _CELL))
    draw, font, place = ImageDraw.Draw(image), ImageFont.load_default(12), (5, image.height - 4)
    draw.text(place, name, fill="white", font=font, anchor="lb", stroke_width=2, stroke_fill="black")
    return image
