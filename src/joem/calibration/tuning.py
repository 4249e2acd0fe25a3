"""Parameters chosen by training with some seen classes held out as if unseen."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from joem import data
from joem.calibration.curves import Curve, gamma_grid, sweep
from joem.engine import Problem, train
from joem.errors import BadUsage
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary

_FOLD_PICTURES = 300  # enough to choose a parameter by
_TOLERANCE = 1.0


@dataclass(frozen=True)
class Choice:
    """Parameters chosen without the unseen classes, and why.

    Attributes:
        sigma: for ac.
        gamma: for cs.
        folds: for every fold, the held-out seen classes and the curves on them.
    """

    sigma: float
    gamma: float
    folds: tuple[tuple[tuple[str, ...], dict[str, Curve]], ...]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        folds = [
            {"held_out": list(names), "curves": {rule: curve.to_dict() for rule, curve in curves.items()}}
            for names, curves in self.folds
        ]
        return {"sigma": self.sigma, "gamma": self.gamma, "folds": folds}


def cross_validate(
    recipe: Recipe, problem: Problem, folds: int | None = None, used: int | None = None, progress: bool = True
) -> Choice:
    """Choose sigma and gamma by training with some SEEN classes held out as if unseen.

    Neither the unseen classes nor the evaluation pictures are touched: every fold is cut from the training
    pictures that show seen classes only. Of the values whose hIoU, averaged over the folds, is within a point of
    the best, the one with the least correction is chosen.

    Args:
        recipe: what to train in every fold.
        problem: the whole problem.
        folds: into how many parts the seen classes are cut; if None, as many as make the share of held-out classes
            that of the unseen ones. The strength of the correction depends on that share: with few held-out
            classes nearly every strength looks good.
        used: how many of the folds to train, all if None.
        progress: show progress.
    """
    folds = folds or _proportional_folds(problem.vocabulary)
    results: list[tuple[tuple[str, ...], dict[str, Curve]]] = []
    whole = len(data.seen_only(problem.train, problem.vocabulary, problem.rule))
    for fold in fold_problems(problem, folds, recipe.train.seed)[:used]:
        part = len(data.seen_only(fold.train, fold.vocabulary, fold.rule))
        settings = deepcopy(recipe)  # fewer pictures, but as many steps as the whole training takes
        settings.train.epochs = max(1, round(recipe.train.epochs * whole / part))
        model = train(settings, problem=fold, progress=progress)
        # The grids of all folds must be the same; the first fold's model sets it.
        gammas = results[0][1]["cs"].values if results else gamma_grid(model)
        results.append((fold.vocabulary.unseen, sweep(model, fold, gammas=gammas, progress=progress)))
    return Choice(
        sigma=_least_correction([curves["ac"] for _, curves in results]),
        gamma=_least_correction([curves["cs"] for _, curves in results]),
        folds=tuple(results),
    )


def _proportional_folds(vocabulary: Vocabulary) -> int:
    return max(2, round(len(vocabulary) / max(1, len(vocabulary.unseen))))


def fold_problems(problem: Problem, folds: int, seed: int) -> list[Problem]:
    """The same pictures without the unseen classes, with a part of the seen classes held out in turn."""
    vocabulary = problem.vocabulary
    names = [name for name in vocabulary.seen if name != vocabulary.background]
    if not 2 <= folds <= len(names):
        raise BadUsage(f"{len(names)} seen classes can be cut into 2 to {len(names)} folds, got {folds}.")
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    pictures = data.restrict(problem.train, vocabulary.seen)
    result = []
    for fold in range(folds):
        held_out = tuple(names[place] for place in sorted(order[fold::folds]))
        roles = Vocabulary(vocabulary.seen, held_out, vocabulary.background)
        ignored = tuple(roles.index(vocabulary.names[label]) for label in problem.ignored)
        showing = data.showing(pictures, held_out)
        val = data.View(showing, range(min(len(showing), _FOLD_PICTURES)))
        result.append(Problem(roles, problem.rule, ignored, pictures, val))
    return result


def _least_correction(curves: Sequence[Curve]) -> float:
    """The value nearest to no correction whose hIoU, averaged over the folds, is within a point of the best.

    Folds have fewer seen classes than the whole training and so more bias; differences below a point are noise.
    """
    means = [sum(curve.scores[place].hiou for curve in curves) / len(curves) for place in range(len(curves[0].values))]
    return curves[0].values[next(place for place, mean in enumerate(means) if mean >= max(means) - _TOLERANCE)]
