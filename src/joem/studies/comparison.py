"""Training and scoring what a table needs and is not there yet."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from joem import calibration, data, decision, engine, jobs, methods
from joem.calibration import Folds, Pace, Paces, best_pace, score_of_trial
from joem.calibration.folds import has_checkpoint
from joem.decision import Decision
from joem.engine import Model, Problem
from joem.errors import BadUsage, JoemError
from joem.jobs import Job
from joem.recipe import Recipe
from joem.scores import SCORES
from joem.seen_before import seen_before
from joem.studies.rows import Own, Row, Variant, differences, published_on, rows


@dataclass(frozen=True)
class Comparison:
    """What was found: for every row the results of its seeds.

    Attributes:
        table: one of `TABLES`.
        recipe: what all rows share, but for those that have a recipe of their own.
        problem: the data.
        rows: the rows that could be run.
        results: by the name of a row's variant.
        folds: on how many folds the parameters were chosen; 0 where they are the recipe's own.
        failures: what could not be run, and why.
        lambdas: the values of lambda that were tried on the folds; none where it is the recipe's own.
        timed: whether it was measured how long one more class takes.
        trials: what rates and lengths came to on the folds, pace -> mean hIoU by the name of a row's variant, -inf
            where no training came to its end; empty where all have their recipe's own.
    """

    table: str
    recipe: Recipe
    problem: Problem
    rows: tuple[Row, ...]
    results: Mapping[str, tuple[Mapping[str, Any], ...]]
    folds: int
    failures: tuple[str, ...] = ()
    lambdas: tuple[float, ...] = ()
    timed: bool = False
    trials: Mapping[str, Mapping[Pace, float]] = field(default_factory=dict)

    @property
    def published_on(self) -> str | None:
        """The protocol of the published numbers, where there are some."""
        return published_on(self.table, self.recipe)

    def found(self, row: Row, rule: str | None = None) -> list[Mapping[str, Any]]:
        """What a row found by a rule, its own if None, one entry per seed; empty if the rule was not run."""
        rules = [result["rules"].get(rule or row.rule) for result in self.results[row.variant.name]]
        return [found for found in rules if found is not None]

    def summary(self, row: Row, rule: str | None = None) -> dict[str, dict[str, float | None]]:
        """Mean and deviation over the seeds of each of `SCORES`."""
        return {name: summary([found[name] for found in self.found(row, rule)]) for name in SCORES}

    def ausuc(self, row: Row) -> dict[str, float | None]:
        """Mean and deviation over the seeds of the area under the seen-unseen curve, which no choice can flatter."""
        return summary([result.get("ausuc") for result in self.results[row.variant.name]])

    def seen_before(self, row: Row) -> str:
        """What the backbone, words and teachers of a row had met."""
        return seen_before(Recipe.from_dict(self.results[row.variant.name][0]["recipe"]))

    def add_class_seconds(self, row: Row) -> float | None:
        """How long it takes a row's method to take one more class; None where a word is not enough."""
        seconds: float | None = self.results[row.variant.name][0].get("add_class_seconds")
        return seconds

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        rows = [
            {
                "row": row.title,
                "method": row.variant.method,
                "rule": row.rule,
                **self.summary(row),
                "ausuc": self.ausuc(row),
                "published": row.published and dict(zip(SCORES, row.published.three, strict=True)),
                "had_seen_before": self.seen_before(row),
                "add_class_seconds": self.add_class_seconds(row),
                "trials": {
                    str(pace): None if hiou == -math.inf else hiou
                    for pace, hiou in self.trials.get(row.variant.name, {}).items()
                },
                "runs": [dict(result) for result in self.results[row.variant.name]],
            }
            for row in self.rows
        ]
        return {
            "table": self.table,
            "recipe": self.recipe.to_dict(),
            "folds": self.folds,
            "lambdas": list(self.lambdas),
            "published_on": self.published_on,
            "rows": rows,
            "failures": list(self.failures),
        }


