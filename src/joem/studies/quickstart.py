"""The whole job on generated pictures: train, choose, evaluate, compare with a control, add a word, report."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from joem import calibration, data, decision, engine, report, scores
from joem.calibration import Choice
from joem.data.scenes import NEW_CLASS
from joem.decision import RULES, Decision
from joem.engine import Model, Problem
from joem.errors import BadUsage
from joem.io import write_json
from joem.recipe import Recipe
from joem.report import run_page
from joem.report.run_page import SCORE_COLUMNS, RunFindings, score_row
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
            own = self.recipe.decision
            return {
                rule: {"miou_seen": row.miou_seen, "miou_unseen": row.miou_unseen, "hiou": row.hiou, **own.values}
                for rule, row in found.by_rule.items()
            }

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
    choice = calibration.choose(recipe, problem, None, folds=folds, used=used_folds)
    recipe = replace(recipe, decision=choice.decision.replace(recipe.decision.rule))
    model = engine.train(recipe, problem=problem)
    model.save(out / "model")
    rules = [rule.name for rule in calibration.candidates(recipe.decision.rule) if rule.parameter]
    found = run_page.measure(model, problem, rules)
    control_model = engine.train(recipe.changed(semantics={"control": "shuffled"}), problem=problem)
    control = run_page.measure(control_model, problem, rules)
    iou, to_add = _add_class(Segmenter(model), recipe)
    outcome = Outcome(recipe, problem, model, choice, found, control, iou, to_add, time.monotonic() - started)
    write_json(out / "quickstart.json", outcome.to_dict())
    _write_page(outcome, out / "report.html")
    return outcome


def _add_class(segmenter: Segmenter, recipe: Recipe) -> tuple[float, float]:
    """IoU of a class whose name was not in training, in percent, and the seconds it takes to add it."""
    names = (*segmenter.vocabulary.names, NEW_CLASS)
    started = time.monotonic()
    segmenter.model.prototypes(names)
    seconds = time.monotonic() - started
    demo = _demo(recipe, _DEMO_PICTURES)
    counts = torch.zeros(len(names), len(names), dtype=torch.int64)
    for index in range(len(demo)):
        sample = demo[index]
        labels = segmenter.encode(sample.image).segment(names).labels
        counts += scores.confusion(sample.labels, labels, len(names))
    return scores.scores(counts, [len(names) - 1]).per_class[-1], seconds


def _demo(recipe: Recipe, count: int) -> data.Dataset:
    return data.scenes.open_split("demo", count, size=recipe.data.size, seed=recipe.data.seed)


def _write_page(outcome: Outcome, path: Path) -> None:
    page = _opening(outcome)
    page.heading("What it sees")
    page.text("Classes with a star have no training mask. Each row is a picture the model has not met before.")
    rules = " and ".join(_shown(outcome.recipe.decision).values())
    page.picture(pictures(outcome), f"Picture, truth, then decided by {rules}.")
    _scores(page, outcome)
    page.heading(f"A word that was not in training: “{NEW_CLASS}”")
    page.text(
        f"It is in no vocabulary of this run. Adding it took {1000 * outcome.new_class_seconds:.1f} ms and no "
        f"training; its IoU on {_DEMO_PICTURES} new pictures that show it is {outcome.new_class_iou:.1f}."
    )
    page.picture(_new_class_pictures(outcome), "Picture, truth, before and after adding the word.")
    page.heading("Every class")
    titles = [f"IoU with {rule.upper()}" for rule in _shown(outcome.recipe.decision)]
    page.table(["class", "masks in training", *titles], _class_rows(outcome))
    page.heading("How to get this page again")
    page.code(f"joem quickstart --seed {outcome.recipe.train.seed}")
    page.code(yaml.safe_dump(outcome.recipe.to_dict(), sort_keys=False))
    page.write(path)


def _opening(outcome: Outcome) -> report.Page:
    vocabulary, own = outcome.problem.vocabulary, outcome.found.own
    page = report.Page(
        "joem quickstart: naming things nobody labelled",
        f"A model was trained on {len(vocabulary.seen)} classes with masks, then asked for "
        f"{len(vocabulary.unseen)} classes it never saw, from their words alone. Everything on this page was made by "
        "the run itself.",
    )
    page.numbers(
        {
            f"hIoU, {own.decision}": f"{own.scores.hiou:.1f}",
            "mIoU, seen classes": f"{own.scores.miou_seen:.1f}",
            "mIoU, unseen classes": f"{own.scores.miou_unseen:.1f}",
            "hIoU with shuffled words": f"{outcome.control.own.scores.hiou:.1f}",
            f"IoU of “{NEW_CLASS}”": f"{outcome.new_class_iou:.1f}",
        }
    )
    return page


def _scores(page: report.Page, outcome: Outcome) -> None:
    parameters = " and ".join(decision.parameters())
    found, control, own = outcome.found, outcome.control, outcome.recipe.decision
    page.heading("Scores")
    page.text(
        f"hIoU is the harmonic mean of the two mIoU. {parameters} were chosen by holding out seen classes, never by "
        "looking at the unseen ones or at these pictures. The control gives every class the word vector of another "
        "one: what is left is what a model can do without understanding the words."
    )
    rows = [score_row(RULES[rule], found.values.get(rule), row) for rule, row in found.by_rule.items()]
    for rule, row in control.by_rule.items():
        _, *cells = score_row(RULES[rule], control.values.get(rule), row)
        rows.append([f"shuffled words, {rule.upper()}", *cells])
    page.table(SCORE_COLUMNS, rows, best=list(found.by_rule).index(own.rule))
    page.text(f"The control's best hIoU over all parameters, picked with hindsight, is {outcome.best_of_control:.1f}.")
    page.heading("Seen bias and its correction")
    page.plots(
        [
            report.plots.trade_off(found.curves, found.values),
            *(report.plots.by_value(curve, own.value) for rule, curve in found.curves.items() if rule == own.rule),
        ],
        f"Every {parameters} from one pass over the pictures. Marks: the values chosen on held-out seen classes.",
    )


def _shown(own: Decision) -> dict[str, str]:
    """The rules that pictures and classes are shown with, and their titles: no correction, and the run's own."""
    return {rule: RULES[rule].title for rule in (Decision().rule, own.rule)}


