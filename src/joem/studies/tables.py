"""Tables of a comparison for people (HTML, Markdown), papers (LaTeX) and programs (CSV, JSON)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from joem import decision, methods
from joem.calibration import best_pace
from joem.io import csv_text, write_json, write_text
from joem.protocols import PublishedScores
from joem.report import Page
from joem.scores import SCORES
from joem.studies.comparison import Comparison, summary
from joem.studies.rows import Row

Table = tuple[list[str], list[list[str]]]

SEEN_BEFORE = "had seen before"
"""The title of the column by which rows that knew more than others stand apart."""

_CAPTIONS = {
    "scores": "Mean and deviation over the seeds, in percent. {origin}. AUSUC is the area under the seen-unseen curve "
    "of calibrated stacking, whatever the rule.",
    "rules": "hIoU by every rule, for the methods that calibrate; the others decide by NN. Rules compare distances; "
    "docs/concepts/systems.md says what distance is where a method has a classifier.",
    "trials": "Learning rates and lengths of training, in multiples of the recipe's own, tried on the folds: every "
    "rate at the first length, then the other lengths with the best rate. The same number of trials for every row but "
    "those that see every mask, which have none; the one with a star was trained. Where it is the first or the last of "
    "the rates or lengths, one beyond might be better.",
    "classes": "IoU of every class, the mean over the seeds. Classes with a star are unseen. The first table says what "
    "each had seen before.",
}


def scale(comparison: Comparison) -> str:
    """In what the runs differ from the published ones, and what could not be run."""
    recipe, protocol = comparison.recipe, comparison.published_on
    own = recipe.data.protocol or recipe.data.kind
    published = (
        f"The paper's numbers are of {protocol}{'' if protocol == own else f' and not of {own}, which was run here'}: "
        "DeepLabV3+ with ResNet-101 (DeepLabV2 in the SPNet setting), crops of 312 pixels and 50 epochs (VOC) or 200 "
        "(Context) of batches of 32 on GPUs, with word2vec."
        if protocol
        else f"Nothing is published on {own}."
    )
    failed = f" Could not be run: {'; '.join(comparison.failures)}." if comparison.failures else ""
    head = recipe.model.head.name if recipe.model.head else "experts"
    return (
        f"{published} These runs: {head} on {recipe.model.backbone}, crops of "
        f"{recipe.data.crop} pixels, {_epochs(comparison)} epochs per stage of batches of {recipe.train.batch_size}, "
        f"on {len(comparison.problem.train)} training pictures before the unseen ones are left out, words from "
        f"{recipe.semantics.vectors}.{_other_lengths(comparison)} Compare orders, not values.{failed}"
    )


def _epochs(comparison: Comparison) -> str:
    """What one stage of every row lasts: one number where it is the same for all."""
    found = {row.title: comparison.results[row.variant.name][0]["recipe"]["train"]["epochs"] for row in comparison.rows}
    if len(set(found.values())) == 1:
        return str(next(iter(found.values())))
    return " or ".join(
        f"{epochs} ({', '.join(title for title, own in found.items() if own == epochs)})"
        for epochs in sorted(set(found.values()))
    )


def _other_lengths(comparison: Comparison) -> str:
    """Which methods have stages of another length than the epochs that all share."""
    found = {}
    for row in comparison.rows:
        lengths = comparison.results[row.variant.name][0]["recipe"]["method"]["stage_lengths"]
        if lengths:
            stages = ", ".join(f"{stage} {length:g}" for stage, length in lengths.items())
            found[row.variant.method] = f"{row.title} ({stages})"
    return f" Stages of another length, as a multiple of that: {'; '.join(found.values())}." if found else ""


def _caption(name: str, comparison: Comparison) -> str:
    origin = "were chosen on held-out seen classes" if comparison.folds else "are the recipe's own"
    parameters = list(reversed(decision.parameters()))
    if comparison.lambdas:
        origin += f", and so was lambda, of {', '.join(f'{value:g}' for value in comparison.lambdas)}"
    if comparison.trials:
        origin += ", and so were learning rates and lengths, by as many trials for every row that sees seen masks alone"
    if comparison.table == "names":
        return _CAPTIONS[name].format(origin=f"{', '.join(parameters)} and the rule {origin}")
    told = f"{' and '.join(parameters)} {origin}; the rule is the one the method's authors use"
    return _CAPTIONS[name].format(origin=told)


def score_table(comparison: Comparison) -> Table:
    """Seen, unseen, hIoU and AUSUC (mean ± deviation over seeds), the published three, what had been seen before.

    If timed, also the cost of adding a class.
    """
    paper = f"paper, {comparison.published_on}" if comparison.published_on else "paper"
    published = [f"{paper}: {name}" for name in ("seen", "unseen", "hIoU")]
    head = [
        "",
        "rule",
        "seen",
        "unseen",
        "hIoU",
        "AUSUC",
        *published,
        SEEN_BEFORE,
        *(["adding a class"] if comparison.timed else []),
    ]
    body = [
        [
            row.title,
            row.rule.upper(),
            *map(_mean, comparison.summary(row).values()),
            _mean(comparison.ausuc(row)),
            *_published(row.published),
            comparison.seen_before(row),
            *([_cost(row, comparison)] if comparison.timed else []),
        ]
        for row in comparison.rows
    ]
    return head, body


def rule_table(comparison: Comparison) -> Table:
    """The hIoU of every row by every rule that was run."""
    rules = [rule for rule in decision.RULES if any(comparison.found(row, rule) for row in comparison.rows)]
    body = [
        [
            row.title,
            *(_mean(comparison.summary(row, rule)["hiou"]) for rule in rules),
            comparison.seen_before(row),
        ]
        for row in comparison.rows
    ]
    return ["hIoU", *(rule.upper() for rule in rules), SEEN_BEFORE], body


def class_table(comparison: Comparison) -> Table:
    """IoU of every class, the mean over seeds; unseen classes carry a star and come last."""
    vocabulary = comparison.problem.vocabulary

    def mean(row: Row, name: str) -> str:
        found = summary([found["per_class"][name] for found in comparison.found(row)])
        return _mean({**found, "deviation": None})

    labels = (*vocabulary.seen_indices, *vocabulary.unseen_indices)
    body = [
        [vocabulary.starred[label], *(mean(row, vocabulary.names[label]) for row in comparison.rows)]
        for label in labels
    ]
    return ["IoU", *(row.title for row in comparison.rows)], body


def trial_table(comparison: Comparison) -> Table:
    """The hIoU on the folds of every rate and length that was tried; the chosen ones carry a star."""
    paces = list(dict.fromkeys(pace for tried in comparison.trials.values() for pace in tried))
    paces.sort(key=lambda pace: (pace.length, pace.rate))
    body = []
    for row in comparison.rows:
        tried = comparison.trials.get(row.variant.name)
        if tried is not None:
            best = best_pace(tried)
            cells = [_tried(tried[pace], pace == best) if pace in tried else "-" for pace in paces]
            body.append([row.title, *cells])
    return ["hIoU on the folds", *(f"rate {pace.rate:g}, length {pace.length:g}" for pace in paces)], body


def _tried(hiou: float, best: bool) -> str:
    return "failed" if hiou == -math.inf else f"{hiou:.1f}{' *' if best else ''}"


def _cost(row: Row, comparison: Comparison) -> str:
    seconds = comparison.add_class_seconds(row)
    if seconds is None:
        return "masks needed"
    stages = methods.get(row.variant.method).new_class_stages
    return f"{1000 * seconds:.1f} ms" if not stages else f"{seconds:.1f} s, trains {' and '.join(stages)}"


def _mean(found: Mapping[str, float | None]) -> str:
    """A summary for people."""
    mean, deviation = found["mean"], found["deviation"]
    return "-" if mean is None else f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def _published(found: PublishedScores | None) -> list[str]:
    values, deviations = (found.three, found.deviation) if found else ((None,) * 3, None)
    return [_mean({"mean": mean, "deviation": d}) for mean, d in zip(values, deviations or (None,) * 3, strict=True)]


def _best(comparison: Comparison) -> int | None:
    """The row with the best mean hIoU among those that are zero-shot."""
    means = {}
    for index, row in enumerate(comparison.rows):
        mean = comparison.summary(row)["hiou"]["mean"]
        if mean is not None and not methods.get(row.variant.method).sees_every_mask:
            means[index] = mean
    return max(means, key=lambda index: means[index], default=None)


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its columns aligned so that it reads well as plain text too.

    >>> print(markdown(["a", "b"], [["x", "10"]]))
    | a |  b |
    |---|---:|
    | x | 10 |
    """
    widths = [max(len(cell) for cell in column) for column in zip(head, *body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        padded = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "-" * (widths[0] + 2) + "|" + "".join("-" * (width + 1) + ":|" for width in widths[1:])
    return "\n".join([line(head), rule, *(line(cells) for cells in body)])


def latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table in LaTeX, for the package booktabs.

    >>> print(latex(["a", "b"], [["L_ce", "1 ± 2"]]))
    \begin{tabular}{lr}
    \toprule
    a & b \\
    \midrule
    L\_ce & 1 $\pm$ 2 \\
    \bottomrule
    \end{tabular}
    """
    special = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "±": r"$\pm$"})

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cell.translate(special).replace("->", r"$\to$") for cell in cells) + r" \\"

    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", line(head), r"\midrule"]
    return "\n".join([*lines, *map(line, body), r"\bottomrule", r"\end{tabular}"])


def write(comparison: Comparison, out: Path, command: str) -> list[Path]:
    """Write a comparison as HTML, Markdown, CSV, LaTeX and JSON; returns the files."""
    stem = out / comparison.table
    parts = {
        "scores": score_table(comparison),
        "rules": rule_table(comparison),
        "classes": class_table(comparison),
    }
    if comparison.trials:
        parts["trials"] = trial_table(comparison)
    title = f"{comparison.table} on {comparison.recipe.data.protocol or comparison.recipe.data.kind}"
    page = Page(title, scale(comparison))
    text = [f"# {title}", scale(comparison)]
    for name, (head, body) in parts.items():
        page.heading(name)
        page.text(_caption(name, comparison))
        page.table(head, body, best=_best(comparison) if name == "scores" else None)
        text += [f"## {name}", _caption(name, comparison), markdown(head, body)]
    page.heading("command")
    page.code(command)
    text += ["## command", f"    {command}"]
    files = {suffix: stem.with_suffix(suffix) for suffix in (".html", ".md", ".csv", ".tex", ".json")}
    page.write(files[".html"])
    write_text(files[".md"], "\n\n".join(text) + "\n")
    write_text(files[".tex"], "\n\n".join(f"% {name}\n{latex(*table)}" for name, table in parts.items()) + "\n")
    write_text(files[".csv"], _csv(comparison))
    write_json(files[".json"], comparison.to_dict())
    return list(files.values())


def _csv(comparison: Comparison) -> str:
    """One line per row and seed, with the IoU of every class."""
    names, parameters = comparison.problem.vocabulary.names, list(decision.parameters())
    rows = [["row", "method", "rule", *parameters, "seed", *SCORES, "train_seconds", "had_seen_before", *names]]
    for row in comparison.rows:
        for seed, result in enumerate(comparison.results[row.variant.name]):
            found = result["rules"][row.rule]
            start = [row.title, row.variant.method, row.rule, *(found.get(name) for name in parameters), seed]
            scores = [found[name] for name in SCORES]
            per_class = [found["per_class"][name] for name in names]
            rows.append([*start, *scores, result["train_seconds"], comparison.seen_before(row), *per_class])
    return csv_text(rows)
