"""Every rule against its equation, the turning points that all else follows from, parameters and decisions."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_decisions import assert_as_defined, both_ways, defined_distances, problems  # noqa: F401

from joem import decision
from joem.decision import RULES, Decision, Ranking
from joem.errors import BadUsage

PARAMETERS = decision.parameters()


@settings(deadline=None, max_examples=120)
@given(problems(), st.floats(0, 3), st.floats(0.3, 1), st.booleans())
def test_every_rule_is_as_defined(problem, gamma, sigma, squared):
    features, prototypes, unseen, size = problem
    expected = defined_distances(features, prototypes, size)
    ranking = decision.rank(features, prototypes, unseen, size)
    labels = {
        "nn": decision.nearest(features, prototypes, size),
        "cs": decision.calibrated_stacking(features, prototypes, unseen, gamma, size),
        "ac": decision.apollonius(features, prototypes, unseen, sigma, size, squared=squared),
        "ratio": RULES["ratio"].decide(ranking, sigma**0.5 if squared else sigma),
        "probability": RULES["probability"].decide(ranking, 1 - sigma),
    }
    assert set(labels) == set(RULES)
    for rule, found in labels.items():
        assert_as_defined(
            found, expected, set(unseen), rule, gamma=gamma, sigma=sigma, squared=squared, discount=1 - sigma
        )
    assert torch.equal(RULES["nn"].decide(ranking), labels["nn"])
    assert torch.equal(Decision("cs", {"gamma": gamma, "sigma": 0.5}).decide(ranking), labels["cs"])


def test_sigma_one_and_gamma_zero_are_nearest_neighbour():
    torch.manual_seed(0)
    features, prototypes, unseen = torch.randn(2, 8, 6, 6), torch.randn(9, 8), [1, 4, 5]
    nearest = decision.nearest(features, prototypes, (24, 24))
    ranking = decision.rank(features, prototypes, unseen, (24, 24))
    assert torch.equal(decision.calibrated_stacking(features, prototypes, unseen, 0.0, (24, 24)), nearest)
    assert torch.equal(decision.apollonius(features, prototypes, unseen, 1.0, (24, 24)), nearest)
    assert torch.equal(RULES["nn"].decide(ranking), nearest)
    assert torch.equal(RULES["ratio"].decide(ranking, 1.0), nearest)
    assert torch.equal(RULES["probability"].decide(ranking, 0.0), nearest)


def test_spnets_rule_takes_gamma_from_the_softmax_of_its_products():
    """With two seen classes and one unseen one, probabilities are exact: SPNet's own rule, straight from its words."""
    torch.manual_seed(0)
    words = torch.nn.functional.normalize(torch.randn(3, 5), dim=1)
    features = 3 * torch.randn(1, 5, 6, 7)
    probabilities = torch.einsum("bchw,kc->bkhw", features, words).softmax(dim=1)
    ranking = decision.rank(features, words, unseen=[2])
    for discount in (0.0, 0.2, 0.6, 0.95):
        expected = (probabilities - discount * torch.tensor([1.0, 1.0, 0.0])[:, None, None]).argmax(dim=1)
        assert torch.equal(RULES["probability"].decide(ranking, discount), expected)


def test_boundary_is_the_circle_of_the_supplement():
    sigma, a, c = 0.6, torch.tensor([0.2, -0.3]), torch.tensor([1.1, 0.4])
    grid = torch.stack(torch.meshgrid(torch.linspace(-2, 2, 81), torch.linspace(-2, 2, 81), indexing="ij"))
    centre = (a - sigma**2 * c) / (1 - sigma**2)
    radius = sigma * (a - c).norm() / (1 - sigma**2)
    from_centre = (grid - centre[:, None, None]).norm(dim=0)
    labels = decision.apollonius(grid.unsqueeze(0), torch.stack((a, c)), unseen=[1], sigma=sigma)[0]
    clear = (from_centre - radius).abs() > 1e-4
    assert torch.equal(labels[clear], (from_centre > radius).long()[clear])
    assert set(labels.unique().tolist()) == {0, 1}


def test_squared_sigma_is_the_square_of_sigma():
    torch.manual_seed(0)
    features, prototypes = torch.randn(1, 4, 8, 8), torch.randn(6, 4)
    squared = decision.apollonius(features, prototypes, [0, 3], 0.64, squared=True)
    assert torch.equal(squared, decision.apollonius(features, prototypes, [0, 3], 0.8))
    assert not torch.equal(squared, decision.apollonius(features, prototypes, [0, 3], 0.64))


