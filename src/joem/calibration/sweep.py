"""The whole seen-unseen trade-off of a rule from one pass: every value of its parameter at the cost of one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from joem import decision, engine, scores
from joem.calibration.folds import scoring_parts
from joem.decision import Decision, Ranking, parameter_of
from joem.engine import Evaluation, Model, Problem
from joem.engine.evaluation import Scoring
from joem.errors import BadUsage
from joem.io import csv_text
from joem.scores import SCORES, Scores
from joem.vocabulary import VOID, class_mask


@dataclass(frozen=True)
class Curve:
    """What one rule reaches at every value of its parameter.

    Attributes:
        rule: its name.
        values: of its parameter, from the weakest correction to the strongest.
        scores: the scores at every value.
        true_unseen: TP_U at every value, the pixels of unseen classes that are right.
        seen_as_unseen: FN_{S->U} at every value, the pixels of seen classes that got the label of an unseen one.
    """

    rule: str
    values: tuple[float, ...]
    scores: tuple[Scores, ...]
    true_unseen: tuple[int, ...]
    seen_as_unseen: tuple[int, ...]

    @property
    def parameter(self) -> str:
        """The name of what varies."""
        return parameter_of(self.rule).name

    @property
    def best(self) -> int:
        """The index of the best hIoU; of several, the one nearest to no correction."""
        return max(range(len(self.values)), key=lambda index: (self.scores[index].hiou, -index))

    @property
    def area(self) -> float:
        """Area under the seen-unseen curve, in percent."""
        return scores.trade_off_area(
            [point.miou_seen for point in self.scores], [point.miou_unseen for point in self.scores]
        )

    def nearest(self, value: float) -> int:
        """The index of the value on the grid that is nearest to the given one."""
        return min(range(len(self.values)), key=lambda index: abs(self.values[index] - value))

    def points(self) -> list[dict[str, Any]]:
        """One row of numbers for every value, in a form that JSON can hold."""
        columns = zip(self.values, self.scores, self.true_unseen, self.seen_as_unseen, strict=True)
        return [
            {self.parameter: value, **found.to_dict(), "true_unseen": true_unseen, "seen_as_unseen": seen_as_unseen}
            for value, found, true_unseen, seen_as_unseen in columns
        ]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return {"rule": self.rule, "area": self.area, "points": self.points()}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "Curve":
        """The inverse of `to_dict`."""
        rule, points = described["rule"], described["points"]
        values, true_unseen, seen_as_unseen = (
            tuple(point[key] for point in points) for key in (parameter_of(rule).name, "true_unseen", "seen_as_unseen")
        )
        return cls(rule, values, tuple(map(Scores.from_dict, points)), true_unseen, seen_as_unseen)


class Sweep:
    """Exact scores of a rule for every value of its parameter, from one pass over the pixels.

    A pixel's nearest seen and nearest unseen class are fixed; along the grid it changes sides once, at its turning
    point. So it is enough to count the pixels by (index of the turning point on the grid, truth, label), once with
    the seen and once with the unseen label. Only what occurs is kept: memory follows the number of different triples,
    not the square of the number of classes.

    Args:
        rule: the name of a rule with a parameter.
        values: the grid of the parameter, from nearest neighbour to the strongest correction.
        count: the number of classes K.
    """

    def __init__(self, rule: str, values: Sequence[float], count: int) -> None:
        parameter = parameter_of(rule)
        # Bounds rise with the strength of the correction.
        self._sign = 1 if parameter.rises else -1
        self._bounds = [self._sign * parameter.check(value) for value in values]
        if not values or parameter.ordered(values) != list(values):
            order = "rise" if parameter.rises else "fall"
            raise BadUsage(f"The grid of {parameter.name} must {order} from value to value, got {list(values)}.")
        self.rule, self.values, self.count = rule, tuple(values), count
        # Pixels by [0 for their nearest seen class, 1 for their nearest unseen one; cell]. The number of a cell is made
        # of three: for how many values the seen one wins, truth, label.
        cells = (len(values) + 1) * (count + 1) * count
        self._counts = torch.zeros(2, cells, dtype=torch.int64, layout=torch.sparse_coo)

    def update(self, index: int, ranking: Ranking, truth: Tensor) -> None:
        """Count the pixels of ranked pictures, truth (B,Ho,Wo)."""
        turning = self._sign * decision.get(self.rule).turning(ranking)
        # For how many values the seen class wins: those up to and including the turning point.
        stays = torch.bucketize(turning, turning.new_tensor(self._bounds), right=True)
        cells = (stays * (self.count + 1) + self._rows(truth)) * self.count
        for kind, labels in enumerate((ranking.seen, ranking.unseen)):
            if labels.numel() and labels.flatten()[0] >= 0:  # -1: there is no class of this kind
                # Most neighbours agree, which leaves few to sort.
                found, pixels = torch.unique_consecutive((cells + labels).flatten(), return_counts=True)
                places, shape = torch.stack([torch.full_like(found, kind), found]).cpu(), self._counts.shape
                self._counts += torch.sparse_coo_tensor(places, pixels.cpu(), shape, check_invariants=False)
        self._counts = self._counts.coalesce()

    def _rows(self, truth: Tensor) -> Tensor:
        """The truth with void as one more class, which is quicker than to pick the labelled pixels."""
        void = truth == VOID
        labels = truth.masked_fill(void, 0)
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.count:
            found = f"{int(labels.min())} to {int(labels.max())}"
            raise BadUsage(f"truth holds the labels {found}, expected 0 to {self.count - 1} or void ({VOID}).")
        return truth.masked_fill(void, self.count)

    def merge(self, other: "Sweep") -> None:
        """Add what another sweep of the same rule and grid counted, on other pictures."""
        if (self.rule, self._bounds, self.count) != (other.rule, other._bounds, other.count):
            raise BadUsage("Only sweeps of the same rule, grid and classes can be added.")
        self._counts = (self._counts + other._counts).coalesce()

    def confusion(self, index: int) -> Tensor:
        """The confusion matrix (K,K) at the value of that index, indexed [truth, predicted]."""
        spans = self._spans()
        holds = (spans.start <= index) & (index < spans.stop)
        result = torch.zeros(self.count, self.count, dtype=torch.int64)
        result.view(-1).index_add_(0, (spans.truth * self.count + spans.label)[holds], spans.pixels[holds])
        return result

    def curve(self, unseen: Iterable[int]) -> Curve:
        """The scores at every value."""
        is_unseen = class_mask(list(unseen), self.count)
        spans = self._spans()
        hits = spans.where(spans.truth == spans.label)
        crossed = spans.where(~is_unseen[spans.truth] & is_unseen[spans.label])
        right, actual, predicted, seen_as_unseen = (
            part.along_grid(group, len(self.values), self.count)
            for part, group in (
                (hits, hits.truth), (spans, spans.truth), (spans, spans.label), (crossed, crossed.truth),
            )
        )  # fmt: skip
        rows = zip(right, actual, predicted, strict=True)
        return Curve(
            self.rule,
            self.values,
            tuple(scores.from_counts(*row, is_unseen) for row in rows),
            true_unseen=tuple(right[:, is_unseen].sum(1).tolist()),
            seen_as_unseen=tuple(seen_as_unseen.sum(1).tolist()),
        )

    def _spans(self) -> "_Spans":
        """What was counted: the seen label holds before the turning point, the unseen one from there on."""
        kind, cell = self._counts.indices()
        cell, label = cell // self.count, cell % self.count
        stays, truth = cell // (self.count + 1), cell % (self.count + 1)
        start, stop = torch.where(kind == 0, 0, stays), torch.where(kind == 0, stays, len(self.values))
        return _Spans(start, stop, truth, label, self._counts.values()).where(truth < self.count)  # without void


class _Spans(NamedTuple):
    """Groups of pixels with one truth that have one label from index `start` of the grid up to before `stop`."""

    start: Tensor
    stop: Tensor
    truth: Tensor
    label: Tensor
    pixels: Tensor

    def where(self, condition: Tensor) -> "_Spans":
        return _Spans(*(column[condition] for column in self))

    def along_grid(self, group: Tensor, values: int, groups: int) -> Tensor:
        """How many pixels of every group there are at every value, (values,groups)."""
        changes = torch.zeros(values + 1, groups, dtype=torch.int64)
        changes.view(-1).index_add_(0, self.start * groups + group, self.pixels)
        changes.view(-1).index_add_(0, self.stop * groups + group, -self.pixels)
        return changes.cumsum(0)[:-1]


def sweep(
    model: Model,
    problem: Problem,
    rules: Iterable[str] | None = None,
    grids: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Curve]:
    """Sweep several rules on the evaluation pictures of a problem in one pass: rule -> curve.

    Where processes work together, each takes its share of the pictures and all get the sum.

    Args:
        model: what ranks the pixels.
        problem: the pictures and the roles of their classes.
        rules: rules with a parameter; all of them if None.
        grids: parameter -> values, from nearest neighbour to the strongest correction; those not given have
            `Parameter.grid`.
    """
    sweeps = new_sweeps(model, problem, rules, grids)
    engine.run(model, problem, list(sweeps.values()))
    return {rule: each.curve(problem.vocabulary.unseen_indices) for rule, each in sweeps.items()}


def evaluate(model: Model, problem: Problem, decisions: Iterable[Decision]) -> tuple[list[Evaluation], float | None]:
    """`engine.evaluate`, and from the same pass the area under the seen-unseen curve of calibrated stacking (AUSUC).

    The area is that of the model and not of a value that somebody chose; None where the pictures do not show both seen
    and unseen classes.
    """
    scorings = [Scoring(each, problem.vocabulary.without_taught()) for each in decisions]
    sweeps = new_sweeps(model, problem, ["cs"]) if problem.vocabulary.unseen else {}
    seconds = engine.run(model, problem, [*scorings, *sweeps.values()])
    curves = [each.curve(problem.vocabulary.unseen_indices) for each in sweeps.values()]
    areas = [curve.area for curve in curves if not any(math.isnan(x) for x in curve.scores[0].three)]
    return [scoring.result(seconds) for scoring in scorings], (areas[0] if areas else None)


def fold_sweep(model: Model, fold: Problem) -> dict[str, Curve]:
    """Sweep all rules on the pictures that a fold is scored on: rule -> curve."""
    total = new_sweeps(model, fold)
    for pictures, times in scoring_parts(fold):
        part = new_sweeps(model, fold)
        engine.run(model, fold, list(part.values()), pictures)
        for rule, each in part.items():
            for _ in range(times):
                total[rule].merge(each)
    return {rule: each.curve(fold.vocabulary.unseen_indices) for rule, each in total.items()}


def new_sweeps(
    model: Model,
    problem: Problem,
    rules: Iterable[str] | None = None,
    grids: Mapping[str, Sequence[float]] | None = None,
    marked: Decision | None = None,
) -> dict[str, Sweep]:
    """The evaluators of `sweep`, for a pass that others look at too; the values of `marked` are put on their grids."""
    prototypes, found = model.prototypes(), {}
    reach = float(torch.cdist(prototypes, prototypes).max())
    for rule in decision.calibrated() if rules is None else rules:
        parameter = parameter_of(rule)
        values = (grids or {}).get(parameter.name) or parameter.grid(reach)
        if marked is not None:
            values = parameter.ordered({*values, marked.replace(rule).value})
        found[rule] = Sweep(rule, values, len(problem.vocabulary))
    return found


def to_csv(curves: Iterable[Curve]) -> str:
    """All points of all curves as one table."""
    columns = (*SCORES, "true_unseen", "seen_as_unseen")
    rows = [
        [curve.rule, curve.parameter, point[curve.parameter], *(point[name] for name in columns)]
        for curve in curves
        for point in curve.points()
    ]
    return csv_text([["rule", "parameter", "value", *columns], *rows])
