"""The page of one run: scores, trade-off, classes, confusions, best and worst pictures, recipe, provenance."""

import csv
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import yaml
from PIL import Image
from torch import Tensor

import joem
from joem import calibration, decision, engine
from joem.calibration import Curve, Sweep
from joem.decision import RULES, Decision, Rule
from joem.engine import Evaluation, Model, PictureScores, Problem, Scoring
from joem.report import embedding, plots
from joem.report.page import Page
from joem.report.sheets import contact_sheet, picture_row
from joem.scores import Scores
from joem.segmenter import Segmenter
from joem.vocabulary import VOID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORE_COLUMNS = ("rule", "parameter", "seen", "unseen", "hIoU")
_PICTURES = 4  # of the best and of the worst


@dataclass(frozen=True)
class RunFindings:
    """What one pass over the evaluation pictures gave.

    Attributes:
        curves: the whole trade-off of every rule; the run's own value is on its grid.
        own: the scores of the run's own rule.
        per_picture: mean IoU of every picture over the classes it shows, with the run's own rule, (N,).
    """

    curves: dict[str, Curve]
    own: Evaluation
    per_picture: Tensor

    @property
    def values(self) -> dict[str, float]:
        """The run's own value of every curve's parameter."""
        return {rule: self.own.decision.replace(rule).value for rule in self.curves}

    @property
    def by_rule(self) -> dict[str, Scores]:
        """The scores of every rule at the run's own values, first those without correction."""
        uncorrected = next(iter(self.curves.values())).scores[0]
        found = {rule: curve.scores[curve.values.index(self.values[rule])] for rule, curve in self.curves.items()}
        return {Decision().rule: uncorrected, **found}


def measure(model: Model, problem: Problem, rules: Iterable[str] | None = None) -> RunFindings:
    """Rank every picture once and take from it all that the page shows, with curves of some rules, all if None."""
    own, count = model.recipe.decision, len(problem.vocabulary)
    scoring, pictures = Scoring(own, problem.vocabulary), PictureScores(own, count)
    sweeps = []
    for rule, usual in calibration.new_sweeps(model, problem, rules).items():
        first, *_, last = usual.values
        values = sorted({*usual.values, own.replace(rule).value}, reverse=first > last)
        sweeps.append(Sweep(rule, values, count))
    seconds = engine.run(model, problem, [scoring, pictures, *sweeps])
    curves = {sweep.rule: sweep.curve(problem.vocabulary.unseen_indices) for sweep in sweeps}
    return RunFindings(curves, scoring.result(seconds), pictures.result())


def write(
    model: Model,
    problem: Problem,
    run: Path,
    out: Path,
    pair: tuple[str, str] | None = None,
    pictures: Path | None = None,
) -> RunFindings:
    """Measure a run and write its page.

    Args:
        model: the trained model.
        problem: its data.
        run: where it was loaded from; metrics.csv beside it gives the losses.
        out: the HTML file.
        pair: the seen and the unseen class of the Apollonius figure; if None, those that meet most often.
        pictures: a folder for the figures of the embedding space as PNG files too.
    """
    found = measure(model, problem)
    page = _opening(model, problem, run, found)
    _rules(page, found)
    _pictures(page, model, problem, found)
    _classes(page, found)
    _losses(page, run, model.method.stages)
    drawn = embedding.draw(model, problem, pair)
    page.heading("The joint embedding space")
    for name, group in drawn.items():
        page.plots(group, embedding.CAPTIONS[name])
    if pictures is not None:
        embedding.save(drawn, pictures)
    _provenance(page, model, run)
    page.write(out)
    return found


def _opening(model: Model, problem: Problem, run: Path, found: RunFindings) -> Page:
    vocabulary, own = problem.vocabulary, found.own.scores
    page = Page(
        f"joem: {run.resolve().name}",
        f"{model.recipe.method.name} on {model.recipe.data.kind}, trained with masks of {len(vocabulary.seen)} classes "
        f"and asked for {len(vocabulary.unseen)} more from their words alone; {len(problem.val)} pictures. "
        "A star marks classes nobody labelled.",
    )
    page.numbers(
        {
            f"hIoU, {found.own.decision}": f"{own.hiou:.1f}",
            "mIoU, seen classes": f"{own.miou_seen:.1f}",
            "mIoU, unseen classes": f"{own.miou_unseen:.1f}",
            "pixels right, %": f"{own.pixel_accuracy:.1f}",
        }
    )
    return page


def _rules(page: Page, found: RunFindings) -> None:
    page.heading("Rules and the seen-unseen trade-off")
    parameters = " and ".join(decision.parameters())
    page.text(
        f"hIoU is the harmonic mean of the two mIoU. The rows in the middle use the run's own {parameters}. The best "
        "values with hindsight were found on these very pictures: they show what a perfect choice could reach and "
        "must not be reported as results. joem tune chooses without looking here."
    )
    rows = [score_row(RULES[rule], found.values.get(rule), row) for rule, row in found.by_rule.items()]
    for rule, curve in found.curves.items():
        title, value, *cells = score_row(RULES[rule], curve.values[curve.best], curve.scores[curve.best])
        rows.append([title, f"{value}, best with hindsight", *cells])
    page.table(SCORE_COLUMNS, rows, best=list(found.by_rule).index(found.own.decision.rule))
    page.plots(
        [plots.trade_off(found.curves, found.values), plots.errors(found.curves, found.values)],
        f"Left: every {parameters} from one pass; the dashed line is mIoU of seen classes with "
        f"{Decision()}. Right: pixels of seen classes taken for unseen ones over pixels of unseen classes that are "
        "right. Marks: the run's own values.",
    )
    page.plots(
        [plots.by_value(curve, found.values[rule]) for rule, curve in found.curves.items()],
        f"Scores over {parameters}; the correction grows to the right.",
    )