def test_apollonius_leaves_a_second_seen_class_alone_but_ratio_does_not():
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[1.0], [1.1], [-1.2]]), unseen=[2])
    assert RULES["ac"].decide(ranking, 0.5).item() == 0
    assert RULES["ratio"].decide(ranking, 0.5).item() == 2


# ------------------------------------------------------------------------------------------ turning points


@st.composite
def rankings(draw) -> Ranking:
    """Distances that tie often, are zero, and infinite where there is no such class."""
    some = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 2.0])
    kind = draw(st.sampled_from(["both", "one seen", "seen only", "unseen only"]))
    pixels = []
    for _ in range(draw(st.integers(1, 12))):
        first, second = sorted([draw(some), draw(some)])
        other = draw(some)
        pixels.append(
            {
                "both": (first, second, other),
                "one seen": (first, math.inf, other),
                "seen only": (first, second, math.inf),
                "unseen only": (math.inf, math.inf, other),
            }[kind]
        )
    first, second, other = (torch.tensor(column)[None, None] for column in zip(*pixels, strict=True))
    seen = torch.full(first.shape, -1 if kind == "unseen only" else 3)
    unseen = torch.full(first.shape, -1 if kind == "seen only" else 7)
    return Ranking(seen, first, second, unseen, other)


def wins_by_loop(rule, first, second, other, value):
    """Whether the unseen class wins at one pixel, straight from the definition of each rule."""
    if rule == "nn":
        return other < first
    if rule == "cs":
        return other < math.inf and (first == math.inf or other - value < first)
    if other == math.inf:
        return False
    if first == math.inf or other < first:
        return True
    if rule == "probability":
        shares = [math.exp((first**2 - d**2) / 2) for d in (first, second, other)]
        return (shares[0] - shares[2]) / sum(shares) < value
    if rule == "ac" and other >= second:  # the two nearest classes are seen
        return False
    return first > value * other  # d1 / d2 > sigma; 0 / 0 is a tie


VALUES = {
    "gamma": [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0],
    "sigma": [1.0, 0.75, 0.5, 0.25, 1 / 3, 0.01],
    "discount": [0.0, 0.1, 0.9],
}


@settings(deadline=None, max_examples=80)
@given(rankings(), st.sampled_from(sorted(RULES)))
def test_labels_follow_the_definition_and_the_turning_point_ties_and_infinities_included(ranking, name):
    rule = RULES[name]
    turning = rule.turning(ranking)
    assert not turning.isnan().any()
    for value in VALUES[rule.parameter.name] if rule.parameter else [0.0]:
        expected = [
            7 if wins_by_loop(name, *pixel, value) else 3
            for pixel in zip(*(part.flatten().tolist() for part in (ranking[1], ranking[2], ranking[4])), strict=True)
        ]
        found = rule.decide(ranking, value if rule.parameter else None).flatten()
        absent = 3 if (ranking.seen == -1).all() else 7 if (ranking.unseen == -1).all() else None
        assert absent not in expected
        assert found.tolist() == expected
        beyond = turning < value if rule.parameter is None or rule.parameter.rises else turning > value
        assert torch.equal(rule.unseen_wins(ranking, value), beyond)
        assert torch.equal(rule.unseen_wins(ranking, torch.tensor(value)), beyond)  # as the exported graph asks


@settings(deadline=None, max_examples=40)
@given(rankings(), st.sampled_from(sorted(decision.calibrated())))
def test_a_pixel_that_turned_stays_turned_as_the_correction_grows(ranking, name):
    rule = RULES[name]
    before = rule.unseen_wins(ranking, rule.parameter.neutral)
    for value in rule.parameter.grid(3.0):
        now = rule.unseen_wins(ranking, value)
        assert (now | ~before).all()
        before = now


def test_at_the_turning_point_itself_the_seen_class_stays():
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[1.0], [2.0]]), unseen=[1])
    for name, value in {"cs": 1.0, "ac": 0.5, "ratio": 0.5}.items():
        rule = RULES[name]
        assert rule.turning(ranking).item() == value
        assert rule.decide(ranking, value).item() == 0
        assert rule.decide(ranking, value + (1e-3 if rule.parameter.rises else -1e-3)).item() == 1


