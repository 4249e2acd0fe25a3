"""The page of one run: scores, trade-off, classes, confusions, best and worst pictures, recipe, provenance."""

import csv
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import yaml
from torch import Tensor

import joem
from joem import calibration, decision, engine, parallel
from joem.calibration import Curve
from joem.decision import RULES, Decision
from joem.engine import Evaluation, Model, PictureScores, Problem, Scoring
from joem.io import damage_told
from joem.report import embedding, plots
from joem.report.page import Page
from joem.report.sheets import picture_sheet
from joem.scores import Scores
from joem.seen_before import seen_before
from joem.segmenter import Segmenter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    def rows(self) -> list[list[str]]:
        """The rows of `rules` at the run's own values."""
        return [_score_row(rule, self.values.get(rule), scores) for rule, scores in self.by_rule.items()]


def measure(model: Model, problem: Problem, rules: Iterable[str] | None = None) -> RunFindings:
    """Rank every picture once and take from it all that the page shows, with curves of some rules, all if None."""
    own, count = model.recipe.decision, len(problem.vocabulary)
    scoring, pictures = Scoring(own, problem.vocabulary), PictureScores(own, count)
    sweeps = calibration.new_sweeps(model, problem, rules, marked=own)
    seconds = engine.run(model, problem, [scoring, pictures, *sweeps.values()])
    curves = {rule: sweep.curve(problem.vocabulary.unseen_indices) for rule, sweep in sweeps.items()}
    return RunFindings(curves, scoring.result(seconds), pictures.result())


def write(
    model: Model,
    problem: Problem,
    run: Path,
    out: Path,
    pair: tuple[str, str] | None = None,
    pictures: Path | None = None,
) -> RunFindings:
    """Measure a run and write its page; of several processes, which share the pictures, the first writes.

    Args:
        model: the trained model.
        problem: its data.
        run: where it was loaded from; metrics.csv beside it gives the losses.
        out: the HTML file.
        pair: the seen and the unseen class of the Apollonius figure; if None, those that meet most often.
        pictures: a folder for the figures of the embedding space as PNG files too.
    """
    found, vocabulary = measure(model, problem), problem.vocabulary
    if not parallel.is_first():
        return found
    page = Page(
        f"joem: {run.resolve().name}",
        f"{model.recipe.method.name} on {model.recipe.data.kind}, trained with masks of {len(vocabulary.seen)} classes "
        f"and asked for {len(vocabulary.unseen)} more from their words alone; {len(problem.val)} pictures. "
        f"A star marks classes nobody labelled. Before training it had seen: {seen_before(model.recipe)}.",
    )
    numbers(page, found, {"pixels right, %": found.own.scores.pixel_accuracy})
    rules(
        page,
        found,
        "The best values with hindsight were found on these very pictures: they show what a perfect choice could reach "
        "and must not be reported as results. joem tune chooses without looking here.",
        [
            _score_row(rule, curve.values[curve.best], curve.scores[curve.best], ", best with hindsight")
            for rule, curve in found.curves.items()
        ],
    )
    _pictures(page, model, problem, found)
    class_table(page, found)
    _confusions(page, found.own)
    _losses(page, run, model.method.stages)
    drawn = embedding.draw(model, problem, pair)
    page.heading("The joint embedding space")
    for name, group in drawn.items():
        page.plots(group, embedding.CAPTIONS[name])
    if pictures is not None:
        embedding.save(drawn, pictures)
    _taken_out(page, model)
    _provenance(page, model, run)
    page.write(out)
    return found


def numbers(page: Page, found: RunFindings, more: Mapping[str, float]) -> None:
    """The scores of the run's own rule, large, and some more numbers."""
    seen, unseen, hiou = found.own.scores.three
    own = {f"hIoU, {found.own.decision}": hiou, "mIoU, seen classes": seen, "mIoU, unseen classes": unseen}
    page.numbers({name: f"{value:.1f}" for name, value in {**own, **more}.items()})


def rules(page: Page, found: RunFindings, about: str, others: Sequence[Sequence[str]]) -> None:
    """The scores of every rule, that of the run standing out, other rows below, which `about` is about; curves."""
    page.heading("Rules and the seen-unseen trade-off")
    parameters, own = " and ".join(decision.parameters()), found.own.decision
    page.text(f"hIoU is the harmonic mean of the two mIoU. The first rows use the run's own {parameters}. {about}")
    best = list(found.by_rule).index(own.rule)
    page.table(("rule", "parameter", "seen", "unseen", "hIoU"), [*found.rows(), *others], best=best)
    page.plots(
        [plots.trade_off(found.curves, own), plots.errors(found.curves, own)],
        f"Left: every {parameters} from one pass; the dashed line is mIoU of seen classes with "
        f"{Decision()}. Right: pixels of seen classes taken for unseen ones over pixels of unseen classes that are "
        "right. Marks: the run's own values.",
    )
    page.plots(
        [plots.by_value(curve, own) for curve in found.curves.values()],
        f"Scores over {parameters}; the correction grows to the right.",
    )


