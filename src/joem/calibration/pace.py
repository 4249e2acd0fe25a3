"""How fast and how long a method learns, chosen on held-out seen classes by the same trials for every method."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from joem.calibration.choosing import hiou_by
from joem.errors import BadUsage
from joem.recipe import Recipe

_OPTIMISERS = ("visual", "semantic", "generator")


@dataclass(frozen=True)
class Pace:
    """Learning rates and length of a training, in multiples of a recipe's own.

    >>> Pace(0.3, 2.0).recipe(Recipe()).train.epochs, str(Pace(0.3, 2.0))
    (100, 'rate-0.3-length-2')
    """

    rate: float = 1.0
    length: float = 1.0

    def recipe(self, base: Recipe) -> Recipe:
        """A recipe at this pace: every optimiser's rate and every stage's length change alike."""
        train = base.train
        optimisers = {name: getattr(train, name) for name in _OPTIMISERS}
        faster = {name: replace(each, lr=each.lr * self.rate) for name, each in optimisers.items()}
        epochs, steps = (self._times(whole) for whole in (train.epochs, train.steps))
        return replace(base, train=replace(train, epochs=epochs, steps=steps, **faster))

    def _times(self, whole: int) -> int:
        """So many epochs or steps times the length; lengths that come to the same would be no trial."""
        found = self.length * whole
        if not math.isclose(found, round(found), abs_tol=1e-6) or (whole and not round(found)):
            raise BadUsage(
                f"A length of {self.length:g} times {whole} epochs or steps is {found:g}, no whole number above 0: "
                "give other lengths, or other --train.epochs."
            )
        return round(found)

    def __str__(self) -> str:
        """As the folder of its trials is called."""
        return f"rate-{self.rate:g}-length-{self.length:g}"


@dataclass(frozen=True)
class Paces:
    """The paces to try: every rate at the first length, then the other lengths with the best rate.

    Args:
        rates: multiples of a recipe's learning rates.
        lengths: multiples of its epochs, the first of them for the trials of the rates.
    """

    rates: Sequence[float] = (1.0,)
    lengths: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        for name, values in {"rates": self.rates, "lengths": self.lengths}.items():
            wrong = [value for value in values if not 0 < value < math.inf]
            if wrong or not values:
                raise BadUsage(f"{name} are multiples of the recipe's own, numbers above 0, got {wrong or 'none'}.")

    def first(self) -> list[Pace]:
        """Every rate at the first length."""
        return [Pace(rate, self.lengths[0]) for rate in dict.fromkeys(self.rates)]

    def then(self, best: Pace) -> list[Pace]:
        """The other lengths with the best rate."""
        return [Pace(best.rate, length) for length in dict.fromkeys(self.lengths[1:]) if length != best.length]

    @property
    def trials(self) -> int:
        """How many paces are tried, the same number for every method."""
        return len(self.first()) + len(self.then(self.first()[0]))


def best_pace(tried: Mapping[Pace, float]) -> Pace:
    """The pace with the highest score; where several have it, the one nearest to the recipe's own.

    >>> best_pace({Pace(0.3): 20.0, Pace(1.0): 20.0, Pace(3.0): 10.0}).rate
    1.0
    """

    def change(pace: Pace) -> float:
        return max(pace.rate, 1 / pace.rate) * max(pace.length, 1 / pace.length)

    return max(tried, key=lambda pace: (tried[pace], -change(pace)))


def score_of_trial(folds: Iterable[Mapping[str, Any]], rules: Iterable[str]) -> float:
    """The mean hIoU that the results of some folds reach by the best of a method's own rules.

    Args:
        folds: results of `Folds.jobs`.
        rules: the rules by which the method decides; the value of each is the one that these folds would choose.
    """
    curves = [fold["curves"] for fold in folds]
    return max(hiou_by(rule, curves) for rule in rules)
