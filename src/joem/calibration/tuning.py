"""Parameters chosen by training with some seen classes held out as if unseen; unseen classes stay out of it."""

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from joem import data, methods
from joem.calibration.curves import PARAMETER, Curve, sweep
from joem.engine import Problem, layout, train
from joem.engine.files import write_json, write_text
from joem.errors import BadUsage, JoemError
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary

LAMBDAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""The paper's grid of lambda, the weight of the semantic consistency loss."""

_FOLD_PICTURES = 500  # enough to choose a parameter by
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

    @property
    def rule(self) -> str:
        """Of nn, cs and ac the one with the highest mean hIoU on the folds, at the value chosen for it.

        Where the chosen sigma and gamma correct nothing, that is nn.
        """
        return _best_rule([{rule: curve.to_dict() for rule, curve in curves.items()} for _, curves in self.folds])

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        folds = [
            {"held_out": list(names), "curves": {rule: curve.to_dict() for rule, curve in curves.items()}}
            for names, curves in self.folds
        ]
        return {"sigma": self.sigma, "gamma": self.gamma, "rule": self.rule, "folds": folds}


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
    parts = _used_folds(problem, folds, used, recipe.train.seed)
    results = tuple((fold.vocabulary.unseen, _try_fold(recipe, problem, fold, progress)) for fold in parts)
    best = {rule: _least_correction([curves[rule].to_dict() for _, curves in results])[0] for rule in ("ac", "cs")}
    return Choice(sigma=best["ac"], gamma=best["cs"], folds=results)


def _try_fold(recipe: Recipe, problem: Problem, fold: Problem, progress: bool) -> dict[str, Curve]:
    """Train on what a fold leaves seen and sweep every rule on what it holds out.

    The classes that are unseen in the whole problem stay unheard of in its folds: with `names: strict` no name of
    theirs teaches there, nor one of a class held out.
    """
    if not len(data.showing(fold.val, fold.vocabulary.unseen)):
        raise JoemError(
            f"None of the {len(fold.val)} pictures kept for scoring shows {', '.join(fold.vocabulary.unseen)}: there "
            "are too few pictures to choose by. Take more of them, or cut the seen classes into fewer --folds."
        )
    whole, part = (len(data.seen_only(one.train, one.vocabulary, one.rule)) for one in (problem, fold))
    settings = deepcopy(recipe)  # fewer pictures, but as many steps as the whole training takes
    settings.train.epochs = max(1, round(recipe.train.epochs * whole / part))
    settings.method.names_without = [*recipe.method.names_without, *problem.vocabulary.unseen]
    model = train(settings, problem=fold, progress=progress)
    return sweep(model, fold, rules=tuple(PARAMETER), progress=progress)


@dataclass(frozen=True)
class Tuning:
    """What `tune` chose and what it saw.

    Attributes:
        recipe: the recipe with the chosen lambda, sigma and gamma.
        table: for every lambda, what its folds say: the chosen values and the mean hIoU they reach.
        trials: every training: its lambda, the held-out classes and the curves on them.
    """

    recipe: Recipe
    table: list[dict[str, Any]]
    trials: list[dict[str, Any]]

    @property
    def has_lambda(self) -> bool:
        """Whether the method has a lambda at all."""
        return methods.get(self.recipe.method.name).has_lambda

    @property
    def reason(self) -> str:
        """Why these values, in words."""
        rule, chosen = self.recipe.decision.rule, self.recipe.method.sc_weight
        best = next(row for row in self.table if row["lambda"] == chosen)
        # Where one was tried, lambda was not chosen; most methods have none.
        of_lambda = f"lambda {chosen:g} has the highest. " if len(self.table) > 1 else ""
        return (
            f"The hIoU with {rule} on held-out seen classes is {best['hiou']:.1f}, the mean over {best['folds']} "
            f"folds. {of_lambda}sigma and gamma are the least correction within {_TOLERANCE:g} point of its best. No "
            "mask of an unseen class and no evaluation picture took part."
        )

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        decision = self.recipe.decision
        rows = {"table": self.table, "trials": self.trials}
        if not self.has_lambda:
            rows = {
                key: [{name: value for name, value in row.items() if name != "lambda"} for row in values]
                for key, values in rows.items()
            }
        return {
            **({"lambda": self.recipe.method.sc_weight} if self.has_lambda else {}),
            "sigma": decision.sigma,
            "gamma": decision.gamma,
            "rule": decision.rule,
            "reason": self.reason,
            **rows,
        }


