"""The whole job on generated pictures: train, choose, evaluate, compare with a control, add a word, report."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from joem import calibration, data, decision, engine, parallel
from joem.calibration import Choice, Folds
from joem.data.scenes import NEW_CLASS
from joem.decision import RULES, Decision
from joem.engine import Model, Problem
from joem.errors import BadUsage
from joem.io import write_json
from joem.recipe import Recipe
from joem.report import Page, picture_sheet, plots, run_page, unseen_first
from joem.report.run_page import RunFindings
from joem.scores import SCORES
from joem.segmenter import Segmenter
from joem.vocabulary import Vocabulary

_DEMO_PICTURES = 40


@dataclass(frozen=True)
class Outcome:
    """What a quickstart found; see `to_dict` for the numbers."""

    recipe: Recipe
    problem: Problem
    model: Model
    choice: Choice
    found: RunFindings
    control: RunFindings
    demo: Problem
    new_class_iou: float
    new_class_seconds: float
    seconds: float

    @property
    def best_of_control(self) -> float:
        """The highest hIoU of the control over all rules and values, picked with hindsight."""
        return max(curve.scores[curve.best].hiou for curve in self.control.curves.values())

    def to_dict(self) -> dict[str, Any]:
        """The numbers, in a form that JSON can hold."""

        def brief(found: RunFindings) -> dict[str, Any]:
            own = self.recipe.decision.values
            return {rule: {**dict(zip(SCORES, row.three, strict=True)), **own} for rule, row in found.by_rule.items()}

        return {
            "seed": self.recipe.train.seed,
            "chosen": self.choice.to_dict(),
            "curves": {rule: curve.to_dict() for rule, curve in self.found.curves.items()},
            "results": brief(self.found),
            "shuffled_control": brief(self.control),
            "shuffled_control_best_hiou_with_hindsight": self.best_of_control,
            "new_class": {
                "name": NEW_CLASS,
                "iou": self.new_class_iou,
                "seconds_to_add": self.new_class_seconds,
            },
            "seconds": self.seconds,
        }


def run(recipe: Recipe, out: Path, folds: int | None = None, used_folds: int | None = 1) -> Outcome:
    """Run everything and write the model, quickstart.json and report.html into `out`."""
    if recipe.data.kind != "scenes":
        raise BadUsage(
            f"quickstart is about generated pictures, got a recipe of {recipe.data.kind}: give one with data.kind "
            "scenes, or use joem train and joem evaluate."
        )
    engine.check_folder(out / "model")
    started = time.monotonic()
    problem = engine.open_problem(recipe.data)
    problem = replace(problem, train=data.Remembered(problem.train), val=data.Remembered(problem.val))
    choice = Folds(recipe, problem, count=folds, used=used_folds).choose()
    recipe = replace(recipe, decision=choice.decision.replace(recipe.decision.rule))
    model = engine.train(recipe, problem=problem)
    rules = [rule.name for rule in calibration.candidates(recipe.decision.rule) if rule.parameter]
    found = run_page.measure(model, problem, rules)
    control_model = engine.train(recipe.changed(semantics={"control": "shuffled"}), problem=problem)
    control = run_page.measure(control_model, problem, rules)
    demo = _demo(recipe, problem.vocabulary)
    before = time.monotonic()
    model.prototypes(demo.vocabulary.names)
    to_add = time.monotonic() - before
    (new,) = engine.evaluate(model, demo, [recipe.decision])
    iou, seconds = new.scores.per_class[demo.vocabulary.index(NEW_CLASS)], time.monotonic() - started
    outcome = Outcome(recipe, problem, model, choice, found, control, demo, iou, to_add, seconds)
    parallel.from_first(lambda: _write(outcome, out))
    return outcome


def _demo(recipe: Recipe, known: Vocabulary) -> Problem:
    """Pictures that show a class whose name was not in training."""
    pictures = data.scenes.open_split("demo", _DEMO_PICTURES, size=recipe.data.size, seed=recipe.data.seed)
    vocabulary = Vocabulary(pictures.names, (*known.unseen, NEW_CLASS), pictures.background)
    return Problem(vocabulary, "exclude", pictures, pictures)


def _write(outcome: Outcome, out: Path) -> None:
    outcome.model.save(out / "model")
    write_json(out / "quickstart.json", outcome.to_dict())
    vocabulary, segmenter = outcome.problem.vocabulary, Segmenter(outcome.model)
    page = Page(
        "joem quickstart: naming things nobody labelled",
        f"A model was trained on {len(vocabulary.seen)} classes with masks, then asked for "
        f"{len(vocabulary.unseen)} classes it never saw, from their words alone. Everything on this page was made by "
        "the run itself.",
    )
    shuffled = outcome.control.own.scores.hiou
    more = {"hIoU with shuffled words": shuffled, f"IoU of “{NEW_CLASS}”": outcome.new_class_iou}
    run_page.numbers(page, outcome.found, more)
    page.heading("What it sees")
    page.text("Classes with a star have no training mask. Each row is a picture the model has not met before.")
    columns = {RULES[rule].title: {"rule": rule} for rule in (Decision().rule, outcome.recipe.decision.rule)}
    samples = [outcome.problem.val[index] for index in unseen_first(outcome.problem)[:5]]
    sheet = picture_sheet(segmenter, samples, vocabulary, columns)
    page.picture(sheet, f"Picture, truth, then decided by {' and '.join(columns)}.")
    _scores(page, outcome)
    page.heading(f"A word that was not in training: “{NEW_CLASS}”")
    page.text(
        f"It is in no vocabulary of this run. Adding it took {1000 * outcome.new_class_seconds:.1f} ms and no "
        f"training; its IoU on {_DEMO_PICTURES} new pictures that show it is {outcome.new_class_iou:.1f}."
    )
    samples, asked = [outcome.demo.val[index] for index in range(3)], outcome.demo.vocabulary
    words: dict[str, dict[str, Any]] = {"without the word": {}, "with the word": {"names": asked.names}}
    sheet = picture_sheet(segmenter, samples, asked, words)
    page.picture(sheet, "Picture, truth, before and after adding the word.")
    run_page.class_table(page, outcome.found)
    page.heading("How to get this page again")
    page.code(f"joem quickstart --seed {outcome.recipe.train.seed}")
    page.code(yaml.safe_dump(outcome.recipe.to_dict(), sort_keys=False))
    page.write(out / "report.html")


def _scores(page: Page, outcome: Outcome) -> None:
    parameters = " and ".join(decision.parameters())
    found, control, own = outcome.found, outcome.control, outcome.recipe.decision
    page.heading("Scores")
    page.text(
        f"hIoU is the harmonic mean of the two mIoU. {parameters} were chosen by holding out seen classes, never by "
        "looking at the unseen ones or at these pictures. The control gives every class the word vector of another "
        "one: what is left is what a model can do without understanding the words."
    )
    titles = [f"shuffled words, {rule.upper()}" for rule in control.by_rule]
    rows = [[title, *cells] for title, (_, *cells) in zip(titles, control.rows(), strict=True)]
    run_page.score_table(page, found, rows)
    page.text(f"The control's best hIoU over all parameters, picked with hindsight, is {outcome.best_of_control:.1f}.")
    page.heading("Seen bias and its correction")
    page.plots(
        [
            plots.trade_off(found.curves, found.values),
            *(plots.by_value(curve, own.value) for rule, curve in found.curves.items() if rule == own.rule),
        ],
        f"Every {parameters} from one pass over the pictures. Marks: the values chosen on held-out seen classes.",
    )
