"""Training and scoring what a table needs and is not there yet."""

import re
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from joem import calibration, data, engine, methods
from joem import recipe as recipes
from joem.compare.rows import Row, Variant, published_on, rows
from joem.engine import Interrupted, Model, Problem
from joem.io import read_json, write_json
from joem.errors import BadUsage, JoemError
from joem.recipe import DecisionSettings, Recipe

RULES = ("nn", "cs", "ac")
SCORES = ("miou_seen", "miou_unseen", "hiou")


@dataclass(frozen=True)
class Comparison:
    """What was found: for every row the results of its seeds, in the form of result.json.

    Attributes:
        table: one of `TABLES`.
        recipe: what all rows share, but for the methods that have a recipe of their own.
        problem: the data.
        rows: the rows that could be run.
        results: by the name of a row's variant.
        folds: on how many folds sigma and gamma were chosen; 0 where they are the recipe's own.
        failures: what could not be run, and why.
    """

    table: str
    recipe: Recipe
    problem: Problem
    rows: tuple[Row, ...]
    results: Mapping[str, tuple[Mapping[str, Any], ...]]
    folds: int
    failures: tuple[str, ...] = ()

    @property
    def published_on(self) -> str | None:
        """The protocol of the published numbers, where there are some."""
        return published_on(self.table, self.recipe)

    def scores(self, row: Row, rule: str | None = None) -> list[dict[str, float | None]]:
        """Seen, unseen and hIoU of a row, one entry per seed; empty if the rule was not run."""
        rules = [result["rules"].get(rule or row.rule) for result in self.results[row.variant.name]]
        return [{name: found[name] for name in SCORES} for found in rules if found is not None]

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
                **{name: summary([found[name] for found in self.scores(row)]) for name in SCORES},
                "published": None
                if row.published is None
                else dict(zip(SCORES, (row.published.seen, row.published.unseen, row.published.hiou), strict=True)),
                "add_class_seconds": self.add_class_seconds(row),
                "runs": [dict(result) for result in self.results[row.variant.name]],
            }
            for row in self.rows
        ]
        return {
            "table": self.table,
            "recipe": self.recipe.to_dict(),
            "folds": self.folds,
            "published_on": self.published_on,
            "rows": rows,
            "failures": list(self.failures),
        }


def run(
    recipe: Recipe,
    out: Path,
    table: str = "methods",
    names: Sequence[str] | None = None,
    seeds: int = 3,
    folds: int = 1,
    progress: bool = True,
    own: Mapping[str, Recipe] | None = None,
) -> Comparison:
    """Train and score what a table needs, and is not in `out` yet.

    Args:
        recipe: the data, the words, the encoders and the training that all methods share.
        out: folder; every run has its own in it, `VARIANT/seed-N`, with its model and result.json.
        table: one of `TABLES`.
        names: the rows to run, by the names of their variants, which are the methods' in "methods"; all if None.
        seeds: how many runs per row, with the seeds 0, 1, ...
        folds: on how many folds of held-out seen classes sigma and gamma are chosen, once per method with the first
            seed; 0 takes the recipe's own.
        progress: show progress.
        own: the recipes of methods that have their own, by name; data, words and encoder must be the same.

    Returns:
        the rows that could be run, and the failures of the others; where nothing could be run, that is raised.
    """
    if seeds < 1:
        raise BadUsage(f"A comparison needs at least one seed, got {seeds}.")
    wanted = rows(table, recipe, names)
    runs = _Runs(recipe, own or {}, out, folds, progress)
    runs.problem(False)  # data that cannot be opened are one error, not one for every row
    variants = {row.variant.name: row.variant for row in wanted}
    results: dict[str, tuple[Mapping[str, Any], ...]] = {}
    failures = []
    for name, variant in variants.items():
        used = {row.rule for row in wanted if row.variant.name == name}
        # Methods that do not calibrate have no sigma and gamma to choose: a training less.
        rules = RULES if table in {"methods", "names"} and used != {"nn"} else tuple(used)
        try:
            results[name] = tuple(runs.result(variant, seed, rules) for seed in range(seeds))
        except Interrupted:
            raise
        except JoemError as error:
            failures.append(f"{name}: {error}")
    if not results:
        raise JoemError("Nothing could be run:\n  " + "\n  ".join(failures))
    found = tuple(row for row in wanted if row.variant.name in results)
    if table == "names":  # no author of another system says by which rule these decide
        found = tuple(row if row.rule == "nn" else replace(row, rule=runs.rule(row.variant)) for row in found)
    return Comparison(table, recipe, runs.problem(False), found, results, folds, tuple(failures))


def own_recipes(protocol: str) -> dict[str, str]:
    """The recipes of methods that have their own for a protocol, by method; splits of VOC share those of unseen-4.

    >>> own_recipes("voc-spnet-lite")["zs3net"]
    'voc-zs3-4-lite-zs3net'
    """
    family = re.sub(r"^voc-(zs3-\d+|spnet)-lite$", "voc-zs3-4-lite", protocol)
    known = recipes.names()
    return {name: f"{family}-{name}" for name in methods.METHODS if f"{family}-{name}" in known}