def tune(
    recipe: Recipe,
    problem: Problem,
    out: Path,
    lambdas: Sequence[float] | None = None,
    folds: int | None = None,
    used: int | None = None,
    storage: str | None = None,
    progress: bool = True,
) -> Tuning:
    """Choose lambda by training and sigma and gamma by sweeping, on seen classes held out as if unseen.

    Every pair of a lambda and a fold is one trial of an Optuna study. Trials that are done are kept in the storage:
    the same call goes on where it stopped, and any number of processes or machines that make the same call share the
    work. The call returns when all trials are done; it writes recipe.yaml and tuned.json into `out`.

    Args:
        recipe: what to train; its rule is the one that lambda is chosen for.
        problem: the whole problem.
        out: folder for the results and, without `storage`, the journal of the trials.
        lambdas: the values of lambda to try; if None, `LAMBDAS` for joem and the recipe's own for other methods.
        folds: see `cross_validate`.
        used: how many of the folds to train, all if None.
        storage: the address of a database that Optuna can use.
        progress: show progress of the trainings.
    """
    if lambdas and not methods.get(recipe.method.name).has_lambda:
        raise BadUsage(f"{recipe.method.name} has no lambda to choose: leave --lambdas out.")
    lambdas = lambdas or (LAMBDAS if recipe.method.name == "joem" else (recipe.method.sc_weight,))
    if math.prod(layout(recipe.train)) > 1:
        raise BadUsage(
            "Processes that train together cannot choose trials apart: tune with --train.devices 1 and without "
            "torchrun, and start the same command several times to share the trials."
        )
    parts = _used_folds(problem, folds, used, recipe.train.seed)
    pairs = [(float(value), fold) for value in lambdas for fold in range(len(parts))]
    study = _study(recipe, pairs, out, storage)

    def attempt(trial: Any) -> float:
        if tuple(trial.user_attrs["pair"]) in _trials(study, "COMPLETE"):
            raise _optuna().TrialPruned  # another process has finished it since it was queued
        settings, fold = deepcopy(recipe), parts[trial.suggest_int("fold", 0, len(parts) - 1)]
        settings.method.sc_weight = trial.suggest_float("lambda", min(lambdas), max(lambdas))
        curves = _try_fold(settings, problem, fold, progress)
        trial.set_user_attr("held_out", list(fold.vocabulary.unseen))
        trial.set_user_attr("curves", {rule: curve.to_dict() for rule, curve in curves.items()})
        return max(found.hiou for found in curves[_swept(recipe)].scores)

    while rest := [pair for pair in pairs if pair not in _trials(study, "COMPLETE")]:
        waiting, running = _trials(study, "WAITING"), _trials(study, "RUNNING")
        missing = [pair for pair in rest if pair not in waiting and pair not in running]
        # Where others work on all that is left, do the first as well: they may have been stopped.
        for value, fold in missing if missing or waiting.keys() & rest else rest[:1]:
            study.enqueue_trial({"lambda": value, "fold": fold}, user_attrs={"pair": (value, fold)})
        study.optimize(attempt, n_trials=1)
    done = _trials(study, "COMPLETE")
    result = _conclude(recipe, [{"lambda": pair[0], **done[pair]} for pair in pairs])
    heading = "# Chosen by joem tune on held-out seen classes; tuned.json beside this file says why.\n"
    write_text(out / "recipe.yaml", heading + yaml.safe_dump(result.recipe.to_dict(), sort_keys=False))
    write_json(out / "tuned.json", result.to_dict())
    return result


