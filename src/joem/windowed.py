"""What is computed of every pixel, some rows at a time: for all of a large picture at once it takes gigabytes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from joem import decision
from joem.decision import Ranking, Window
from joem.vocabulary import VOID

KEPT = 1 << 24
"""Pixels of the largest picture whose ranking is kept, 28 bytes for each; larger ones are ranked whenever needed."""


@dataclass(frozen=True)
class Part:
    """Some rows of a picture, and what gives their ranking (1,rows,Wo)."""

    window: Window
    rank: Callable[[], Ranking]


def is_kept(size: tuple[int, int]) -> bool:
    """Whether the ranking of a picture of this size (Ho,Wo) is kept."""
    return math.prod(size) <= KEPT


def parts(size: tuple[int, int], rank: Callable[[Window], Ranking]) -> list[Part]:
    """A picture in parts, each ranked when it is asked for its ranking."""
    return [Part(window, partial(rank, window)) for window in decision.windows(size)]


def rows_of(ranking: Ranking, window: Window) -> Ranking:
    """The rows of a window in the ranking of the whole picture."""
    return Ranking(*(each[:, window.rows] for each in ranking))


def labels(each: Sequence[Part], classes: int, find: Callable[[Part], Tensor]) -> Tensor:
    """Labels (Ho,Wo) of so many classes, found part by part, (1,rows,Wo).

    They are int64 if there is one part, else take as few bytes as they need.
    """
    if len(each) == 1:
        return find(each[0])[0].cpu()
    last = each[-1].window
    found = torch.empty(last.height, last.width, dtype=torch.uint8 if classes < VOID else torch.int32)
    for part in each:
        found[part.window.rows] = find(part)[0].cpu()
    return found


def compute(
    each: Sequence[Part], labels: Tensor, work: Callable[[Window, Ranking, Tensor], Tensor]
) -> Iterator[Tensor]:
    """What `work` gives for each part, (rows,Wo), from its window, its ranking and its labels (1,rows,Wo)."""
    for part in each:
        ranking = part.rank()
        yield work(part.window, ranking, labels[None, part.window.rows].long().to(ranking.seen.device))
