"""The page of one run: scores, trade-off, classes, confusions, best and worst pictures, recipe, provenance."""

import csv
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import yaml
from PIL import Image
from torch import Tensor

import joem
from joem import calibration, decision, engine, scores
from joem.calibration import Curve, Sweep
from joem.engine import Evaluation, Model, Problem
from joem.recipe import DecisionSettings
from joem.report import plots
from joem.report.page import Page
from joem.report.pictures import contact_sheet, named
from joem.segmenter import Segmenter
from joem.vocabulary import VOID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURES = 4  # of the best and of the worst


@dataclass(frozen=True)
class RunFindings:
    """What one pass over the evaluation pictures gave.

    Attributes:
        curves: the whole trade-off of every rule; the run's own sigma and gamma are on the grids.
        own: the scores of the run's own rule.
        per_picture: mean IoU of every picture over the classes it shows, with the run's own rule, (N,).
    """

    curves: dict[str, Curve]
    own: Evaluation
    per_picture: Tensor


def measure(model: Model, problem: Problem, progress: bool = True) -> RunFindings:
    """Rank every picture once and take from it all that the page shows."""
    wish, count = model.recipe.decision, len(problem.vocabulary)
    gammas = sorted({*calibration.gamma_grid(model), wish.gamma})
    sigmas = sorted({*calibration.SIGMAS, wish.sigma}, reverse=True)
    sweeps = [
        Sweep(rule, gammas if parameter == "gamma" else sigmas, count, wish.squared)
        for rule, parameter in calibration.PARAMETER.items()
    ]
    total, means = torch.zeros(count, count, dtype=torch.int64), []
    started = datetime.now(UTC)
    for ranking, truth in engine.rank_dataset(model, problem, problem.val, progress):
        for sweep in sweeps:
            sweep.update(ranking, truth)
        labels = decision.decide(ranking, wish.rule, sigma=wish.sigma, gamma=wish.gamma, squared=wish.squared)
        counts = scores.confusion(truth, labels, count)
        shown = counts.sum(1) > 0
        means.append(torch.tensor(scores.scores(counts, ()).per_class)[shown].nanmean())
        total += counts
    unseen = problem.vocabulary.unseen_indices
    own = Evaluation(
        wish,
        scores.scores(total, unseen),
        total,
        problem.vocabulary,
        len(problem.val),
        (datetime.now(UTC) - started).total_seconds(),
    )
    curves = {sweep.rule: sweep.curve(unseen) for sweep in sweeps}
    return RunFindings(curves, own, torch.stack(means))


def write(
    model: Model,
    problem: Problem,
    run: Path,
    out: Path,
    progress: bool = True,
    pair: tuple[str, str] | None = None,
    pictures: Path | None = None,
) -> RunFindings:
    """Measure a run and write its page.

    Args:
        model: the trained model.
        problem: its data.
        run: where it was loaded from; metrics.csv beside it gives the losses.
        out: the HTML file.
        progress: show a progress bar.
        pair: the seen and the unseen class of the Apollonius figure; if None, those that meet most often.
        pictures: a folder for the figures of the embedding space as PNG files too.
    """
    from joem import figures

    found = measure(model, problem, progress)
    own, vocabulary, wish = found.own.scores, problem.vocabulary, model.recipe.decision
    page = Page(
        f"joem: {run.resolve().name}",
        f"{model.recipe.method.name} on {model.recipe.data.kind}, trained with masks of {len(vocabulary.seen)} classes "
        f"and asked for {len(vocabulary.unseen)} more from their words alone; {len(problem.val)} pictures. "
        "A star marks classes nobody labelled.",
    )
    page.numbers(
        {
            f"hIoU, {setting(wish)}": f"{own.hiou:.1f}",
            "mIoU, seen classes": f"{own.miou_seen:.1f}",
            "mIoU, unseen classes": f"{own.miou_unseen:.1f}",
            "pixels right, %": f"{own.pixel_accuracy:.1f}",
        }
    )
    _rules(page, found, wish)
    _pictures(page, model, problem, found)
    _classes(page, problem, found)
    _losses(page, run, model.method.stages)
    page.heading("The joint embedding space")
    drawn = figures.draw(model, problem, pair)
    for name, group in drawn.items():
        page.plots(group, figures.CAPTIONS[name])
    if pictures is not None:
        figures.save(drawn, pictures)
    _provenance(page, model, run)
    page.write(out)
    return found


