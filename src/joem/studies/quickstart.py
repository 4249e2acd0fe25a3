"""The whole job on generated pictures: train, choose, evaluate, compare with a control, add a word, report."""

import io
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from joem import calibration, data, engine, parallel
from joem.calibration import Folds
from joem.data.scenes import NEW_CLASS
from joem.decision import RULES, Decision
from joem.engine import Model, Problem
from joem.errors import BadUsage
from joem.io import write_json
from joem.recipe import Recipe
from joem.report import Page, contact_sheet, picture_sheet, run_page, unseen_first
from joem.report.run_page import RunFindings
from joem.scores import SCORES
from joem.segmenter import Segmenter
from joem.vocabulary import Vocabulary

_DEMO_PICTURES = 40
_PHOTOS = {
    "photographer": ("man", "sky", "building", "tripod"),
    "coffee": ("cup", "table"),
    "cat": ("kitten", "wall"),
    "astronaut": ("person", "rocket"),
}
"""Photos in the package and the words they are asked for."""


def photos() -> Image.Image:
    """The photos in the package segmented by words with the model in the box, which takes seconds."""
    segmenter, folder = Segmenter.load(), files("joem") / "web" / "photos"
    rows = []
    for name, words in _PHOTOS.items():
        with Image.open(io.BytesIO((folder / f"{name}.jpg").read_bytes())) as picture:
            photo = picture.convert("RGB")
        rows.append([photo, segmenter.encode(photo).segment(words).overlay()])
    return contact_sheet(rows, ["photo", "segmented by words; * never had a mask"], cell=420)


def run(recipe: Recipe, out: Path, shown: Image.Image | None = None) -> dict[str, Any]:
    """Run everything, write the model, quickstart.json and report.html into `out`, and give the numbers.

    The report opens with the picture `shown`, if there is one (`photos`).
    """
    if recipe.data.kind != "scenes":
        raise BadUsage(
            f"quickstart is about generated pictures, got a recipe of {recipe.data.kind}: give one with data.kind "
            "scenes, or use joem train and joem evaluate."
        )
    engine.check_folder(out / "model")
    started = time.monotonic()
    problem = engine.open_problem(recipe.data)
    problem = replace(problem, train=data.Remembered(problem.train), val=data.Remembered(problem.val))
    choice = Folds(recipe, problem, used=1).choose()
    recipe = replace(recipe, decision=choice.decision.replace(recipe.decision.rule))
    rules = [rule.name for rule in calibration.candidates(recipe.decision.rule) if rule.parameter]
    model = engine.train(recipe, problem=problem)
    found = run_page.measure(model, problem, rules)
    control_model = engine.train(recipe.changed(semantics={"control": "shuffled"}), problem=problem)
    control = run_page.measure(control_model, problem, rules)
    demo, before = _demo(recipe, problem.vocabulary), time.monotonic()
    model.prototypes(demo.vocabulary.names)
    seconds_to_add = time.monotonic() - before
    (new,) = engine.evaluate(model, demo, [recipe.decision])
    iou = new.scores.per_class[demo.vocabulary.index(NEW_CLASS)]
    numbers = {
        "seed": recipe.train.seed,
        "chosen": choice.to_dict(),
        "curves": {rule: curve.to_dict() for rule, curve in found.curves.items()},
        "results": _brief(found),
        "shuffled_control": _brief(control),
        "shuffled_control_best_hiou_with_hindsight": max(
            curve.scores[curve.best].hiou for curve in control.curves.values()
        ),
        "new_class": {"name": NEW_CLASS, "iou": iou, "seconds_to_add": seconds_to_add},
        "seconds": time.monotonic() - started,
    }

    def write() -> None:
        model.save(out / "model")
        write_json(out / "quickstart.json", numbers)
        _page(numbers, model, problem, demo, found, control, shown).write(out / "report.html")

    parallel.from_first(write)
    return numbers


def _brief(found: RunFindings) -> dict[str, Any]:
    own = found.own.decision.values
    return {rule: {**dict(zip(SCORES, row.three, strict=True)), **own} for rule, row in found.by_rule.items()}


def _demo(recipe: Recipe, known: Vocabulary) -> Problem:
    """Pictures that show a class whose name was not in training."""
    pictures = data.scenes.open_split("demo", _DEMO_PICTURES, size=recipe.data.size, seed=recipe.data.seed)
    vocabulary = Vocabulary(pictures.names, (*known.unseen, NEW_CLASS), pictures.background)
    return Problem(vocabulary, "exclude", pictures, pictures)


def _opening(vocabulary: Vocabulary, shown: Image.Image | None) -> Page:
    """The page with the photos, and what the rest is about."""
    page = Page(
        "joem quickstart: naming things nobody labelled",
        "Ask for any class by its name, also for one that nobody ever labelled. Everything on this page was made by "
        "the run itself.",
    )
    if shown is not None:
        page.heading("Photos, by words")
        page.picture(shown, "The model in the box, voc-names, on the photos in the package, asked for a few words.")
    page.heading("How well that works, in a world of which all is known")
    page.text(
        f"A model was trained on generated pictures of {len(vocabulary.seen)} classes with masks, then asked for "
        f"{len(vocabulary.unseen)} classes it never saw, from their words alone."
    )
    return page


def _page(
    numbers: Mapping[str, Any],
    model: Model,
    problem: Problem,
    demo: Problem,
    found: RunFindings,
    control: RunFindings,
    shown: Image.Image | None,
) -> Page:
    vocabulary, segmenter, new = problem.vocabulary, Segmenter(model), numbers["new_class"]
    page = _opening(vocabulary, shown)
    more = {"hIoU with shuffled words": control.own.scores.hiou, f"IoU of “{NEW_CLASS}”": new["iou"]}
    run_page.numbers(page, found, more)
    page.heading("What it sees")
    page.text("Classes with a star have no training mask. Each row is a picture the model has not met before.")
    columns = {RULES[rule].title: {"rule": rule} for rule in (Decision().rule, found.own.decision.rule)}
    samples = [problem.val[index] for index in unseen_first(problem)[:5]]
    sheet = picture_sheet(segmenter, samples, vocabulary, columns)
    page.picture(sheet, f"Picture, truth, then decided by {' and '.join(columns)}.")
    hindsight = numbers["shuffled_control_best_hiou_with_hindsight"]
    run_page.rules(
        page,
        found,
        "They were chosen by holding out seen classes, never by looking at the unseen ones or at these pictures. The "
        "control gives every class the word vector of another one: what is left is what a model can do without "
        f"understanding the words. Its best hIoU over all values, picked with hindsight, is {hindsight:.1f}.",
        [[f"shuffled words: {title}", *cells] for title, *cells in control.rows()],
    )
    page.heading(f"A word that was not in training: “{NEW_CLASS}”")
    page.text(
        f"It is in no vocabulary of this run. Adding it took {1000 * new['seconds_to_add']:.1f} ms and no training; "
        f"its IoU on {_DEMO_PICTURES} new pictures that show it is {new['iou']:.1f}."
    )
    words: dict[str, dict[str, Any]] = {"without the word": {}, "with the word": {"names": demo.vocabulary.names}}
    sheet = picture_sheet(segmenter, [demo.val[index] for index in range(3)], demo.vocabulary, words)
    page.picture(sheet, "Picture, truth, before and after adding the word.")
    run_page.class_table(page, found)
    page.heading("How to get this page again")
    page.code(f"joem quickstart --seed {model.recipe.train.seed}")
    page.code(yaml.safe_dump(model.recipe.to_dict(), sort_keys=False), folded="The whole recipe")
    return page
