"""From features and prototypes to labels: distances, rankings, and the rules that decide by them.

`rules` says everything about each rule; `ranking` finds what they decide by, exactly and fast. Rank once, decide many
times. Loads torch when it is first needed.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from joem.decision.rules import (
    NEAREST,
    RULES,
    Decision,
    Parameter,
    Rule,
    calibrated,
    check_values,
    get,
    parameter_of,
    parameters,
)
from joem.decision.score import Score

if TYPE_CHECKING:
    from torch import Tensor

    from joem.decision.ranking import Norms, Ranking, Window, distances, nearest, norms, rank, windows
    from joem.vocabulary import Classes

__all__ = [
    "NEAREST",
    "RULES",
    "Decision",
    "Norms",
    "Parameter",
    "Ranking",
    "Rule",
    "Score",
    "Window",
    "apollonius",
    "calibrated",
    "calibrated_stacking",
    "check_values",
    "distances",
    "get",
    "nearest",
    "norms",
    "parameter_of",
    "parameters",
    "rank",
    "windows",
]

_OF_RANKING = ("Norms", "Ranking", "Window", "distances", "nearest", "norms", "rank", "windows")


def __getattr__(name: str) -> Any:
    if name in _OF_RANKING:
        return getattr(import_module("joem.decision.ranking"), name)
    raise AttributeError(f"module 'joem.decision' has no attribute {name!r}")


def calibrated_stacking(
    features: "Tensor",
    prototypes: "Tensor",
    unseen: "Classes",
    gamma: float,
    size: Sequence[int] | None = None,
) -> "Tensor":
    """CS: argmin_c d(v, mu_c) - gamma [c is unseen], as labels (B,Ho,Wo).

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        gamma: how much nearer unseen classes are taken to be, 0 or more; 0 is NN.
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).

    >>> import torch
    >>> v, mu = torch.tensor([[[[0.0, 1.0, 2.0]]]]), torch.tensor([[0.0], [3.0]])
    >>> calibrated_stacking(v, mu, unseen=[1], gamma=2.0)
    tensor([[[0, 1, 1]]])
    """
    from joem.decision.ranking import rank

    return RULES["cs"].decide(rank(features, prototypes, unseen, size), gamma)


def apollonius(
    features: "Tensor",
    prototypes: "Tensor",
    unseen: "Classes",
    sigma: float,
    size: Sequence[int] | None = None,
    *,
    squared: bool = False,
) -> "Tensor":
    """AC, Apollonius calibration, as labels (B,Ho,Wo).

    Where the nearest class is seen and the second nearest unseen, at distances d1 <= d2, the first is kept if
    d1 / d2 <= sigma, that is inside the Apollonius circle, and the second taken otherwise. Elsewhere it is NN.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu, (K,C).
        unseen: indices of the unseen classes, or K booleans; none and all are allowed.
        sigma: in (0,1]; 1 is NN.
        size: (Ho,Wo) the features are upsampled to before the distance is taken; None keeps (H,W).
        squared: compare d1^2 / d2^2 with sigma, as the authors' code does: the same as its root on distances.

    >>> import torch
    >>> v, mu = torch.tensor([[[[0.5, 0.9, 1.2]]]]), torch.tensor([[0.0], [3.0]])
    >>> apollonius(v, mu, unseen=[1], sigma=0.5)
    tensor([[[0, 0, 1]]])
    """
    from joem.decision.ranking import rank
    from joem.decision.rules import SIGMA

    ranking = rank(features, prototypes, unseen, size)
    return RULES["ac"].decide(ranking, SIGMA.check(sigma) ** 0.5 if squared else sigma)