def score_row(rule: Rule, value: float | None, scores: Scores) -> list[str]:
    """The cells of `SCORE_COLUMNS` for one rule."""
    setting = f"{rule.parameter.name} {value:.3g}" if rule.parameter else ""
    return [rule.title, setting, *(f"{x:.1f}" for x in (scores.miou_seen, scores.miou_unseen, scores.hiou))]


def _pictures(page: Page, model: Model, problem: Problem, found: RunFindings) -> None:
    ranked = found.per_picture.argsort(descending=True, stable=True)
    order = [index for index in ranked.tolist() if found.per_picture[index].isfinite()]  # all void has no score
    best = order[:_PICTURES]
    worst = [index for index in order[::-1] if index not in best][:_PICTURES]
    for title, chosen in (("Best pictures", best), ("Worst pictures", worst)):
        if chosen:
            page.heading(title)
            means = ", ".join(f"{found.per_picture[index]:.0f}" for index in chosen)
            page.picture(
                picture_rows(model, problem, chosen),
                f"Picture, truth, {found.own.decision}. Mean IoU over the classes shown: {means}.",
            )


def picture_rows(model: Model, problem: Problem, chosen: Sequence[int]) -> Image.Image:
    """Picture, truth and prediction of some evaluation pictures, one row each; void does not count and stays bare."""
    segmenter, rows = Segmenter(model), []
    for index in chosen:
        sample = problem.val[index]
        scene = segmenter.encode(sample.image)
        counted = scene.segment().labels.masked_fill(sample.labels == VOID, VOID)
        rows.append(picture_row(scene.pixels, (sample.labels, counted), problem.vocabulary))
    return contact_sheet(rows, ["picture", "truth", "prediction"])


def _classes(page: Page, found: RunFindings) -> None:
    vocabulary, own = found.own.vocabulary, found.own
    page.heading("Every class")
    uncorrected = found.by_rule[Decision().rule]
    labels = sorted(range(len(vocabulary)), key=lambda label: (label not in vocabulary.unseen_indices, label))
    rows = [
        [
            plots.starred(vocabulary.names[label], vocabulary),
            f"{int(own.confusion[label].sum()):,}",
            _percent(uncorrected.per_class[label]),
            _percent(own.scores.per_class[label]),
        ]
        for label in labels
    ]
    page.table(["class", "pixels", f"IoU with {Decision()}", f"IoU with {own.decision}"], rows, bars=True)
    page.heading("What is taken for what")
    page.plots([plots.confusion(own.confusion, vocabulary)], "Each row adds up to 100 % of the pixels of a class.")
    page.table(
        ["true class", "taken for", "% of its pixels"],
        [
            [plots.starred(true, vocabulary), plots.starred(taken, vocabulary), f"{share:.1f}"]
            for true, taken, share in own.worst_confusions(8)
        ],
    )


def _losses(page: Page, run: Path, stages: Sequence[str]) -> None:
    """The terms of the objective; a method of several stages has a file and a plot for each."""
    names = ["metrics.csv", *(f"metrics-{stage}.csv" for stage in stages)]
    files = [folder / name for folder in (run, run.parent) for name in names if (folder / name).is_file()]
    if files:
        page.heading("Training")
        told = ", ".join(file.name for file in files)
        page.plots([_loss_plot(file) for file in files], f"Terms of the objective, from {told}.")


def _loss_plot(file: Path) -> "Figure":
    with file.open() as handle:
        lines = list(csv.DictReader(handle))
    terms = [name for name in lines[0] if name not in {"step", "epoch", "seconds"} and not name.startswith("lr_")]
    return plots.losses({name: [float(line[name]) for line in lines] for name in ("step", *terms)})


def _provenance(page: Page, model: Model, run: Path) -> None:
    page.heading("Where this comes from")
    described = model.description()
    page.table(
        ["what", ""],
        [
            ["model", str(run)],
            ["made by", f"joem {described['joem']}; page by joem {joem.__version__}, torch {torch.__version__}, "
             f"Python {platform.python_version()}"],
            ["page written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")],
        ],
    )  # fmt: skip
    page.code(f"joem report {run}")
    sources = [
        {key: value for key, value in part.items() if key != "centre"} for part in described["semantics"]["parts"]
    ]
    page.code(yaml.safe_dump({**described["semantics"], "parts": sources}, sort_keys=False), folded="The word vectors")
    page.code(yaml.safe_dump(described["recipe"], sort_keys=False), folded="The whole recipe")


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"
