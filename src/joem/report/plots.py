"""Curves of a sweep in the paper's form, confusion and losses, in colours that colour-blind people tell apart.

Every function gives one matplotlib figure with one pair of axes, so that a page can put them side by side or below
each other; `Figure.savefig` writes any of them.
"""

import io
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from torch import Tensor

from joem.decision import RULES, Decision, parameter_of
from joem.vocabulary import Vocabulary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from joem.calibration import Curve
    from joem.scores import Scores

INK = "#30363c"
"""The colour of everything that is not data; a page may replace it by its own."""

_DPI = 160
_MOST_NAMES = 70  # more names on an axis cannot be read


def trade_off(curves: "Mapping[str, Curve]", marked: Decision | None = None) -> "Figure":
    """mIoU_U over mIoU_S of every rule, the paper's figure 5 (left): a dashed line marks mIoU_S of NN.

    Args:
        curves: rule -> curve, each beginning with nearest neighbour.
        marked: has the values that are marked on the curves.
    """
    figure, axes = new_axes("mIoU of seen classes", "mIoU of unseen classes")
    for rule, curve in curves.items():
        seen, unseen, _ = zip(*(found.three for found in curve.scores), strict=True)
        _line(axes, curve, seen, unseen, marked, f"{RULES[rule].title}, area {curve.area:.1f}")
    nearest = next(iter(curves.values())).scores[0]
    axes.axvline(nearest.miou_seen, color=INK, linestyle=(0, (4, 3)), linewidth=1)
    uncorrected = RULES[Decision().rule].title
    axes.plot(nearest.miou_seen, nearest.miou_unseen, "*", color=INK, markersize=12, label=uncorrected)
    _legend(axes)
    return figure


def errors(curves: "Mapping[str, Curve]", marked: Decision | None = None) -> "Figure":
    """FN_{S->U} over TP_U of every rule, the paper's figure 5 (right); lower is better."""
    from matplotlib.ticker import EngFormatter

    figure, axes = new_axes("TP$_U$: pixels of unseen classes that are right", "FN$_{S→U}$: seen taken for unseen")
    for rule, curve in curves.items():
        _line(axes, curve, curve.true_unseen, curve.seen_as_unseen, marked, RULES[rule].title)
    axes.set_yscale("log")  # the largest values are a hundred times those that any choice takes
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=6)
    _legend(axes)
    return figure


def by_value(curve: "Curve", marked: Decision) -> "Figure":
    """The three scores over a rule's parameter, as in the supplement's figure 3; a dotted line marks the chosen one."""
    title, chosen = f"{parameter_of(curve.rule).symbol} of {RULES[curve.rule].title}", marked.replace(curve.rule).value
    figure, axes = _score_lines(title, curve.values, curve.scores, ("chosen", chosen))
    if len(curve.values) > 1:
        # The correction grows to the right, even of what falls.
        axes.set_xlim(curve.values[0], _end_of_change(curve, chosen))
    return figure


def by_setting(found: "Mapping[float, Scores]", symbol: str, own: float) -> "Figure":
    """The three scores of trainings that differ in one setting, as in the supplement's figures 2, 3, 4 and 6.

    Args:
        found: value of the setting -> scores; they grow by factors, so the axis is logarithmic.
        symbol: the setting's.
        own: the value of the recipe, marked by a dotted line.
    """
    figure, axes = _score_lines(symbol, tuple(found), tuple(found.values()), ("the recipe's", own), marker="o")
    axes.set_xscale("log")
    axes.set_xticks(list(found), [f"{value:g}" for value in found])
    axes.minorticks_off()
    return figure


def confusion(counts: Tensor, vocabulary: Vocabulary) -> "Figure":
    """The confusion matrix, each row in percent of its class, unseen classes starred."""
    shares = 100 * counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    side = min(11.0, max(4.8, 0.24 * len(vocabulary)))
    figure, axes = new_axes("taken for", "true class", size=(side + 0.8, side), grid=False)
    image = axes.imshow(shares.numpy(), cmap="cividis", vmin=0, vmax=100, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, label="percent of the true class", shrink=0.7)
    bar.outline.set_edgecolor(INK)
    bar.ax.yaxis.label.set_color(INK)
    bar.ax.tick_params(colors=INK)
    name_ticks(axes, vocabulary.starred, "x-small")
    return figure


def losses(columns: Mapping[str, Sequence[float]]) -> "Figure":
    """The terms of the objective over the steps, from a run's metrics.csv."""
    from matplotlib.ticker import LogLocator

    figure, axes = new_axes("step", "loss")
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
    terms = [name for name in columns if name != "step"]
    for name, colour in zip(terms, cycle(colours), strict=False):
        axes.plot(columns["step"], columns[name], color=colour, label=name, linewidth=1.3)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    _legend(axes)
    return figure


