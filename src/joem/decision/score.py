"""How sure a decision is: how often a pixel at such distances from its class and from the next one is right."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage

if TYPE_CHECKING:
    from torch import Tensor

Weights = tuple[float, float, float]
"""The constant, the weight of the distance and that of the margin."""


def as_float(value: Any) -> float:
    """A number; NaN for what is none, and infinity for one that is too large to be a float.

    >>> as_float(1), as_float("1"), as_float(10**400)
    (1.0, nan, inf)
    """
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Score:
    """The chance that a pixel is right: 1 / (1 + exp(-(a + b d + c (d' - d)))).

    d is the distance to the class that the pixel took and d' that to the nearest other class, negative margins
    included. It is fitted on held-out seen classes (`joem.calibration.fit_score`), so it says of a model what it
    measured of its kin.

    Args:
        trained: a, b and c where the pixel took a class with training masks.
        new: a, b and c where it took another one.

    >>> import torch
    >>> score = Score(trained=(0.0, 0.0, 1.0), new=(0.0, -1.0, 0.0))
    >>> score(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 3.0]), torch.tensor([False, True]))
    tensor([0.5000, 0.2689])
    """

    trained: Weights
    new: Weights

    def __post_init__(self) -> None:
        for name in ("trained", "new"):
            given = getattr(self, name)
            numbers = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
            found = tuple(map(as_float, numbers))
            if len(found) != 3 or not all(map(math.isfinite, found)):
                raise BadUsage(f"score.{name} must be three numbers, got {given!r}.")
            object.__setattr__(self, name, found)

    def __call__(self, distance: "Tensor", other: "Tensor", new: "Tensor") -> "Tensor":
        """The chance of every pixel.

        Args:
            distance: d; an infinite one, where there is no class, is never right.
            other: d'; infinite where there is no other class, and the margin counts as none then.
            new: whether the class that was taken has no training masks.
        """
        import torch

        margin = torch.where(other.isinf(), 0.0, other - distance)
        rows = [torch.where(new, *pair) for pair in zip(_scalars(self.new), _scalars(self.trained), strict=True)]
        chance = torch.sigmoid(rows[0] + rows[1] * distance.nan_to_num(posinf=0.0) + rows[2] * margin)
        return torch.where(distance.isinf(), 0.0, chance)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON and YAML can hold."""
        return {"trained": list(self.trained), "new": list(self.new)}

    @classmethod
    def from_dict(cls, described: Any) -> "Score":
        """The inverse of `to_dict`."""
        if not isinstance(described, Mapping) or set(described) != {"trained", "new"}:
            raise BadUsage(f"score must hold trained and new, three numbers each, got {described!r}.")
        return cls(described["trained"], described["new"])


def _scalars(weights: Weights) -> "list[Tensor]":
    import torch

    return [torch.tensor(weight, dtype=torch.float32) for weight in weights]
