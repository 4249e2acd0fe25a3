"""The whole job on generated pictures: train, choose, evaluate, compare with a control, add a word, report."""

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from joem import calibration, data, engine, report, scores
from joem.calibration import Choice, Curve
from joem.data.scenes import NEVER_HEARD
from joem.engine import Evaluation, Model, Problem
from joem.engine.files import write_json
from joem.errors import BadUsage
from joem.recipe import DecisionSettings, Recipe
from joem.segmenter import Scene, Segmenter
from joem.vocabulary import Vocabulary

_TITLES = {rule: report.TITLES[rule] for rule in ("nn", "cs", "ac")}
_DEMO_PICTURES = 40


@dataclass(frozen=True)
class Outcome:
    """What a quickstart found; see `to_dict` for the numbers."""

    recipe: Recipe
    problem: Problem
    model: Model
    choice: Choice
    results: dict[str, Evaluation]
    control: dict[str, Evaluation]
    curves: dict[str, Curve]
    control_curves: dict[str, Curve]
    new_class_iou: float
    new_class_seconds: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The numbers, in a form that JSON can hold."""

        def brief(results: dict[str, Evaluation]) -> dict[str, Any]:
            keep = ("miou_seen", "miou_unseen", "hiou", "sigma", "gamma")
            return {rule: {key: result.to_dict()[key] for key in keep} for rule, result in results.items()}

        return {
            "seed": self.recipe.train.seed,
            "chosen": self.choice.to_dict(),
            "curves": {rule: curve.to_dict() for rule, curve in self.curves.items()},
            "results": brief(self.results),
            "shuffled_control": brief(self.control),
            "shuffled_control_best_hiou_with_hindsight": max(
                curve.scores[curve.best].hiou for curve in self.control_curves.values()
            ),
            "new_class": {
                "name": NEVER_HEARD,
                "iou": self.new_class_iou,
                "seconds_to_add": self.new_class_seconds,
            },
            "seconds": self.seconds,
        }


def run(
    settings: Recipe, out: Path, folds: int | None = None, used_folds: int | None = 1, progress: bool = True
) -> Outcome:
    """Run everything and write the model, quickstart.json and report.html into `out`."""
    if settings.data.kind != "scenes":
        raise BadUsage(
            f"quickstart is about generated pictures, got a recipe of {settings.data.kind}: give one with data.kind "
            "scenes, or use joem train and joem evaluate."
        )
    engine.check_place(out / "model")
    started = time.monotonic()
    problem = engine.open_problem(settings.data)
    problem = replace(problem, train=data.Remembered(problem.train), val=data.Remembered(problem.val))
    choice = calibration.cross_validate(settings, problem, folds, used_folds, progress)
    settings = deepcopy(settings)
    settings.decision = DecisionSettings("ac", sigma=choice.sigma, gamma=choice.gamma)
    model = engine.train(settings, problem=problem, progress=progress)
    model.save(out / "model")
    results, curves = _measure(model, problem, choice, progress)
    shuffled = deepcopy(settings)
    shuffled.semantics.control = "shuffled"
    control_model = engine.train(shuffled, problem=problem, progress=progress)
    control, control_curves = _measure(control_model, problem, choice, progress)
    iou, to_add = _add_class(Segmenter(model), settings)
    outcome = Outcome(
        settings, problem, model, choice, results, control, curves, control_curves, iou, to_add,
        seconds=time.monotonic() - started,
    )  # fmt: skip
    write_json(out / "quickstart.json", outcome.to_dict())
    _write_report(outcome, out / "report.html")
    return outcome


def _measure(
    model: Model, problem: Problem, choice: Choice, progress: bool
) -> tuple[dict[str, Evaluation], dict[str, Curve]]:
    """Scores of the three rules at the chosen parameters, and the whole trade-off beside them."""
    decisions = [DecisionSettings(rule, sigma=choice.sigma, gamma=choice.gamma) for rule in _TITLES]
    ranked = list(engine.rank_dataset(model, problem, problem.val, progress))
    results = engine.evaluate(model, problem, decisions, ranked=ranked)
    curves = calibration.sweep(model, problem, ranked=ranked)
    return dict(zip(_TITLES, results, strict=True)), curves


def _add_class(segmenter: Segmenter, settings: Recipe) -> tuple[float, float]:
    """IoU of a class whose name the model has never heard, in percent, and the seconds it takes to add it."""
    names = (*segmenter.vocabulary.names, NEVER_HEARD)
    started = time.monotonic()
    segmenter.model.prototypes(names)
    seconds = time.monotonic() - started
    pictures = _demo(settings, _DEMO_PICTURES)
    counts = torch.zeros(len(names), len(names), dtype=torch.int64)
    for index in range(len(pictures)):
        sample = pictures[index]
        labels = segmenter.encode(sample.image).segment(names).labels
        counts += scores.confusion(sample.labels, labels, len(names))
    return scores.scores(counts, [len(names) - 1]).per_class[-1], seconds


def _demo(settings: Recipe, count: int) -> data.Dataset:
    return data.scenes.open_split("demo", count, size=settings.data.size, seed=settings.data.seed)


def _write_report(outcome: Outcome, path: Path) -> None:
    vocabulary, best = outcome.problem.vocabulary, outcome.results["ac"].scores
    numbers = outcome.to_dict()
    page = report.Page(
        "joem quickstart: naming things nobody labelled",
        f"A model was trained on {len(vocabulary.seen)} classes with masks, then asked for "
        f"{len(vocabulary.unseen)} classes it never saw, from their words alone. Everything on this page was made by "
        "the run itself.",
    )
    page.numbers(
        {
            "hIoU with Apollonius": f"{best.hiou:.1f}",
            "mIoU, seen classes": f"{best.miou_seen:.1f}",
            "mIoU, unseen classes": f"{best.miou_unseen:.1f}",
            "hIoU with shuffled words": f"{outcome.control['ac'].scores.hiou:.1f}",
            f"IoU of “{NEVER_HEARD}”": f"{outcome.new_class_iou:.1f}",
        }
    )
    page.heading("What it sees")
    page.text("Classes with a star have no training mask. Each row is a picture the model has not met before.")
    page.picture(pictures(outcome), "Picture, truth, nearest neighbour, Apollonius.")
    page.heading("Scores")
    page.text(
        "hIoU is the harmonic mean of the two mIoU. sigma and gamma were chosen by holding out seen classes, never by "
        "looking at the unseen ones or at these pictures. The control gives every class the word vector of another "
        "one: what is left is what a model can do without understanding the words."
    )
    rows = [_row(name, outcome.results[rule]) for rule, name in _TITLES.items()]
    rows += [_row(f"shuffled words, {rule.upper()}", outcome.control[rule]) for rule in _TITLES]
    page.table(["rule", "parameter", "seen", "unseen", "hIoU"], rows, best=2)
    hindsight = numbers["shuffled_control_best_hiou_with_hindsight"]
    page.text(f"The control's best hIoU over all parameters, picked with hindsight, is {hindsight:.1f}.")
    page.heading("Seen bias and its correction")
    chosen = {"ac": outcome.choice.sigma, "cs": outcome.choice.gamma}
    page.plots(
        [report.plots.trade_off(outcome.curves, chosen), report.plots.by_value(outcome.curves["ac"], chosen["ac"])],
        "Every gamma and sigma from one pass over the pictures. Marks: the values chosen on held-out seen classes.",
    )
    page.heading(f"A word the model has never heard: “{NEVER_HEARD}”")
    page.text(
        f"It is in no vocabulary of this run. Adding it took {1000 * outcome.new_class_seconds:.1f} ms and no "
        f"training; its IoU on {_DEMO_PICTURES} new pictures that show it is {outcome.new_class_iou:.1f}."
    )
    page.picture(_new_class_pictures(outcome), "Picture, truth, before and after adding the word.")
    page.heading("Every class")
    page.table(["class", "masks in training", "IoU with NN", "IoU with AC"], _class_rows(outcome))
    page.heading("How to get this page again")
    page.code(f"joem quickstart --seed {outcome.recipe.train.seed}")
    page.code(yaml.safe_dump(outcome.recipe.to_dict(), sort_keys=False))
    page.write(path)


def _row(name: str, result: Evaluation) -> list[str]:
    parameter = {
        "nn": "",
        "cs": f"gamma {result.decision.gamma:.3g}",
        "ac": f"sigma {result.decision.sigma:.2f}",
    }
    found = result.scores
    values = (found.miou_seen, found.miou_unseen, found.hiou)
    return [name, parameter[result.decision.rule], *(f"{value:.1f}" for value in values)]


def _class_rows(outcome: Outcome) -> list[list[str]]:
    names, unseen = outcome.problem.vocabulary.names, outcome.problem.vocabulary.unseen
    columns = zip(names, outcome.results["nn"].scores.per_class, outcome.results["ac"].scores.per_class, strict=True)
    rows = [[name, "no" if name in unseen else "yes", f"{nn:.1f}", f"{ac:.1f}"] for name, nn, ac in columns]
    return sorted(rows, key=lambda row: row[1])


def pictures(outcome: Outcome, count: int = 5) -> Image.Image:
    """Evaluation pictures that show unseen classes: picture, truth, NN, AC."""
    problem, segmenter = outcome.problem, Segmenter(outcome.model)
    showing = data.class_presence(problem.val)[:, list(problem.vocabulary.unseen_indices)].sum(dim=1)
    chosen = showing.argsort(descending=True, stable=True)[:count].tolist()
    rows = []
    for index in chosen:
        sample = problem.val[index]
        scene = segmenter.encode(sample.image)
        labels = (sample.labels, scene.segment(rule="nn").labels, scene.segment(rule="ac").labels)
        views = [report.named(scene.pixels, each, problem.vocabulary) for each in labels]
        rows.append([_plain(scene), *views])
    return report.contact_sheet(rows, ["picture", "truth", "nearest neighbour", "Apollonius"])


def _new_class_pictures(outcome: Outcome, count: int = 3) -> Image.Image:
    segmenter, demo = Segmenter(outcome.model), _demo(outcome.recipe, count)
    names = Vocabulary(demo.names, (*segmenter.vocabulary.unseen, NEVER_HEARD), demo.background)
    rows = []
    for index in range(count):
        sample = demo[index]
        scene = segmenter.encode(sample.image)
        labels = (sample.labels, scene.segment().labels, scene.segment(names.names).labels)
        rows.append([_plain(scene), *(report.named(scene.pixels, each, names) for each in labels)])
    return report.contact_sheet(rows, ["picture", "truth", "without the word", "with the word"])


def _plain(scene: Scene) -> Image.Image:
    return Image.fromarray(scene.pixels.permute(1, 2, 0).numpy())
