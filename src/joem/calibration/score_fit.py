"""How often decisions are right, fitted on classes that were held out (`decision.Score`)."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from joem import decision, engine, losses
from joem.decision import Decision, Score
from joem.engine import Model, Problem
from joem.errors import JoemError
from joem.vocabulary import VOID, Vocabulary

_PIXELS = 60  # of each picture: neighbours say the same
_STEPS = 30  # of Newton's method, which needs fewer
_RIDGE = 1e-4  # or classes that are told apart without a mistake would have no finite weights


def fit_score(folds: Iterable[tuple[Model, Problem]], chosen: Decision, seed: int = 0) -> Score:
    """The chance that a decision is right, by its distances, from models that never saw what their folds hold out.

    Every picture is asked three questions, since people ask for some names and not for others: all classes, all but
    the background, and a random half of them. A pixel of a class that is not asked for is wrong whatever it takes.

    Args:
        folds: models with the problems they were trained on; their evaluation pictures are looked at.
        chosen: how classes are decided between.
        seed: of the pixels and the questions.
    """
    generator = torch.Generator().manual_seed(seed)
    found = torch.cat([sample for fold in folds for sample in _samples(*fold, chosen, generator)])
    distance, other, new, right = found.unbind(1)
    weights = []
    for kind, is_new in (("trained", False), ("new", True)):
        chosen_pixels = new.bool() == is_new
        if not 0 < right[chosen_pixels].mean() < 1:
            raise JoemError(f"No score can be fitted: pixels of {kind} classes are all right, all wrong or missing.")
        columns = torch.stack([torch.ones_like(distance), distance, other - distance], 1)[chosen_pixels]
        weights.append(logistic(columns, right[chosen_pixels]))
    (trained, of_new) = ((float(a), float(b), float(c)) for a, b, c in weights)
    return Score(trained, of_new)


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


def _samples(model: Model, problem: Problem, chosen: Decision, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows of (d, d', is new, is right), one for every pixel drawn and every question."""
    vocabulary = problem.vocabulary
    prototypes = model.prototypes(vocabulary.names).cpu()
    is_unseen = torch.zeros(len(vocabulary), dtype=torch.bool)
    is_unseen[list(vocabulary.unseen_indices)] = True
    for _, features, truth in engine.encoded(model, problem.val):
        labels = losses.resized(truth[None], features.shape[-2:]).flatten()
        labelled = (labels != VOID).nonzero().flatten()
        if not len(labelled):
            continue
        drawn = labelled[torch.randint(len(labelled), (_PIXELS,), generator=generator)]
        pixels = features.cpu().flatten(2)[:, :, drawn].unsqueeze(2)  # a picture of one row
        distances = decision.distances(pixels, prototypes)[0, :, 0]
        for asked in _questions(vocabulary, generator):
            ranking = decision.rank(pixels, prototypes[asked], is_unseen[asked])
            taken = asked.nonzero().flatten()[chosen.decide(ranking)[0, 0]]
            rivals = distances.masked_fill(~(asked | ~is_unseen)[:, None], torch.inf)
            rivals.scatter_(0, taken[None], torch.inf)
            own = distances.gather(0, taken[None])[0]
            right = taken == labels[drawn]
            yield torch.stack([own, rivals.amin(0), is_unseen[taken].float(), right.float()], 1)


def _questions(vocabulary: Vocabulary, generator: torch.Generator) -> Iterator[Tensor]:
    """Which classes are asked for, K booleans each."""
    everything = torch.ones(len(vocabulary), dtype=torch.bool)
    yield everything
    half = torch.rand(len(vocabulary), generator=generator) < 0.5
    unseen = vocabulary.unseen_indices
    half[unseen[int(torch.randint(len(unseen), (1,), generator=generator))]] = True  # or there may be nothing new
    if vocabulary.background is not None:
        half[vocabulary.index(vocabulary.background)] = True
        objects = everything.clone()
        objects[vocabulary.index(vocabulary.background)] = False
        yield objects
    yield half