def setting(wish: DecisionSettings) -> str:
    """A rule with its parameter, for people."""
    parameter = calibration.PARAMETER.get(wish.rule)
    value = f", {parameter} {getattr(wish, parameter):.3g}" if parameter else ""
    return f"{wish.rule.upper()}{value}"


def _rules(page: Page, found: RunFindings, wish: DecisionSettings) -> None:
    page.heading("Rules and the seen-unseen trade-off")
    page.text(
        "hIoU is the harmonic mean of the two mIoU. The rows in the middle use the run's own sigma and gamma. The best "
        "values with hindsight were found on these very pictures: they show what a perfect choice could reach and "
        "must not be reported as results. joem tune chooses without looking here."
    )
    first = next(iter(found.curves.values())).scores[0]
    settings = {rule: getattr(wish, curve.parameter) for rule, curve in found.curves.items()}
    rows = [("nn", "", first)]
    for rule, curve in found.curves.items():
        rows.append((rule, f"{curve.parameter} {settings[rule]:.3g}", curve.scores[curve.values.index(settings[rule])]))
    for rule, curve in found.curves.items():
        value = f"{curve.parameter} {curve.values[curve.best]:.3g}, best with hindsight"
        rows.append((rule, value, curve.scores[curve.best]))
    page.table(
        ["rule", "parameter", "seen", "unseen", "hIoU"],
        [
            [plots.TITLES[rule], value, *(f"{x:.1f}" for x in (row.miou_seen, row.miou_unseen, row.hiou))]
            for rule, value, row in rows
        ],
        best=[rule for rule, _, _ in rows].index(wish.rule),
    )
    page.plots(
        [plots.trade_off(found.curves, settings), plots.errors(found.curves, settings)],
        "Left: every gamma and sigma from one pass; the dashed line is mIoU of seen classes with NN. Right: pixels of "
        "seen classes taken for unseen ones over pixels of unseen classes that are right. Marks: the run's own values.",
    )
    page.plots(
        [plots.by_value(curve, settings[rule]) for rule, curve in found.curves.items()],
        "Scores over gamma and sigma; the correction grows to the right.",
    )


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
                f"Picture, truth, {setting(model.recipe.decision)}. Mean IoU over the classes shown: {means}.",
            )


def picture_rows(model: Model, problem: Problem, chosen: Sequence[int]) -> Image.Image:
    """Picture, truth and prediction of some evaluation pictures, one row each; void does not count and stays bare."""
    segmenter, rows = Segmenter(model), []
    for index in chosen:
        sample = problem.val[index]
        scene = segmenter.encode(sample.image)
        counted = scene.segment().labels.masked_fill(sample.labels == VOID, VOID)
        views = [named(scene.pixels, labels, problem.vocabulary) for labels in (sample.labels, counted)]
        rows.append([Image.fromarray(scene.pixels.permute(1, 2, 0).numpy()), *views])
    return contact_sheet(rows, ["picture", "truth", "prediction"])


def _classes(page: Page, problem: Problem, found: RunFindings) -> None:
    vocabulary, own = problem.vocabulary, found.own
    page.heading("Every class")
    nearest = next(iter(found.curves.values())).scores[0]
    labels = sorted(range(len(vocabulary)), key=lambda label: (label not in vocabulary.unseen_indices, label))
    rows = [
        [
            plots.starred(vocabulary.names[label], vocabulary),
            f"{int(own.confusion[label].sum()):,}",
            _percent(nearest.per_class[label]),
            _percent(own.scores.per_class[label]),
        ]
        for label in labels
    ]
    page.table(["class", "pixels", "IoU with NN", f"IoU with {setting(own.decision)}"], rows, bars=True)
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