# ------------------------------------------------------------------------- parameters, rules and decisions


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gamma", None, r"gamma must be in \[0,infinity\) \(0 is nearest neighbour\), got None"),
        ("gamma", -1.0, "got -1.0"),
        ("gamma", math.inf, "got inf"),
        ("gamma", math.nan, "got nan"),
        ("gamma", "much", "gamma must be in .* got much"),
        ("sigma", None, r"sigma must be in \(0,1\] \(1 is nearest neighbour\), got None"),
        ("sigma", 0.0, "got 0.0"),
        ("sigma", 1.01, "got 1.01"),
        ("sigma", -0.5, "got -0.5"),
        ("sigma", math.nan, "got nan"),
        ("sigma", [0.5], r"got \[0.5\]"),
    ],
)
def test_values_that_cannot_be_are_refused_wherever_they_are_given(name, value, message):
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[1.0], [2.0]]), unseen=[1])
    with pytest.raises(BadUsage, match=message):
        PARAMETERS[name].check(value)
    with pytest.raises(BadUsage, match=message):
        next(rule for rule in RULES.values() if rule.parameter is PARAMETERS[name]).decide(ranking, value)
    with pytest.raises(BadUsage, match=message):
        Decision("nn", {name: value})


@pytest.mark.parametrize(("name", "values"), [("gamma", (0, 0.0, 1e-9, 1e9)), ("sigma", (1, 1.0, 1e-9, 0.5))])
def test_values_at_the_ends_are_allowed(name, values):
    assert [PARAMETERS[name].check(value) for value in values] == list(values)


@pytest.mark.parametrize("parameter", PARAMETERS.values(), ids=list(PARAMETERS))
@pytest.mark.parametrize("reach", [0.3, 40.0])
def test_a_grid_runs_from_no_correction_to_the_strongest(parameter, reach):
    grid = parameter.grid(reach)
    assert grid[0] == parameter.neutral
    assert list(grid) == sorted(set(grid), reverse=not parameter.rises)
    assert [parameter.check(value) for value in grid] == list(grid)
    if parameter.largest == math.inf:
        assert grid[-1] == pytest.approx(reach)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_tells_people_and_plots_what_they_need(rule):
    assert decision.get(rule.name) is rule
    assert all((rule.title, rule.about, rule.colour, rule.line, rule.marker))
    if rule.parameter is None:
        assert rule.with_value(0) == rule.name.upper()
        assert not rule.paper_grid
    else:
        assert rule.with_value(0.5) == f"{rule.name.upper()}, {rule.parameter.name} 0.5"
        assert [rule.parameter.check(value) for value in rule.paper_grid] == list(rule.paper_grid)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.name = "other"


def test_the_registry_answers():
    assert set(decision.calibrated()) == {"cs", "ac", "ratio", "probability"}
    assert list(decision.parameters()) == ["gamma", "sigma", "discount"]
    with pytest.raises(
        BadUsage, match=r"Unknown rule 'knn'. Did you mean 'nn'\? Available options are: nn, cs, ac, ratio"
    ):
        decision.get("knn")


def test_a_decision_knows_the_values_of_the_rules_one_may_change_to():
    chosen = Decision("ac", {"sigma": 0.8, "gamma": 0.25})
    assert (chosen.value, str(chosen)) == (0.8, "AC, sigma 0.8")
    assert (chosen.replace(rule="cs").value, chosen.replace(rule="nn").value) == (0.25, 0.0)
    assert chosen.replace(sigma=0.5) == Decision("ac", {"sigma": 0.5, "gamma": 0.25})
    assert chosen.replace("cs", sigma=None, gamma=None) == Decision("cs", chosen.values)
    assert (Decision("ac").value, Decision("cs").value, Decision().rule) == (1.0, 0.0, "nn")
    assert chosen.to_dict() == {"rule": "ac", "sigma": 0.8, "gamma": 0.25}
    assert Decision.from_dict(chosen.to_dict()) == chosen
    assert Decision.from_dict({}) == Decision("nn")
    with pytest.raises(dataclasses.FrozenInstanceError):
        chosen.rule = "nn"


@pytest.mark.parametrize(
    ("rule", "values", "message"),
    [
        ("knn", {}, "Unknown rule 'knn'"),
        ("ac", {"sgima": 0.8}, r"Unknown parameter of a rule 'sgima'. Did you mean 'sigma'\?"),
        ("nn", {"sigma": 2.0}, "sigma must be in"),
    ],
)
def test_wrong_decisions_are_named(rule, values, message):
    with pytest.raises(BadUsage, match=message):
        Decision(rule, values)


def test_a_value_that_the_rule_does_not_look_at_is_refused():
    decision.check_values("ac", {"sigma": 0.5, "gamma": None})
    decision.check_values("nn", {"sigma": None})
    with pytest.raises(BadUsage, match=r"--gamma is for the rule cs, but the rule is ac: add --rule cs"):
        decision.check_values("ac", {"gamma": 0.5})
    with pytest.raises(BadUsage, match=r"--sigma is for the rule ac or ratio, but the rule is nn: add --rule ac"):
        decision.check_values("nn", {"sigma": 0.5})
