"""How often decisions are right, fitted on classes that were held out (`decision.Score`)."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from joem import decision, engine, losses
from joem.decision import Decision, Ranking, Score
from joem.engine import Model, Problem
from joem.vocabulary import VOID, Vocabulary, class_mask

_PICTURES, _PIXELS = 500, 10  # neighbouring pixels say the same, so few of each picture
_STEPS = 30  # of Newton's method, which needs fewer
_RIDGE = 1e-4  # or what is told apart without a mistake would have no finite weights

Row = list[float]
"""A pixel that was asked for some classes: its distances to the nearest seen class, the second and the nearest unseen
one; then for the nearest seen class and for the nearest unseen one the distance to the nearest other class, and whether
it is right."""


def ask_pixels(model: Model, problem: Problem, seed: int = 0) -> list[Row]:
    """Pixels of the evaluation pictures of a fold, from which any decision can be judged.

    Every picture is asked three questions, since people ask for some names and not for others: all classes, all but
    the background, and a random half of them. A pixel of a class that is not asked for is wrong whatever it takes. The
    nearest other class is sought among those that are asked for and the trained ones.

    Args:
        model: what never saw the classes that are unseen in the problem.
        problem: the fold; some of its evaluation pictures are looked at.
        seed: of the pictures, pixels and questions.
    """
    generator = torch.Generator().manual_seed(seed)
    vocabulary = problem.vocabulary
    prototypes = model.prototypes(vocabulary.names).cpu()
    unseen = class_mask(vocabulary.unseen_indices, len(vocabulary))
    indices = sorted(torch.randperm(len(problem.val), generator=generator)[:_PICTURES].tolist())
    rows: list[Row] = []
    for _, features, truth in engine.encoded(model, problem.val, indices):
        labels = losses.resized(truth[None], features.shape[-2:]).flatten()
        labelled = (labels != VOID).nonzero().flatten()
        if len(labelled):
            drawn = labelled[torch.randint(len(labelled), (_PIXELS,), generator=generator)]
            pixels = features.cpu().flatten(2)[:, :, drawn].unsqueeze(2)  # a picture of one row
            distances = decision.distances(pixels, prototypes)[0, :, 0].T
            for asked in _questions(vocabulary, generator):
                rows += _judged(distances, asked, unseen, labels[drawn]).tolist()
    return [[round(number, 6) for number in row] for row in rows]


def fit_score(rows: Sequence[Row], chosen: Decision) -> Score | None:
    """The chance that a decision is right, by its distances; None where the pixels do not tell.

    >>> row = [1.0, 2.0, 1.5, 1.5, 1.0, 1.0, 0.0]
    >>> fit_score([row], Decision())
    """
    seen, second, unseen, *judged = torch.tensor(rows, dtype=torch.float64).view(-1, 7).unbind(1)
    labels = torch.zeros(len(seen), dtype=torch.int64)
    takes_unseen = chosen.decide(Ranking(labels, seen, second, labels + 1, unseen)) == 1
    distance = torch.where(takes_unseen, unseen, seen)
    other, right = (torch.where(takes_unseen, judged[at + 1], judged[at]) for at in (0, 2))
    weights: dict[str, Any] = {}
    for kind, pixels in (("trained", ~takes_unseen), ("new", takes_unseen)):
        pixels = pixels & distance.isfinite() & other.isfinite()  # noqa: PLW2901
        if not pixels.any() or not 0 < right[pixels].mean() < 1:
            return None
        columns = torch.stack([torch.ones_like(distance), distance, other - distance], 1)
        weights[kind] = tuple(round(each, 4) for each in logistic(columns[pixels], right[pixels]).tolist())
    return Score(**weights)


def logistic(columns: Tensor, right: Tensor) -> Tensor:
    """The weights w (D,) of the chance 1 / (1 + exp(-x . w)) that best explain what was right, by Newton's method.

    Args:
        columns: x, (N,D).
        right: (N,), 1 or 0.
    """
    x, y = columns.double(), right.double()
    weights = x.new_zeros(x.shape[1])
    ridge = _RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    for _ in range(_STEPS):
        chance = torch.sigmoid(x @ weights)
        curvature = (x * (chance * (1 - chance))[:, None]).T @ x + ridge
        weights = weights + torch.linalg.solve(curvature, x.T @ (y - chance) - _RIDGE * weights)
    return weights


def _judged(distances: Tensor, asked: Tensor, unseen: Tensor, truth: Tensor) -> Tensor:
    """Rows (P,7) of pixels with these distances (P,K) that are asked for some classes."""
    nearest = [distances.masked_fill(~(asked & side), torch.inf).sort(1) for side in (~unseen, unseen)]
    (of_seen, seen), (of_unseen, new) = nearest
    columns = [of_seen[:, 0], of_seen[:, 1], of_unseen[:, 0]]
    labels = [seen[:, 0], new[:, 0]]
    rivals = distances.masked_fill(~(asked | ~unseen), torch.inf)
    columns += [rivals.scatter(1, label[:, None], torch.inf).amin(1) for label in labels]
    columns += [(label == truth).to(distances.dtype) for label in labels]
    return torch.stack(columns, 1)


def _questions(vocabulary: Vocabulary, generator: torch.Generator) -> Iterator[Tensor]:
    """Which classes are asked for, K booleans each."""
    everything = torch.ones(len(vocabulary), dtype=torch.bool)
    yield everything
    half = torch.rand(len(vocabulary), generator=generator) < 0.5
    unseen = vocabulary.unseen_indices
    half[unseen[int(torch.randint(len(unseen), (1,), generator=generator))]] = True  # or there may be nothing new
    if vocabulary.background is not None:
        background = vocabulary.index(vocabulary.background)
        half[background] = True
        objects = everything.clone()
        objects[background] = False
        yield objects
    yield half
