"""The rules that decide between seen and unseen classes, one object each: everything about a rule is said here.

A rule looks at a pixel's `Ranking` and says at which value of its parameter the pixel turns from its nearest seen to
its nearest unseen class (`turning`). Labels, sweeps, the exported graph and the page all follow from that one number:
the unseen class wins where the parameter is beyond it. A new rule is one more `Rule` in `RULES`.

torch is only imported where tensors are computed with, so that the command line can check a rule at once.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from joem.decision.score import Score, as_float
from joem.errors import BadUsage, choose

if TYPE_CHECKING:
    from torch import Tensor

    from joem.decision.ranking import Ranking


@dataclass(frozen=True)
class Parameter:
    """What a rule is set by.

    Args:
        name: as options and recipes call it.
        symbol: as formulas write it.
        about: what it does, for help texts.
        neutral: the value that corrects nothing.
        largest: the largest value that makes sense; the smallest is 0, which is only allowed where it is neutral.
        rises: whether larger values correct more.
        grid: the values to try, from neutral to the strongest correction, given the largest distance between two
            prototypes.
    """

    name: str
    symbol: str
    about: str
    neutral: float
    largest: float
    rises: bool
    grid: Callable[[float], tuple[float, ...]]

    def check(self, value: float | None) -> float:
        """The value, if it is allowed.

        >>> SIGMA.check(0.5)
        0.5
        """
        number = as_float(value)
        above_zero = number > 0 or (number == 0 and self.neutral == 0)
        if value is None or not above_zero or not number <= self.largest or number == math.inf:
            opening = "[" if self.neutral == 0 else "("
            closing = f"{self.largest:g}]" if self.largest < math.inf else "infinity)"
            raise BadUsage(
                f"{self.name} must be in {opening}0,{closing} ({self.neutral:g} is nearest neighbour), got {value}."
            )
        return value

    def ordered(self, values: Iterable[float]) -> list[float]:
        """The values from the weakest correction to the strongest, each once.

        >>> SIGMA.ordered([0.5, 1.0, 0.5])
        [1.0, 0.5]
        """
        return sorted(set(values), reverse=not self.rises)


@dataclass(frozen=True)
class Rule:
    """How a pixel is decided once its nearest classes are known.

    Args:
        name: as options and recipes call it.
        title: for tables and plots.
        about: one sentence for people who meet it on the page.
        parameter: what it is set by; None where there is nothing to set.
        turning: the parameter's value at which each pixel turns, (B,Ho,Wo), from its ranking; without a parameter,
            the unseen class wins below 0.
        paper_grid: the values of the paper's figure 5, if it is in it.
        second: whether it looks at the second nearest seen class.
        candidate: whether it takes part where held-out classes choose a rule.
        colour: of its curves.
        line: style of its curves.
        marker: of the value chosen on them.
    """

    name: str
    title: str
    about: str
    turning: "Callable[[Ranking], Tensor]"
    parameter: Parameter | None = None
    paper_grid: tuple[float, ...] = ()
    second: bool = True
    candidate: bool = True
    colour: str = "#cc79a7"
    line: str = ":"
    marker: str = "D"

    def unseen_wins(self, ranking: "Ranking", value: "float | Tensor") -> "Tensor":
        """Where the nearest unseen class wins over the nearest seen one; where distances tie, the seen class does."""
        turning = self.turning(ranking)
        return turning < value if self.parameter is None or self.parameter.rises else turning > value

    def decide(self, ranking: "Ranking", value: float | None = None) -> "Tensor":
        """Labels (B,Ho,Wo) of ranked pixels; a rule without a parameter needs no value.

        >>> import torch
        >>> from joem.decision import rank
        >>> ranking = rank(torch.tensor([[[[0.5, 0.9, 1.2]]]]), torch.tensor([[0.0], [3.0]]), unseen=[1])
        >>> [RULES["ac"].decide(ranking, sigma).flatten().tolist() for sigma in (1.0, 0.5, 0.4)]
        [[0, 0, 0], [0, 0, 1], [0, 1, 1]]
        """
        import torch

        value = 0.0 if self.parameter is None else self.parameter.check(value)
        return torch.where(self.unseen_wins(ranking, value), ranking.unseen, ranking.seen)

    def with_value(self, value: float) -> str:
        """The rule with its parameter, for people.

        >>> RULES["cs"].with_value(0.053), RULES["nn"].with_value(0)
        ('CS, gamma 0.053', 'NN')
        """
        return f"{self.name.upper()}, {self.parameter.name} {value:.3g}" if self.parameter else self.name.upper()


def _margin(ranking: "Ranking") -> "Tensor":
    return ranking.unseen_distance - ranking.seen_distance


def _ratio_of_distances(ranking: "Ranking") -> "Tensor":
    import torch

    smallest = torch.finfo(ranking.unseen_distance.dtype).tiny  # 0 / 0 is a tie, not nan
    return ranking.seen_distance / ranking.unseen_distance.clamp(min=smallest)


def _ratio_of_the_two_nearest(ranking: "Ranking") -> "Tensor":
    """The same, but 0, and so never above sigma, where a second seen class comes before the unseen one."""
    import torch

    among_two_nearest = ranking.unseen_distance < ranking.second_seen_distance
    return torch.where(among_two_nearest, _ratio_of_distances(ranking), 0.0)


def _lead_of_probability(ranking: "Ranking") -> "Tensor":
    """By how much the nearest seen class is more probable than the nearest unseen one.

    Probabilities are the softmax of -d² / 2, which for SPNet's unit word vectors is that of its products, over the two
    nearest seen classes and the nearest unseen one: a ranking knows no other.
    """
    import torch
    import torch.nn.functional as F

    seen, second, unseen = ranking.seen_distance, ranking.second_seen_distance, ranking.unseen_distance
    lead = (unseen - seen) * (unseen + seen) / 2  # of the logits
    nearer = torch.minimum(seen, unseen)
    # (e^a - e^b) / (e^a + e^b + e^c) = tanh((a - b) / 2) sigmoid(log(e^a + e^b) - c): no sign is lost near a tie.
    both = (second - nearer) * (second + nearer) / 2 + F.softplus(-lead.abs())
    found = (lead / 2).tanh() * both.sigmoid()
    return torch.where(unseen.isinf(), torch.inf, found)


GAMMA = Parameter(
    "gamma",
    "γ",
    "by how much unseen classes count as nearer; 0 is nearest neighbour",
    neutral=0.0,
    largest=math.inf,
    rises=True,
    # By the triangle inequality d_unseen - d_seen is at most the distance between the two prototypes.
    grid=lambda reach: tuple(reach * (step / 48) ** 2 for step in range(49)),
)
SIGMA = Parameter(
    "sigma",
    "σ",
    "the ratio of distances above which the unseen class is taken; 1 is nearest neighbour",
    neutral=1.0,
    largest=1.0,
    rises=False,
    grid=lambda reach: tuple(round(1.0 - 0.02 * step, 2) for step in range(50)),
)
DISCOUNT = Parameter(
    "discount",
    "δ",
    "how much is taken from the probabilities of trained classes; 0 is nearest neighbour",
    neutral=0.0,
    largest=1.0,
    rises=True,
    # Most probabilities are near 0 or 1: the grid is dense at both ends.
    grid=lambda reach: tuple(round(0.5 - 0.5 * math.cos(math.pi * step / 48), 6) for step in range(49)),
)

NEAREST = "nn"
"""The rule that corrects nothing and has nothing to choose."""

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(NEAREST, "nearest neighbour (NN)", "Every pixel takes its nearest class.", _margin, second=False),
        Rule(
            "cs",
            "calibrated stacking (CS)",
            "New classes count as nearer by gamma.",
            _margin,
            GAMMA,
            paper_grid=tuple(0.5 * step for step in range(25)),
            second=False,
            colour="#d55e00",
            line="--",
            marker="s",
        ),
        Rule(
            "ac",
            "Apollonius (AC)",
            "Where the nearest class is trained and the second is new, the first stays only if its distance is at most "
            "sigma times the second's.",
            _ratio_of_the_two_nearest,
            SIGMA,
            paper_grid=tuple(round(1.0 - 0.05 * step, 2) for step in range(20)),
            colour="#0072b2",
            line="-",
            marker="o",
        ),
        Rule(
            "ratio",
            "ratio wherever they rank",
            "The test of AC between the nearest trained and the nearest new class, wherever they rank.",
            _ratio_of_distances,
            SIGMA,
            second=False,
            candidate=False,  # studied, but no rule of the paper
            colour="#009e73",
            line="-.",
            marker="^",
        ),
        Rule(
            "probability",
            "seen probabilities less delta",
            "Trained classes lose discount of their probability (SPNet's rule).",
            _lead_of_probability,
            DISCOUNT,
            candidate=False,  # a probability of distances means something for SPNet only
            colour="#e69f00",
            line="--",
            marker="v",
        ),
    )
}
"""Every rule by name."""


def get(name: str) -> Rule:
    """The rule of that name; an unknown name answers with the list."""
    return RULES[choose("rule", name, RULES)]


def calibrated() -> dict[str, Rule]:
    """The rules that have a parameter to choose."""
    return {name: rule for name, rule in RULES.items() if rule.parameter is not None}


def parameter_of(rule: str) -> Parameter:
    """What a rule is swept over; a rule that has nothing to set answers with the list of those that do."""
    found = RULES[choose("rule to sweep", rule, calibrated())].parameter
    assert found is not None
    return found


def parameters() -> dict[str, Parameter]:
    """What rules are set by, each once.

    >>> list(parameters())
    ['gamma', 'sigma', 'discount']
    """
    return {rule.parameter.name: rule.parameter for rule in RULES.values() if rule.parameter is not None}


@dataclass(frozen=True)
class Decision:
    """A rule, the values of the parameters, its own and those of the rules one may change to, and how sure it is.

    Recipes write it in one level: `decision: {rule: ac, sigma: 0.8, gamma: 0.1}`.

    >>> Decision("ac", {"sigma": 0.8}).value, Decision("ac", {"sigma": 0.8}).replace(rule="cs").value
    (0.8, 0.0)
    """

    rule: str = NEAREST
    values: Mapping[str, float] = field(default_factory=dict)
    score: Score | None = None

    def __post_init__(self) -> None:
        get(self.rule)
        known = parameters()
        for name, value in self.values.items():
            known[choose("parameter of a rule", name, known)].check(value)

    @property
    def value(self) -> float:
        """The value of the rule's own parameter; the one that corrects nothing where none is given."""
        parameter = RULES[self.rule].parameter
        return 0.0 if parameter is None else self.values.get(parameter.name, parameter.neutral)

    @property
    def second(self) -> bool:
        """Whether its rule looks at the second nearest seen class."""
        return RULES[self.rule].second

    def replace(self, rule: str | None = None, **values: float | None) -> "Decision":
        """The same with another rule or other values; None leaves what there is."""
        given = {name: value for name, value in values.items() if value is not None}
        return Decision(rule or self.rule, {**self.values, **given}, self.score)

    def decide(self, ranking: "Ranking") -> "Tensor":
        """Labels (B,Ho,Wo) of ranked pixels."""
        return RULES[self.rule].decide(ranking, self.value)

    def __str__(self) -> str:
        return RULES[self.rule].with_value(self.value)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON and YAML can hold."""
        return {"rule": self.rule, **self.values, **({"score": self.score.to_dict()} if self.score else {})}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "Decision":
        """The inverse of `to_dict`."""
        values = dict(described)
        rule, score = values.pop("rule", NEAREST), values.pop("score", None)
        return cls(rule, values, None if score is None else Score.from_dict(score))


def check_values(rule: str, values: Mapping[str, float | None]) -> None:
    """Refuse a value that the rule does not look at: it would change nothing, and nobody would know why."""
    own = get(rule).parameter
    for name, value in values.items():
        if value is not None and (own is None or name != own.name):
            users = [each.name for each in calibrated().values() if each.parameter and each.parameter.name == name]
            raise BadUsage(
                f"--{name} is for the rule {' or '.join(users)}, but the rule is {rule}: add --rule {users[0]}."
            )