@dataclass
class _Runs:
    """The runs of a comparison: each is trained once, whatever happens in between."""

    base: Recipe
    own: Mapping[str, Recipe]
    out: Path
    folds: int
    progress: bool
    _problems: dict[bool, Problem] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._device = engine.launched(self.base.train).device
        for method, recipe in self.own.items():
            for section in ("data", "semantics", "model"):
                if getattr(recipe, section) != getattr(self.base, section):
                    raise BadUsage(
                        f"The recipe of {method} has other settings of {section!r} than the one that all methods share:"
                        " only 'method', 'train' and 'decision' may differ in a comparison."
                    )

    def recipe(self, variant: Variant, seed: int) -> Recipe:
        """The recipe of one run."""
        return variant.recipe(self.own.get(variant.method, self.base), seed)

    def problem(self, every_mask: bool) -> Problem:
        """The data, opened once; the supervised bound's training pictures may show every class."""
        if every_mask not in self._problems:
            problem = engine.open_problem(self.base.data, every_mask)
            if self.base.data.kind == "scenes":
                problem = replace(problem, train=data.Remembered(problem.train), val=data.Remembered(problem.val))
            self._problems[every_mask] = problem
        return self._problems[every_mask]

    def result(self, variant: Variant, seed: int, rules: Sequence[str]) -> Mapping[str, Any]:
        """The result of one run, with everything that is missing done first."""
        every_mask = methods.get(variant.method).sees_every_mask
        folder = self.out / variant.name / f"seed-{seed}"
        recipe, file = self.recipe(variant, seed), folder / "result.json"
        result: dict[str, Any] = engine.from_first(lambda: read_json(file) if file.exists() else {"rules": {}})
        if result.get("recipe", recipe.to_dict()) != recipe.to_dict():
            raise BadUsage(f"{folder} holds a run of another recipe: give another --out, or remove {folder.parent}.")
        if result.setdefault("folds", self.folds) != self.folds:
            result |= {"folds": self.folds, "rules": {}}  # sigma and gamma were chosen in another way
        problem = self.problem(every_mask)
        if "recipe" not in result:
            result |= self._train(recipe, folder, problem)
            engine.from_first(lambda: write_json(file, result))
            engine.from_first(lambda: shutil.rmtree(folder / "checkpoints"))
        missing = [rule for rule in rules if rule not in result["rules"]]
        add_class = seed == 0 and "add_class_seconds" not in result and not every_mask
        if missing or add_class:
            model = Model.load(folder / "model").to(self._device)
            result["rules"] |= self._evaluate(model, problem, self._decisions(variant, missing))
            if add_class:
                result["add_class_seconds"] = seconds_to_add_a_class(model, problem, self.progress)
            engine.from_first(lambda: write_json(file, result))
        return result

    def _train(self, recipe: Recipe, folder: Path, problem: Problem) -> dict[str, Any]:
        resume = engine.from_first(lambda: any(folder.glob("checkpoints/step-*")))
        started = time.monotonic()
        engine.train(recipe, folder, problem=problem, resume=resume, progress=self.progress)
        # A resumed run does not know how long its first part took.
        seconds = None if resume else time.monotonic() - started
        return {"recipe": recipe.to_dict(), "train_seconds": seconds, "unseen": list(problem.vocabulary.unseen)}

    def _decisions(self, variant: Variant, rules: Sequence[str]) -> list[DecisionSettings]:
        settings = self.recipe(variant, 0).decision
        if self.folds and set(rules) - {"nn"}:
            choice = self._choice(variant)
            settings = replace(settings, sigma=choice["sigma"], gamma=choice["gamma"])
        return [replace(settings, rule=rule) for rule in rules]

    def rule(self, variant: Variant) -> str:
        """The rule that held-out seen classes choose for a variant, or its recipe's own."""
        return str(self._choice(variant)["rule"] if self.folds else self.recipe(variant, 0).decision.rule)

    def _choice(self, variant: Variant) -> Mapping[str, Any]:
        """The sigma, the gamma and the rule of a variant, chosen once on held-out seen classes."""
        file = self.out / variant.name / "choice.json"
        recipe = self.recipe(variant, 0)
        choice: dict[str, Any] = engine.from_first(lambda: read_json(file) if file.exists() else {})
        wanted = {"used": self.folds, "recipe": recipe.to_dict()}
        if {key: choice.get(key) for key in wanted} != wanted:
            found = calibration.cross_validate(recipe, self.problem(False), used=self.folds, progress=self.progress)
            choice = {**wanted, **found.to_dict()}
            engine.from_first(lambda: write_json(file, choice))
        return choice

    def _evaluate(self, model: Model, problem: Problem, decisions: list[DecisionSettings]) -> dict[str, Any]:
        if not decisions:
            return {}
        ranked = engine.rank_stored(model, problem, engine.share(problem.val), self.progress)
        found = engine.evaluate(model, problem, decisions, ranked=ranked)
        return {evaluation.decision.rule: evaluation.to_dict() for evaluation in found}


def seconds_to_add_a_class(model: Model, problem: Problem, progress: bool = True) -> float:
    """How long it takes until a model can segment one more class.

    Which class is no matter for the time, so its word vector is the mean of the vocabulary's: no source of words has
    to know another name.
    """
    name, vector = "one more class", model.vectors.mean(dim=0)
    started = time.monotonic()
    if model.method.new_class_stages:
        engine.add_class(model, name, problem, vector, progress)
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
