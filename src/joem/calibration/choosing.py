"""Lambda, the rule and its parameter chosen by training with some seen classes held out; unseen ones stay out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from joem import data, decision, engine, jobs, methods, parallel
from joem.calibration.folds import TooFewPictures, fold_problems, fold_recipe, train_in
from joem.calibration.score_fit import ask_pixels, fit_score
from joem.calibration.sweep import fold_sweep
from joem.decision import Decision, Rule, parameter_of
from joem.engine import Problem
from joem.errors import BadUsage
from joem.io import write_json, write_text
from joem.jobs import Job
from joem.recipe import Recipe

LAMBDAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""The paper's grid of lambda, the weight of the semantic consistency loss."""

_TOLERANCE = 1.0  # points of hIoU
# With fewer, folds say no more than what was chosen on PASCAL VOC, and sometimes far less: on five folders of sixty
# pictures and nine classes hIoU was 48.1 by folds and 49.3 without, on a sixth 23 and 36 (docs/log).
_LEAST_CLASSES = 10  # seen objects
_LEAST_PICTURES = 200  # to train on
_USUAL_FOLDS = 5  # where no class is unseen, so that no share of them says how many to hold out


@dataclass(frozen=True)
class Choice:
    """What held-out seen classes chose, and what was seen of them.

    Attributes:
        decision: the chosen rule, with the values of all parameters.
        sc_weight: the chosen lambda; None where the method has none.
        table: for every lambda, what its folds say: the values, the best rule and the mean hIoU that it reaches.
        folds: every training: its lambda, the held-out classes and the curves on them.
    """

    decision: Decision
    sc_weight: float | None
    table: list[dict[str, Any]]
    folds: list[dict[str, Any]]

    @property
    def reason(self) -> str:
        """Why these values, in words."""
        best = next(row for row in self.table if row.get("lambda") == self.sc_weight)
        # Where one was tried, lambda was not chosen; most methods have none.
        of_lambda = f"lambda {self.sc_weight:g} has the highest. " if len(self.table) > 1 else ""
        names = " and ".join(self.decision.values)
        return (
            f"The hIoU with {self.decision.rule} on held-out seen classes is {best['hiou']:.1f}, the mean over "
            f"{best['folds']} folds. {of_lambda}{names} are the least correction within {_TOLERANCE:g} point of the "
            "best of their rules. No mask of an unseen class and no evaluation picture took part."
        )

    def recipe(self, base: Recipe) -> Recipe:
        """A recipe with what was chosen."""
        chosen = base if self.sc_weight is None else base.changed(method={"sc_weight": self.sc_weight})
        return replace(chosen, decision=self.decision)

    def write(self, base: Recipe, out: Path) -> None:
        """Write the recipe with what was chosen, and why."""
        heading = "# Chosen by joem tune on held-out seen classes; tuned.json beside this file says why.\n"
        write_text(out / "recipe.yaml", heading + yaml.safe_dump(self.recipe(base).to_dict(), sort_keys=False))
        write_json(out / "tuned.json", self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return {
            **({} if self.sc_weight is None else {"lambda": self.sc_weight}),
            **self.decision.to_dict(),
            "reason": self.reason,
            "table": self.table,
            "folds": self.folds,
        }


@dataclass(frozen=True)
class Folds:
    """Trainings with some seen classes held out as if unseen, by which lambda, the rule and its values are chosen.

    Neither the unseen classes nor the evaluation pictures are touched: every fold is cut from the training pictures
    that show seen classes only. Every pair of a lambda and a fold is a job of `joem.jobs` in a folder of its own: the
    same call goes on where it stopped, and any number of processes or machines that make the same call share the work.

    Args:
        recipe: what to train in every fold.
        problem: the whole problem.
        out: folder of the jobs; None keeps nothing.
        lambdas: the values of lambda to try, the recipe's own if None.
        count: into how many parts the seen classes are cut, see `fold_problems`.
        used: how many of the folds to train, all if None.
    """

    recipe: Recipe
    problem: Problem
    out: Path | None = None
    lambdas: Sequence[float] | None = None
    count: int | None = None
    used: int | None = None

    def jobs(self) -> dict[tuple[float | None, int], Job]:
        """The trainings: (lambda, number of the fold) -> job."""
        if self.lambdas and not methods.get(self.recipe.method.name).has_lambda:
            raise BadUsage(f"{self.recipe.method.name} has no lambda to choose: leave --lambdas out.")
        tried = [self.recipe.changed(method={"sc_weight": value}) for value in self.lambdas or ()] or [self.recipe]
        parts = fold_problems(self.problem, self.count, self.recipe.train.seed, self.used)
        return {
            (_lambda(recipe), number): self._job(recipe, fold, number)
            for recipe in tried
            for number, fold in enumerate(parts)
        }

    def _job(self, recipe: Recipe, fold: Problem, number: int) -> Job:
        held_out, value = list(fold.vocabulary.unseen), _lambda(recipe)
        folder = self.out and fold_folder(self.out, recipe, number)

        def work() -> dict[str, Any]:
            model = train_in(folder, fold_recipe(recipe, self.problem, fold), fold)
            curves = {rule: each.to_dict() for rule, each in fold_sweep(model, fold).items()}
            described = {"held_out": held_out, "curves": curves, "pixels": ask_pixels(model, fold)}
            return described if value is None else {"lambda": value, **described}

        return Job(
            folder and folder / "curves.json",
            {"recipe": recipe.identity(), "held_out": held_out},
            work,
            leftovers=(folder / "checkpoints", folder / "model") if folder else (),
        )

    def choose(self) -> Choice:
        """Do the jobs and choose lambda, the rule and the value of every parameter.

        Of the values whose hIoU, averaged over the folds, is within a point of the best, the one with the least
        correction is chosen.
        """
        engine.launched(self.recipe.train)  # processes that train together also choose together
        return conclude(self.recipe, list(jobs.run_all(self.jobs(), "folds").values()))

    def tune(self) -> Choice:
        """`choose`, of the paper's grid of lambda if none is given; writes recipe.yaml and tuned.json into `out`."""
        if self.lambdas is None and methods.get(self.recipe.method.name).has_lambda:
            return replace(self, lambdas=LAMBDAS).tune()
        found = self.choose()
        if self.out is not None:
            parallel.from_first(partial(found.write, self.recipe, self.out))
        return found


def decide(recipe: Recipe, problem: Problem) -> tuple[Recipe, str]:
    """A recipe with the values of its rule chosen on `train.folds` short trainings, and in words how they were chosen.

    Where there are too few classes or pictures, or a model to start from, which has values of its own, the recipe stays
    as it is.
    """
    settings, vocabulary = recipe.train, problem.vocabulary
    objects = [name for name in vocabulary.seen if name != vocabulary.background]
    if settings.start is not None:
        return recipe, "Rule: that of the model it starts from."
    if not settings.folds:
        return recipe, f"Rule: {recipe.decision}, of the recipe."
    pictures = len(data.restrict(problem.train, vocabulary.seen))
    if len(objects) < _LEAST_CLASSES or pictures < _LEAST_PICTURES:
        return recipe, (
            f"Rule: {recipe.decision}, of the recipe: {len(objects)} seen classes in {pictures} pictures are too few "
            f"to choose it by, {_LEAST_CLASSES} in {_LEAST_PICTURES} are needed."
        )
    count = None if vocabulary.unseen else min(_USUAL_FOLDS, len(objects))
    short = replace(recipe, train=replace(settings, epochs=1, steps=settings.fold_steps, folds=0))
    try:
        found = Folds(short, problem, count=count, used=settings.folds).choose()
    except TooFewPictures as error:
        return recipe, f"Rule: {recipe.decision}, of the recipe. {error}"
    held_out = "; ".join(", ".join(fold["held_out"]) for fold in found.folds)
    hiou = found.table[0]["hiou"]
    return found.recipe(recipe), (
        f"Rule: {found.decision}, chosen on {len(found.folds)} short trainings without {held_out}, where its hIoU is "
        f"{hiou:.1f}."
    )


def fold_folder(out: Path, recipe: Recipe, number: int) -> Path:
    """Where a fold of a recipe is trained, in the folder `out` of `Folds`."""
    value = _lambda(recipe)
    return out / ("" if value is None else f"lambda-{value:g}") / f"fold-{number}"


def _lambda(recipe: Recipe) -> float | None:
    value: float | None = getattr(recipe.method, "sc_weight", None)
    return value if methods.get(recipe.method.name).has_lambda else None


def candidates(own: str | None = None) -> tuple[Rule, ...]:
    """The rules to choose from, and a recipe's own: first those without a parameter, which win where all are equal."""
    taking_part = [rule for rule in decision.RULES.values() if rule.candidate or rule.name == own]
    return tuple(sorted(taking_part, key=lambda rule: rule.parameter is not None))


def conclude(recipe: Recipe, folds: list[dict[str, Any]]) -> Choice:
    """What the results of all `Folds.jobs` say."""
    found: dict[float | None, tuple[Decision, float, int]] = {}
    for value in dict.fromkeys(fold.get("lambda") for fold in folds):
        curves = [fold["curves"] for fold in folds if fold.get("lambda") == value]
        found[value] = (*_decided(curves, recipe.decision.rule), len(curves))
    table = [
        {**({} if value is None else {"lambda": value}), **chosen.to_dict(), "hiou": hiou, "folds": count}
        for value, (chosen, hiou, count) in found.items()
    ]
    best = max(found, key=lambda value: found[value][1])
    pixels = [row for fold in folds if fold.get("lambda") == best for row in fold["pixels"]]
    chosen = replace(found[best][0], score=fit_score(pixels, found[best][0]))
    shown = [{key: value for key, value in fold.items() if key != "pixels"} for fold in folds]
    return Choice(chosen, best, table, shown)


def _decided(folds: Sequence[Mapping[str, Mapping[str, Any]]], own: str) -> tuple[Decision, float]:
    """The decision that the curves of every fold, by rule, speak for, and the mean hIoU that it reaches.

    The rule is the one with the highest mean hIoU at the value chosen for it; where no value corrects anything, it is
    nearest neighbour. A parameter that several rules share has the value of the chosen rule or, if that has no such
    parameter, of the recipe's own, or of the first candidate.
    """
    chosen = {rule: _least_correction([curves[rule] for curves in folds]) for rule in folds[0]}
    neutral = _uncorrected(folds)
    known = [rule for rule in candidates(own) if rule.parameter is None or rule.name in chosen]
    hious = {rule.name: chosen[rule.name][1] if rule.parameter else neutral for rule in known}
    corrects = {rule: value != parameter_of(rule).neutral for rule, (value, _) in chosen.items()}
    best = max((rule for rule in hious if corrects.get(rule, True)), key=lambda rule: hious[rule])
    order = [rule for rule in dict.fromkeys([best, own, *hious, *chosen]) if rule in chosen]
    values = {parameter_of(rule).name: chosen[rule][0] for rule in reversed(order)}
    return Decision(best, values), hious[best]


def hiou_by(rule: str, folds: Sequence[Mapping[str, Mapping[str, Any]]]) -> float:
    """The mean hIoU by a rule, at the value that the curves of every fold, by rule, speak for."""
    return _least_correction([curves[rule] for curves in folds])[1] if rule in folds[0] else _uncorrected(folds)


def _uncorrected(folds: Sequence[Mapping[str, Mapping[str, Any]]]) -> float:
    """The mean hIoU by nearest neighbour, where every curve begins."""
    return float(np.mean([next(iter(curves.values()))["points"][0]["hiou"] for curves in folds]))


def _least_correction(curves: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The value nearest to no correction whose hIoU, averaged over the folds, is within a point of the best.

    Folds have fewer seen classes than the whole training and so more bias; differences below a point are noise.

    Args:
        curves: of one rule, one per fold, as `Curve.to_dict` gives them. Where their grids differ, as those of gamma
            do, they are read between their points.

    Returns:
        the value and the mean hIoU there.
    """
    parameter = parameter_of(curves[0]["rule"])
    sign = 1 if parameter.rises else -1  # np.interp wants rising values
    lines = [
        np.array([(sign * point[parameter.name], point["hiou"]) for point in curve["points"]], dtype=float)
        for curve in curves
    ]
    grid = lines[0][:, 0]
    means = np.mean([np.interp(grid, line[:, 0], line[:, 1]) for line in lines], axis=0)
    index = int(np.argmax(means >= means.max() - _TOLERANCE))
    return float(sign * grid[index]), float(means[index])