def name_ticks(axes: "Axes", names: Sequence[str], size: str) -> None:
    """Write the names of classes along both axes of a matrix, if they can be read."""
    if len(names) <= _MOST_NAMES:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
        axes.set_yticks(range(len(names)), names, fontsize=size)


def name_points(axes: "Axes", points: Tensor, names: Sequence[str]) -> None:
    """Write names beside points (N,2), moved apart where they would cover each other, with lines to their points.

    Call it when the limits of the axes are set.
    """
    width, height = (0.85 * 72 * pixels / axes.figure.dpi for pixels in axes.figure.bbox.size)  # in points of print
    spans = (axes.get_xlim(), width), (axes.get_ylim(), height)
    scale = [length / (high - low) for (low, high), length in spans]
    bottom, top = (scale[1] * limit for limit in axes.get_ylim())
    dots = [(x * scale[0], y * scale[1]) for x, y in points.tolist()]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]  # left, bottom, right, top
    for (x, y), point, name in sorted(zip(dots, points.tolist(), names, strict=True)):
        for rise in (step * sign for step in range(0, 150, 4) for sign in (1, -1)):
            box = (x + 7, y - 3 + rise, x + 7 + 5 * len(name), y + 6 + rise)
            inside = bottom <= box[1] and box[3] <= top
            if inside and not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        axes.annotate(
            name, point, xytext=(7, rise - 3), textcoords="offset points", color=INK, fontsize=7.5,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.4} if abs(rise) > 8 else None,
        )  # fmt: skip


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG on white, or in the form that the file's ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI, facecolor="white")
    return path


def beside(rows: "Sequence[Sequence[Figure]]") -> Image.Image:
    """Figures of one size in rows and columns, as one image on white."""
    drawn = []
    for figures in rows:
        for figure in figures:
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=_DPI, facecolor="white")
            drawn.append(Image.open(file))
    width, height = drawn[0].size
    image = Image.new("RGB", (len(rows[0]) * width, len(rows) * height), "white")
    for place, each in enumerate(drawn):
        image.paste(each, (place % len(rows[0]) * width, place // len(rows[0]) * height))
    return image


def _line(
    axes: "Axes", curve: "Curve", x: Sequence[float], y: Sequence[float], marked: Decision | None, label: str
) -> None:
    rule = RULES[curve.rule]
    axes.plot(x, y, rule.line, color=rule.colour, label=label)
    if marked is not None:
        index = curve.nearest(marked.replace(curve.rule).value)
        axes.plot(x[index], y[index], rule.marker, color=rule.colour, markersize=8)


def _legend(axes: "Axes") -> None:
    axes.legend(frameon=False, fontsize="small", labelcolor=INK)


def _end_of_change(curve: "Curve", chosen: float) -> float:
    """The value from which on more correction changes hIoU by less than half a point, but not before the chosen one."""
    hious = [found.hiou for found in curve.scores]
    last = max((index for index, hiou in enumerate(hious) if abs(hiou - hious[-1]) > 0.5), default=len(hious) - 1)
    last = min(last + 1, len(hious) - 1)
    return curve.values[max(last, curve.nearest(chosen))]


def _score_lines(
    xlabel: str,
    values: Sequence[float],
    scores: "Sequence[Scores]",
    marked: tuple[str, float],
    marker: str = "",
) -> tuple["Figure", Any]:
    """The three scores over values, one of which, with its name, has a dotted line."""
    figure, axes = new_axes(xlabel, "percent")
    styles = (("mIoU seen", "#0072b2", "--"), ("mIoU unseen", "#d55e00", "-."), ("hIoU", "#009e73", "-"))
    lines = zip(*(found.three for found in scores), strict=True)
    for line, (name, colour, style) in zip(lines, styles, strict=True):
        axes.plot(values, line, style, color=colour, label=name, marker=marker)
    axes.axvline(marked[1], color=INK, linestyle=":", linewidth=1.5, label=marked[0])
    axes.set_ylim(0, None)
    _legend(axes)
    return figure, axes


def new_axes(
    xlabel: str, ylabel: str, size: tuple[float, float] = (5.0, 3.8), grid: bool = True, title: str = ""
) -> tuple["Figure", Any]:
    """A figure with one pair of axes, drawn in `INK` on nothing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel, facecolor="none")
    axes.set_title(title, color=INK, fontsize="medium")
    axes.tick_params(which="both", colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.spines[:].set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color=INK, alpha=0.2)
    return figure, axes
