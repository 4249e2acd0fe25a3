"""The whole seen-unseen trade-off of a rule from one pass: every gamma and every sigma at the cost of one."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor

from joem import decision, scores
from joem.decision import Ranking
from joem.engine import Model, Problem, gathered, rank_stored, share
from joem.errors import BadUsage, choose
from joem.losses import class_mask
from joem.scores import Scores
from joem.vocabulary import VOID

SIGMAS = tuple(round(1.0 - 0.02 * step, 2) for step in range(50))
"""The default grid of sigma, from nearest neighbour (1) down."""

PAPER_GAMMAS = tuple(0.5 * step for step in range(25))
"""The grid of gamma in the paper's figure 5."""

PAPER_SIGMAS = tuple(round(1.0 - 0.05 * step, 2) for step in range(20))
"""The grid of sigma in the paper's figure 5."""

PARAMETER = {"cs": "gamma", "ac": "sigma", "ratio": "sigma"}
"""What each rule that can be swept is set by."""

_PENDING = 1 << 20  # counts that may wait to be sorted in


@dataclass(frozen=True)
class Curve:
    """What one rule reaches at every value of its parameter.

    Attributes:
        rule: cs, ac or ratio.
        values: gamma or sigma, from the weakest correction to the strongest.
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
        """The name of what varies, gamma or sigma."""
        return PARAMETER[self.rule]

    @property
    def best(self) -> int:
        """The place of the best hIoU; of several, the one nearest to no correction."""
        return max(range(len(self.values)), key=lambda place: (self.scores[place].hiou, -place))

    @property
    def area(self) -> float:
        """Area under the seen-unseen curve, in percent."""
        return scores.trade_off_area(
            [point.miou_seen for point in self.scores], [point.miou_unseen for point in self.scores]
        )

    def nearest(self, value: float) -> int:
        """The place of the value on the grid that is nearest to the given one."""
        return min(range(len(self.values)), key=lambda place: abs(self.values[place] - value))

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
            tuple(point[key] for point in points) for key in (PARAMETER[rule], "true_unseen", "seen_as_unseen")
        )
        return cls(rule, values, tuple(map(Scores.from_dict, points)), true_unseen, seen_as_unseen)


class Sweep:
    """Exact scores of a rule for every value of its parameter, from one pass over the pixels.

    A pixel's nearest seen and nearest unseen class are fixed; along the grid it changes sides once, at its turning
    point. So it is enough to count the pixels by (turning point's place on the grid, truth, label), once with the
    seen and once with the unseen label. Only what occurs is kept: memory follows the number of different triples,
    not the square of the number of classes.

    Args:
        rule: cs, ac or ratio.
        values: the grid, from nearest neighbour to the strongest correction: gamma rises, sigma falls.
        count: the number of classes K.
        squared: sigma is meant for squared distances, as in the authors' code.
    """

    def __init__(self, rule: str, values: Sequence[float], count: int, squared: bool = False) -> None:
        parameter = PARAMETER[choose("rule to sweep", rule, PARAMETER)]
        rising = [value if parameter == "gamma" else -value for value in values]
        if not rising or sorted(set(rising)) != rising:
            order = "rise" if parameter == "gamma" else "fall"
            raise BadUsage(f"The grid of {parameter} must {order} from value to value, got {list(values)}.")
        self.rule, self.values, self.count = rule, tuple(values), count
        # Bounds rise with the strength of the correction: gamma itself, or minus the ratio.
        if parameter == "gamma":
            self._bounds = [decision.distance_margin(value) for value in values]
        else:
            self._bounds = [-decision.distance_ratio(value, squared) for value in values]
        self._seen, self._unseen = _Tally(), _Tally()

    def update(self, ranking: Ranking, truth: Tensor) -> None:
        """Count the pixels of ranked pictures, truth (B,Ho,Wo)."""
        turning = decision.TURNING_POINTS[self.rule](ranking)
        if PARAMETER[self.rule] == "sigma":
            turning = -turning
        # For how many values the seen class wins: those up to and including the turning point.
        stays = torch.bucketize(turning, turning.new_tensor(self._bounds), right=True)
        cells = (stays * (self.count + 1) + self._rows(truth)) * self.count
        for tally, labels in ((self._seen, ranking.seen), (self._unseen, ranking.unseen)):
            if labels.numel() and labels.flatten()[0] >= 0:  # -1: there is no class of this kind
                tally.add((cells + labels).flatten())

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
        self._seen.merge(*other._seen.table())
        self._unseen.merge(*other._unseen.table())

    def confusion(self, place: int) -> Tensor:
        """The confusion matrix (K,K) at one value, indexed [truth, predicted]."""
        spans = self._spans()
        holds = (spans.start <= place) & (place < spans.stop)
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
        parts = []
        for is_seen, tally in ((True, self._seen), (False, self._unseen)):
            cells, pixels = tally.table()
            label, row = cells % self.count, cells // self.count
            truth, stays = row % (self.count + 1), row // (self.count + 1)
            first, last = torch.zeros_like(stays), torch.full_like(stays, len(self.values))
            parts.append(_Spans(*((first, stays) if is_seen else (stays, last)), truth, label, pixels))
        spans = _Spans(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
        return spans.where(spans.truth < self.count)  # without void


class _Spans(NamedTuple):
    """Groups of pixels with one truth that have one label from place `start` of the grid up to before `stop`."""

    start: Tensor
    stop: Tensor
    truth: Tensor
    label: Tensor
    pixels: Tensor

    def where(self, condition: Tensor) -> "_Spans":
        return _Spans(*(column[condition] for column in self))

    def along_grid(self, group: Tensor, places: int, groups: int) -> Tensor:
        """How many pixels of every group there are at every place, (places,groups)."""
        changes = torch.zeros(places + 1, groups, dtype=torch.int64)
        changes.view(-1).index_add_(0, self.start * groups + group, self.pixels)
        changes.view(-1).index_add_(0, self.stop * groups + group, -self.pixels)
        return changes.cumsum(0)[:-1]


class _Tally:
    """How often each number occurs, for those that do."""

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.int64)
        self._parts = [(nothing, nothing)]  # the first is the sorted table, the others wait

    def add(self, numbers: Tensor) -> None:
        """Count numbers (N,), first those next to each other: most neighbours agree, which leaves few to sort."""
        self.merge(*torch.unique_consecutive(numbers, return_counts=True))

    def merge(self, numbers: Tensor, counts: Tensor) -> None:
        """Add counts; a number may come several times."""
        self._parts.append((numbers.cpu(), counts.cpu()))
        if sum(len(part) for part, _ in self._parts[1:]) > _PENDING:
            self.table()

    def table(self) -> tuple[Tensor, Tensor]:
        """The numbers that occurred, sorted, and how often each did."""
        if len(self._parts) > 1:
            numbers, counts = (torch.cat(column) for column in zip(*self._parts, strict=True))
            found, place = torch.unique(numbers, return_inverse=True)
            self._parts = [(found, torch.zeros_like(found).index_add_(0, place, counts))]
        return self._parts[0]


def sweep(
    model: Model,
    problem: Problem,
    rules: Sequence[str] = ("cs", "ac"),
    gammas: Sequence[float] | None = None,
    sigmas: Sequence[float] = SIGMAS,
    progress: bool = True,
    ranked: Iterable[tuple[Ranking, Tensor]] | None = None,
) -> dict[str, Curve]:
    """Sweep several rules on the evaluation pictures of a problem in one pass.

    Where processes work together (`torch.distributed`), each takes its share of the pictures and all get the sum.

    Args:
        model: what ranks the pixels; its recipe says whether sigma is meant for squared distances.
        problem: the pictures and the roles of their classes.
        rules: some of cs, ac and ratio.
        gammas: the grid of cs, `gamma_grid` of the model if None.
        sigmas: the grid of ac and ratio.
        progress: show a progress bar.
        ranked: what `rank_dataset` gave for this process's `engine.share`, if the pass has been made already.
    """
    grids = {"gamma": gamma_grid(model) if gammas is None else gammas, "sigma": sigmas}
    squared = model.recipe.decision.squared
    sweeps = [
        Sweep(rule, grids[PARAMETER[choose("rule to sweep", rule, PARAMETER)]], len(problem.vocabulary), squared)
        for rule in rules
    ]
    for ranking, truth in ranked or rank_stored(model, problem, share(problem.val), progress):
        for one in sweeps:
            one.update(ranking, truth)
    sweeps = _summed(sweeps)
    return {one.rule: one.curve(problem.vocabulary.unseen_indices) for one in sweeps}


def gamma_grid(model: Model, steps: int = 48) -> tuple[float, ...]:
    """Values of gamma from 0 to where every pixel is unseen, finer near 0.

    By the triangle inequality d_unseen - d_seen is at most the distance between the two prototypes, so the largest
    distance between prototypes ends the grid.
    """
    prototypes = model.prototypes()
    largest = float(torch.cdist(prototypes, prototypes).max())
    return tuple(largest * (step / steps) ** 2 for step in range(steps + 1))


def to_csv(curves: Iterable[Curve]) -> str:
    """All points of all curves as one table."""
    text = io.StringIO()
    columns = ("rule", "parameter", "value", "miou_seen", "miou_unseen", "hiou", "true_unseen", "seen_as_unseen")
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    for curve in curves:
        for point in curve.points():
            value = point.pop(curve.parameter)
            writer.writerow({"rule": curve.rule, "parameter": curve.parameter, "value": value, **point})
    return text.getvalue()


def join_processes() -> None:
    """Let the processes that torchrun started find each other; alone, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")


def _summed(sweeps: list[Sweep]) -> list[Sweep]:
    """The sweeps of all processes added up, on every one of them."""
    first, *others = gathered(sweeps)
    for other in others:
        for total, part in zip(first, other, strict=True):
            total.merge(part)
    return first