def compare(
    recipe: Recipe,
    out: Path,
    table: str = "methods",
    names: Sequence[str] | None = None,
    seeds: int = 3,
    folds: int = 1,
    own: Own | None = None,
    lambdas: Sequence[float] | None = None,
    timing: bool = False,
    paces: Paces | None = None,
) -> Comparison:
    """Train and score what a table needs, and is not in `out` yet.

    Every run and every fold is a job of `joem.jobs`: the same call goes on where it stopped, and any number of
    processes or machines that make the same call share the work.

    Args:
        recipe: the data, the words, the encoders and the training that all methods share.
        out: folder; every run has its own in it, `VARIANT/seed-N`, with its model, training.json and scores;
            `VARIANT/PACE/seed-N` where paces were tried.
        table: one of `TABLES`.
        names: the rows to run, by the names of their variants, which are the methods' in "methods"; all if None.
        seeds: how many runs per row, with the seeds 0, 1, ...
        folds: on how many folds of held-out seen classes the parameters are chosen, once per variant with the first
            seed; 0 takes the recipe's own.
        own: the recipes of rows that have their own, see `load_own`; data, words and encoder must be the same.
        lambdas: values of lambda to try on the folds, for rows whose method has one and that do not fix it; the best is
            trained. The recipe's own if None.
        timing: whether to time how long every system takes to know one more class.
        paces: learning rates and lengths to try on the folds, the same for every row but those that see every mask;
            the best of each row is trained. The recipe's own if None.

    Returns:
        the rows that could be run, and the failures of the others; where nothing could be run, that is raised.
    """
    if seeds < 1:
        raise BadUsage(f"A comparison needs at least one seed, got {seeds}.")
    wanted = rows(table, recipe, names, own)
    if paces is not None and not folds:
        raise BadUsage("Rates and lengths are chosen on folds of held-out seen classes: give folds, or leave them out.")
    tried = tuple(lambdas or ()) if folds else ()
    runs = _Runs(recipe, own or {}, out, seeds, folds, tried, timing, paces)
    runs.problem(False)  # data that cannot be opened are one error, not one for every row
    rules: dict[Variant, set[str]] = {}
    for row in wanted:
        runs.check(row.variant)
        free = table == "names" and calibrates({row.rule})  # no author of another system says by which rule
        rules.setdefault(row.variant, set()).update(
            {rule.name for rule in calibration.candidates()} if free else {row.rule}
        )
    results = runs.results(rules)
    if not results:
        raise JoemError("Nothing could be run:\n  " + "\n  ".join(runs.told))
    found = tuple(row for row in wanted if row.variant.name in results)
    if table == "names":
        found = tuple(
            replace(row, rule=runs.decision(row.variant).rule) if calibrates({row.rule}) else row for row in found
        )
    trials = {variant.name: tried for variant, tried in runs.trials.items()}
    return Comparison(
        table, recipe, runs.problem(False), found, results, folds, tuple(runs.told), tried, timing, trials
    )


