"""Seen bias made visible and corrected: one-pass sweeps, and parameters chosen by holding out seen classes."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joem import data, decision, scores
from joem.decision import Ranking
from joem.engine import Model, Problem, rank_dataset, train
from joem.errors import BadUsage
from joem.recipe import Recipe
from joem.scores import Scores
from joem.vocabulary import VOID, Vocabulary

SIGMAS = tuple(round(1.0 - 0.02 * step, 2) for step in range(50))
"""The default grid of sigma, from nearest neighbour (1) down."""

_FOLD_PICTURES = 300  # enough to choose a parameter by
_TOLERANCE = 1.0

_PARAMETER = {"cs": "gamma", "ac": "sigma", "ratio": "sigma"}


@dataclass(frozen=True)
class Curve:
    """What one rule reaches at every value of its parameter.

    Attributes:
        rule: cs, ac or ratio.
        values: gamma or sigma, from nearest neighbour to the strongest correction.
        scores: the scores at every value.
        confusions: (G,K,K) counts, indexed [value, truth, predicted].
    """

    rule: str
    values: tuple[float, ...]
    scores: tuple[Scores, ...]
    confusions: Tensor

    @property
    def parameter(self) -> str:
        """The name of what varies, gamma or sigma."""
        return _PARAMETER[self.rule]

    @property
    def best(self) -> int:
        """The place of the best hIoU; of several, the one nearest to no correction."""
        return max(range(len(self.values)), key=lambda place: (self.scores[place].hiou, -place))

    @property
    def area(self) -> float:
        """Area under the seen-unseen curve, in percent."""
        return scores.trade_off_area(
            [point.miou_seen for point in self.scores], [point.miou_unseen for point in self.scores]
        )

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        points = [
            {self.parameter: value, "miou_seen": s.miou_seen, "miou_unseen": s.miou_unseen, "hiou": s.hiou}
            for value, s in zip(self.values, self.scores, strict=True)
        ]
        return {"rule": self.rule, "area": self.area, "points": points}


class Sweep:
    """Exact confusion matrices of a rule for every value of its parameter, from one pass over the pixels.

    A pixel's nearest seen and nearest unseen class are fixed; along the grid it changes sides once. So counting
    pixels by (where they change, truth, seen label) and (where they change, truth, unseen label) is enough.

    Args:
        rule: cs, ac or ratio.
        values: the grid, from nearest neighbour to the strongest correction: gamma rises, sigma falls.
        count: the number of classes K.
    """

    def __init__(self, rule: str, values: Sequence[float], count: int) -> None:
        rising = [value if _PARAMETER[rule] == "gamma" else -value for value in values]
        if not rising or sorted(set(rising)) != rising:
            order = "rise" if _PARAMETER[rule] == "gamma" else "fall"
            raise BadUsage(f"The grid of {_PARAMETER[rule]} must {order} from value to value, got {list(values)}.")
        self.rule, self.values, self.count = rule, tuple(values), count
        self._seen, self._unseen = (torch.zeros(len(values) + 1, count, count, dtype=torch.int64) for _ in range(2))

    def update(self, ranking: Ranking, truth: Tensor) -> None:
        """Count the pixels of ranked pictures, truth (B,Ho,Wo)."""
        labelled = truth != VOID
        ranking = Ranking(*(field[labelled] for field in ranking))
        truth = truth[labelled]
        stays = torch.zeros_like(truth)  # for how many values the seen class wins
        for value in self.values:
            stays += decision.decide(ranking, self.rule, gamma=value, sigma=value) == ranking.seen
        for table, labels, fits in (
            (self._seen, ranking.seen, stays > 0),
            (self._unseen, ranking.unseen, stays < len(self.values)),
        ):
            cells = ((stays * self.count + truth) * self.count + labels)[fits]
            table.view(-1).add_(torch.bincount(cells, minlength=table.numel()))

    def confusions(self) -> Tensor:
        """The confusion matrix at every value, (G,K,K)."""
        later = self._seen.flip(0).cumsum(0).flip(0)  # pixels that stay with their seen class beyond each value
        return later[1:] + self._unseen.cumsum(0)[:-1]

    def curve(self, unseen: Iterable[int], ignored: Iterable[int] = ()) -> Curve:
        """The scores at every value."""
        confusions = self.confusions()
        results = tuple(scores.scores(matrix, list(unseen), list(ignored)) for matrix in confusions)
        return Curve(self.rule, self.values, results, confusions)


def sweep(
    model: Model,
    problem: Problem,
    rules: Sequence[str] = ("cs", "ac"),
    gammas: Sequence[float] | None = None,
    sigmas: Sequence[float] = SIGMAS,
    progress: bool = True,
    ranked: Iterable[tuple[Ranking, Tensor]] | None = None,
) -> dict[str, Curve]:
    """Sweep several rules on the evaluation pictures of a problem in one pass.

    `ranked` is what `rank_dataset` gave, if the pass has been made already.
    """
    gammas = gamma_grid(model) if gammas is None else gammas
    sweeps = [Sweep(rule, gammas if _PARAMETER[rule] == "gamma" else sigmas, len(problem.vocabulary)) for rule in rules]
    for ranking, truth in ranked or rank_dataset(model, problem, problem.val, progress):
        for one in sweeps:
            one.update(ranking, truth)
    return {one.rule: one.curve(problem.vocabulary.unseen_indices, problem.ignored) for one in sweeps}


def gamma_grid(model: Model, steps: int = 48) -> tuple[float, ...]:
    """Values of gamma from 0 to where every pixel is unseen, finer near 0.

    By the triangle inequality d_seen - d_unseen is at most the distance between the two prototypes, so the largest
    distance between prototypes ends the grid.
    """
    prototypes = model.prototypes()
    largest = float(torch.cdist(prototypes, prototypes).max())
    return tuple(largest * (step / steps) ** 2 for step in range(steps + 1))


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