def _score_row(rule: str, value: float | None, scores: Scores, note: str = "") -> list[str]:
    setting = "" if value is None else f"{decision.parameter_of(rule).name} {value:.3g}{note}"
    return [RULES[rule].title, setting, *(f"{score:.1f}" for score in scores.three)]


def _pictures(page: Page, model: Model, problem: Problem, found: RunFindings) -> None:
    ranked = found.per_picture.argsort(descending=True, stable=True)
    order = [index for index in ranked.tolist() if found.per_picture[index].isfinite()]  # all void has no score
    best = order[:_PICTURES]
    worst = [index for index in order[::-1] if index not in best][:_PICTURES]
    for title, chosen in (("Best pictures", best), ("Worst pictures", worst)):
        if chosen:
            page.heading(title)
            means = ", ".join(f"{found.per_picture[index]:.0f}" for index in chosen)
            samples = [problem.val[index] for index in chosen]
            page.picture(
                picture_sheet(Segmenter(model), samples, problem.vocabulary, {"prediction": {}}),
                f"Picture, truth, {found.own.decision}. Mean IoU over the classes shown: {means}.",
            )


def class_table(page: Page, found: RunFindings) -> None:
    """The IoU of every class, without correction and by the run's own rule, unseen classes first."""
    vocabulary, own = found.own.vocabulary, found.own
    page.heading("Every class")
    columns = found.by_rule[Decision().rule].per_class, own.scores.per_class
    rows = [
        [
            vocabulary.starred[label],
            f"{int(own.confusion[label].sum()):,}",
            *(_percent(each[label]) for each in columns),
        ]
        for label in (*vocabulary.unseen_indices, *vocabulary.seen_indices)
    ]
    page.table(["class", "pixels", f"IoU with {Decision()}", f"IoU with {own.decision}"], rows, bars=True)


def _confusions(page: Page, own: Evaluation) -> None:
    page.heading("What is taken for what")
    page.plots([plots.confusion(own.confusion, own.vocabulary)], "Each row adds up to 100 % of the pixels of a class.")
    shown = dict(zip(own.vocabulary.names, own.vocabulary.starred, strict=True))
    rows = [[shown[true], shown[taken], f"{share:.1f}"] for true, taken, share in own.worst_confusions(8)]
    page.table(["true class", "taken for", "% of its pixels"], rows)


def _losses(page: Page, run: Path, stages: Sequence[str]) -> None:
    """The terms of the objective; a method of several stages has a file and a plot for each."""
    names = ["metrics.csv", *(f"metrics-{stage}.csv" for stage in stages)]
    files = [folder / name for folder in (run, run.parent) for name in names if (folder / name).is_file()]
    if files:
        page.heading("Training")
        told = ", ".join(file.name for file in files)
        page.plots([_loss_plot(file) for file in files], f"Terms of the objective, from {told}.")


def _loss_plot(file: Path) -> "Figure":
    with damage_told(file, "joem train --resume writes it anew."), file.open(encoding="utf-8") as handle:
        lines = list(csv.DictReader(handle))
        terms = [name for name in lines[0] if name not in {"step", "epoch", "seconds"} and not name.startswith("lr_")]
        values = {name: [float(line[name]) for line in lines] for name in ("step", *terms)}
    return plots.losses(values)


def taken_out(model: Model) -> list[list[str]]:
    """The names that did not teach because they give an unseen class away: class, how many, which, each with why."""
    return [
        [name, str(len(names)), ", ".join(f"{each} ({why})" for each, why in names.items())]
        for name, names in model.method.names_taken_out.items()
    ]


def _taken_out(page: Page, model: Model) -> None:
    rows = taken_out(model)
    if rows:
        page.heading("Names taken out")
        page.text(
            "Names of ImageNet that would give an unseen class away did not teach: those that have the class in their "
            "name, are a kind or a part of it, mention it in their dictionary entry, are its kin, or keep its company."
        )
        page.table(["unseen class", "names", "which, and why"], rows)


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