def _class_rows(outcome: Outcome) -> list[list[str]]:
    vocabulary = outcome.problem.vocabulary
    columns = [outcome.found.by_rule[rule].per_class for rule in _shown(outcome.recipe.decision)]
    rows = [
        [name, "no" if name in vocabulary.unseen else "yes", *(f"{value:.1f}" for value in values)]
        for name, *values in zip(vocabulary.names, *columns, strict=True)
    ]
    return sorted(rows, key=lambda row: row[1])


def pictures(outcome: Outcome, count: int = 5) -> Image.Image:
    """Evaluation pictures that show unseen classes: picture, truth, without correction, with the run's own rule."""
    problem, rules = outcome.problem, _shown(outcome.recipe.decision)
    showing = data.class_presence(problem.val)[:, list(problem.vocabulary.unseen_indices)].sum(dim=1)
    samples = [problem.val[index] for index in showing.argsort(descending=True, stable=True)[:count].tolist()]
    segmenter, rows = Segmenter(outcome.model), []
    for sample in samples:
        scene = segmenter.encode(sample.image)
        labels = (sample.labels, *(scene.segment(rule=rule).labels for rule in rules))
        rows.append(report.picture_row(scene.pixels, labels, problem.vocabulary))
    return report.contact_sheet(rows, ["picture", "truth", *rules.values()])


def _new_class_pictures(outcome: Outcome, count: int = 3) -> Image.Image:
    segmenter, demo = Segmenter(outcome.model), _demo(outcome.recipe, count)
    vocabulary = Vocabulary(demo.names, (*segmenter.vocabulary.unseen, NEW_CLASS), demo.background)
    rows = []
    for index in range(count):
        sample = demo[index]
        scene = segmenter.encode(sample.image)
        labels = (sample.labels, scene.segment().labels, scene.segment(vocabulary.names).labels)
        rows.append(report.picture_row(scene.pixels, labels, vocabulary))
    return report.contact_sheet(rows, ["picture", "truth", "without the word", "with the word"])