@dataclass
class _Runs:
    """The runs of a comparison, as jobs: first all trainings and folds, then the scores of what they gave."""

    base: Recipe
    own: Own
    out: Path
    seeds: int
    folds: int
    lambdas: Sequence[float]
    timing: bool
    paces: Paces | None = None
    trials: dict[Variant, dict[Pace, float]] = field(default_factory=dict)
    failures: dict[tuple[Variant, Any], JoemError] = field(default_factory=dict)
    _problems: dict[bool, Problem] = field(default_factory=dict)
    _lambdas: dict[Variant, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._device = engine.launched(self.base.train).device

    def check(self, variant: Variant) -> None:
        """Refuse a recipe of a row's own that would make it another comparison, and lengths that it cannot have."""
        source = variant.source or variant.method
        for section in differences(self.base, self.own.get(source, self.base)):
            raise BadUsage(
                f"The recipe of {source} has other settings of {section!r} than the one that all rows share: only "
                "'method', 'train' and 'decision' may differ in a comparison."
            )
        for length in () if self.paces is None else self.paces.lengths:
            Pace(length=length).recipe(self.own.get(source, self.base))

    def recipe(self, variant: Variant, seed: int) -> Recipe:
        """The recipe of one run, with the pace and the lambda that the folds chose, once they have."""
        chosen = {"sc_weight": self._lambdas[variant]} if variant in self._lambdas else {}
        pace = best_pace(self.trials[variant]) if variant in self.trials else Pace()
        return pace.recipe(variant.recipe(self.base, self.own, seed)).changed(method=chosen)

    def problem(self, every_mask: bool) -> Problem:
        """The data, opened once; the supervised bound's training pictures may show every class."""
        if every_mask not in self._problems:
            problem = engine.open_problem(self.base.data, every_mask)
            if self.base.data.kind == "scenes":
                problem = replace(problem, train=data.Remembered(problem.train), val=data.Remembered(problem.val))
            self._problems[every_mask] = problem
        return self._problems[every_mask]

    @property
    def told(self) -> list[str]:
        """What could not be run, and why, once per variant."""
        first = {variant.name: error for (variant, _), error in reversed(self.failures.items())}
        return [f"{name}: {error}" for name, error in reversed(first.items())]

    def results(self, rules: Mapping[Variant, set[str]]) -> dict[str, tuple[Mapping[str, Any], ...]]:
        """The results of the variants that could be run, by name, one entry per seed."""
        self._try_paces(rules)
        wanted: dict[tuple[Variant, Any], Job] = {}
        tuned = [variant for variant in rules if tunes(variant, self.lambdas)]
        for variant in self._unharmed(rules):
            used = rules[variant]
            if variant not in tuned:
                wanted |= self._trainings(variant)
            if self.folds and (variant in tuned or calibrates(used)):  # the others have nothing to choose
                wanted |= {(variant, ("fold", *key)): job for key, job in self._folds(variant).jobs().items()}
        trained = jobs.run_all(wanted, "trainings and folds", self.failures)
        wanted = {}
        for variant in self._unharmed(dict.fromkeys(tuned)):
            self._lambdas[variant] = self._folds(variant).choose().sc_weight
            wanted |= self._trainings(variant)
        trained |= jobs.run_all(wanted, "trainings", self.failures)
        wanted = {}
        for variant in self._unharmed(rules):
            decisions = self._decisions_of(variant, rules[variant])
            wanted |= {(variant, seed): self._scoring(variant, seed, decisions) for seed in range(self.seeds)}
            if self.timing and not methods.get(variant.method).sees_every_mask:
                wanted[variant, "add"] = self._adding(variant)
        scored = jobs.run_all(wanted, "evaluations", self.failures)
        return {
            variant.name: tuple(
                {
                    "recipe": self.recipe(variant, seed).to_dict(),
                    **trained[variant, seed],
                    **scored[variant, seed],
                    **(scored.get((variant, "add"), {}) if seed == 0 else {}),
                }
                for seed in range(self.seeds)
            )
            for variant in self._unharmed(rules)
        }

    def _try_paces(self, rules: Mapping[Variant, set[str]]) -> None:
        """Train every variant at every pace on the folds, first all rates, then all lengths with its best rate.

        A pace at which a training fails, as too high a rate may make it, scores nothing; a variant fails if all do.
        """
        if self.paces is None:
            return
        found: dict[Variant, dict[Pace, float]] = {
            variant: {} for variant in rules if not methods.get(variant.method).sees_every_mask
        }
        for title in ("trials of rates", "trials of lengths"):
            tried = {
                (variant, pace): self._folds(variant, pace).jobs()
                for variant, scores in found.items()
                for pace in (self.paces.then(best_pace(scores)) if scores else self.paces.first())
            }
            failed: dict[tuple[Variant, Pace, Any], JoemError] = {}
            wanted = {(*trial, key): job for trial, own in tried.items() for key, job in own.items()}
            results = jobs.run_all(wanted, title, failed)
            for (variant, pace), own in tried.items():
                folds = [results.get((variant, pace, key)) for key in own]
                done = [fold for fold in folds if fold is not None]
                found[variant][pace] = score_of_trial(done, rules[variant]) if done == folds else -math.inf
            for (variant, *trial), error in failed.items():
                if isinstance(error, BadUsage) or max(found[variant].values()) == -math.inf:
                    self.failures[variant, tuple(trial)] = error
            found = {variant: found[variant] for variant in self._unharmed(found)}
        self.trials |= found

    def _unharmed(self, variants: Mapping[Variant, Any]) -> list[Variant]:
        return [variant for variant in variants if all(variant != failed for failed, _ in self.failures)]

    def _folds(self, variant: Variant, pace: Pace | None = None) -> Folds:
        """The folds of a variant at the pace that was chosen for it, or at another one with the recipe's own lambda."""
        lambdas = self.lambdas if pace is None and tunes(variant, self.lambdas) else None
        recipe = self.recipe(variant, 0) if pace is None else pace.recipe(variant.recipe(self.base, self.own, 0))
        return Folds(recipe, self.problem(False), self._paced(variant, pace), lambdas, used=self.folds)

    def decision(self, variant: Variant) -> Decision:
        """What held-out seen classes chose for a variant, or its recipe's own."""
        return self._folds(variant).choose().decision if self.folds else self.recipe(variant, 0).decision

    def _decisions_of(self, variant: Variant, used: set[str]) -> list[Decision]:
        if not calibrates(used):
            return [self.recipe(variant, 0).decision.replace(rule) for rule in sorted(used)]
        names, chosen = [rule.name for rule in calibration.candidates()], self.decision(variant)
        return [chosen.replace(rule) for rule in dict.fromkeys([*names, *sorted(used)])]

    def _trainings(self, variant: Variant) -> dict[tuple[Variant, Any], Job]:
        return {(variant, seed): self._training(variant, seed) for seed in range(self.seeds)}

    def _training(self, variant: Variant, seed: int) -> Job:
        recipe, folder = self.recipe(variant, seed), self._folder(variant, seed)
        problem = self.problem(methods.get(variant.method).sees_every_mask)

        def work() -> dict[str, Any]:
            resumed, started = has_checkpoint(folder), time.monotonic()
            calibration.train_in(folder, recipe, problem)
            # A resumed run does not know how long its first part took.
            seconds = None if resumed else time.monotonic() - started
            return {"train_seconds": seconds, "unseen": list(problem.vocabulary.unseen)}

        return Job(folder / "training.json", {"recipe": recipe.identity()}, work, leftovers=(folder / "checkpoints",))

    def _scoring(self, variant: Variant, seed: int, decisions: list[Decision]) -> Job:
        def work() -> dict[str, Any]:
            model, problem = self._model(variant, seed)
            found, area = calibration.evaluate(model, problem, decisions)
            return {"folds": self.folds, "ausuc": area, "rules": {each.decision.rule: each.to_dict() for each in found}}

        chosen = f"{self.folds}-folds" if self.folds else "own-parameters"
        file = self._folder(variant, seed) / f"scores-{chosen}.json"
        described = [each.to_dict() for each in decisions]
        return Job(file, {"recipe": self.recipe(variant, seed).identity(), "decisions": described}, work)

    def _adding(self, variant: Variant) -> Job:
        def work() -> dict[str, Any]:
            return {"add_class_seconds": seconds_to_add_a_class(*self._model(variant, 0))}

        return Job(self._folder(variant, 0) / "new-class.json", {"recipe": self.recipe(variant, 0).identity()}, work)

    def _folder(self, variant: Variant, seed: int) -> Path:
        return self._paced(variant) / f"seed-{seed}"

    def _paced(self, variant: Variant, pace: Pace | None = None) -> Path:
        """The folder of what is trained at a pace, by default the one that the folds chose."""
        chosen = best_pace(self.trials[variant]) if pace is None and variant in self.trials else pace
        return self.out / variant.name / ("" if chosen is None else str(chosen))

    def _model(self, variant: Variant, seed: int) -> tuple[Model, Problem]:
        problem = self.problem(methods.get(variant.method).sees_every_mask)
        return Model.load(self._folder(variant, seed) / "model").to(self._device), problem


def tunes(variant: Variant, lambdas: Sequence[float] | None) -> bool:
    """Whether a variant has a lambda to choose among these values."""
    return bool(lambdas) and methods.get(variant.method).has_lambda and "sc_weight" not in variant.changes


def calibrates(rules: set[str]) -> bool:
    """Whether any of the rules has a parameter to choose."""
    return any(rule in decision.calibrated() for rule in rules)


def seconds_to_add_a_class(model: Model, problem: Problem) -> float:
    """How long it takes until a model can segment one more class.

    Which class is no matter for the time, so its word vector is the mean of the vocabulary's: no source of words has
    to know another name.
    """
    name, vector = "one more class", model.vectors.mean(dim=0)
    started = time.monotonic()
    if model.method.new_class_stages:
        engine.add_class(model, name, problem, vector)
    else:
        with torch.no_grad():
            vectors = torch.cat([model.vectors, vector[None]]).to(next(model.method.parameters()).device)
            model.method.prototypes(vectors, (*model.vocabulary.names, name))
    return time.monotonic() - started


def summary(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and sample deviation over seeds, in percent; None where there is nothing to say.

    >>> summary([1.0, 3.0])
    {'mean': 2.0, 'deviation': 1.4142135623730951}
    """
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "deviation": statistics.stdev(known) if len(known) > 1 else None,
    }