def _study(recipe: Recipe, pairs: list[tuple[float, int]], out: Path, storage: str | None) -> Any:
    """The study of this recipe: a new one, or the one that an earlier or another process began."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what fails is raised, and told once
    out.mkdir(parents=True, exist_ok=True)
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / "trials.log")))
    study = optuna.create_study(
        study_name=f"joem-{out.name}", storage=storage or journal, direction="maximize", load_if_exists=True
    )
    wanted = json.dumps({"recipe": recipe.to_dict(), "pairs": pairs}, sort_keys=True)
    if study.user_attrs.get("wanted", wanted) != wanted:
        raise BadUsage(f"{storage or out} already holds the trials of another recipe or grid: choose another --out.")
    study.set_user_attr("wanted", wanted)
    return study


def _trials(study: Any, state: str) -> dict[tuple[float, int], dict[str, Any]]:
    """What is known of the pairs of lambda and fold whose trials are in a state."""
    trials = study.get_trials(states=[getattr(_optuna().trial.TrialState, state)])
    attributes = [dict(trial.user_attrs) for trial in trials]
    return {(pair[0], pair[1]): known for known in attributes for pair in [known.pop("pair")]}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise JoemError('joem tune needs Optuna: run pip install "joem[tune]".') from None
    return optuna


def _conclude(recipe: Recipe, trials: list[dict[str, Any]]) -> Tuning:
    """The lambda with the best mean hIoU, and its sigma and gamma."""
    table = []
    for value in dict.fromkeys(trial["lambda"] for trial in trials):
        curves = [trial["curves"] for trial in trials if trial["lambda"] == value]
        rule = _swept(recipe)
        own, hiou = _least_correction([one[rule] for one in curves])
        sigma = own if PARAMETER[rule] == "sigma" else _least_correction([one["ac"] for one in curves])[0]
        gamma = own if PARAMETER[rule] == "gamma" else _least_correction([one["cs"] for one in curves])[0]
        table.append({"lambda": value, "sigma": sigma, "gamma": gamma, "hiou": hiou, "folds": len(curves)})
    best = max(table, key=lambda row: row["hiou"])
    tuned = deepcopy(recipe)
    tuned.method.sc_weight = best["lambda"]
    tuned.decision = replace(tuned.decision, sigma=best["sigma"], gamma=best["gamma"])
    return Tuning(tuned, table, trials)


def _swept(recipe: Recipe) -> str:
    """The rule whose scores count: the recipe's own, or AC where that has no parameter."""
    return recipe.decision.rule if recipe.decision.rule in PARAMETER else "ac"


def _best_rule(folds: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    """The best of nn, cs and ac, given the curves of every fold by rule; of equal ones the first."""
    hious = {rule: _least_correction([curves[rule] for curves in folds])[1] for rule in ("cs", "ac")}
    plain = float(np.mean([curves["cs"]["points"][0]["hiou"] for curves in folds]))  # gamma 0
    return max({"nn": plain, **hious}.items(), key=lambda found: found[1])[0]


def fold_problems(problem: Problem, folds: int | None, seed: int) -> list[Problem]:
    """Training pictures without the unseen classes, with a part of the seen classes held out in turn.

    Some of the pictures are kept for scoring, the same in every fold. `folds` is the number of parts; None holds out
    the same share of the classes as is unseen.
    """
    vocabulary = problem.vocabulary
    folds = folds or _proportional_folds(vocabulary)
    names = [name for name in vocabulary.seen if name != vocabulary.background]
    if not 2 <= folds <= len(names):
        raise BadUsage(f"{len(names)} seen classes can be cut into 2 to {len(names)} folds, got {folds}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(names), generator=generator).tolist()
    pictures = data.restrict(problem.train, vocabulary.seen)
    # Pictures to score on come as they are, with and without held-out classes: the more pictures show what is unseen,
    # the more correction seems good.
    shuffled = torch.randperm(len(pictures), generator=generator).tolist()
    count = min(_FOLD_PICTURES, len(pictures) // 4)
    train, val = (data.View(pictures, sorted(places)) for places in (shuffled[count:], shuffled[:count]))
    result = []
    for fold in range(folds):
        held_out = tuple(names[place] for place in sorted(order[fold::folds]))
        roles = Vocabulary(vocabulary.seen, held_out, vocabulary.background)
        result.append(Problem(roles, problem.rule, train, val))
    return result


def _used_folds(problem: Problem, folds: int | None, used: int | None, seed: int) -> list[Problem]:
    """The first `used` of the folds, all if None."""
    if used is not None and used < 1:
        raise BadUsage(f"At least one fold must be trained, got {used}.")
    return fold_problems(problem, folds, seed)[:used]


def _proportional_folds(vocabulary: Vocabulary) -> int:
    most = len([name for name in vocabulary.seen if name != vocabulary.background])
    return min(most, max(2, round(len(vocabulary) / max(1, len(vocabulary.unseen)))))


def _least_correction(curves: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The value nearest to no correction whose hIoU, averaged over the folds, is within a point of the best.

    Folds have fewer seen classes than the whole training and so more bias; differences below a point are noise.

    Args:
        curves: of one rule, one per fold, as `Curve.to_dict` gives them. Where their grids differ, as those of gamma
            do, they are read between their points.

    Returns:
        the value and the mean hIoU there.
    """
    parameter = PARAMETER[curves[0]["rule"]]
    sign = 1 if parameter == "gamma" else -1  # np.interp wants rising values
    lines = [
        np.array([(sign * point[parameter], point["hiou"]) for point in curve["points"]], dtype=float)
        for curve in curves
    ]
    grid = lines[0][:, 0]
    means = np.mean([np.interp(grid, line[:, 0], line[:, 1]) for line in lines], axis=0)
    place = int(np.argmax(means >= means.max() - _TOLERANCE))
    return float(sign * grid[place]), float(means[place])
