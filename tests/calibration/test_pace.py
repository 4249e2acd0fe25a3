import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joem.calibration import Pace, Paces, best_pace, score_of_trial
from joem.errors import BadUsage
from joem.recipe import Recipe

multiples = st.floats(0.01, 100)


@given(multiples, st.integers(1, 500))
def test_a_pace_changes_every_rate_and_the_length_and_nothing_else(rate, epochs):
    base, length = Recipe(), epochs / 50
    found = Pace(rate, length).recipe(base)
    for name in ("visual", "semantic", "generator"):
        assert getattr(found.train, name).lr == pytest.approx(rate * getattr(base.train, name).lr)
    assert found.train.epochs == epochs
    expected = base.to_dict()
    for name in ("visual", "semantic", "generator"):
        expected["train"][name]["lr"] = getattr(found.train, name).lr
    expected["train"]["epochs"] = found.train.epochs
    assert found.to_dict() == expected


@given(st.integers(1, 9), st.floats(0.01, 4))
def test_lengths_are_whole_epochs_or_refused(epochs, length):
    base = Recipe().changed(train={"epochs": epochs})
    whole = round(epochs * length)
    if whole and math.isclose(whole, epochs * length, abs_tol=1e-6):
        assert Pace(1.0, length).recipe(base).train.epochs == whole
    else:
        with pytest.raises(BadUsage, match=f"times {epochs} epochs"):
            Pace(1.0, length).recipe(base)


def test_steps_grow_with_the_length():
    assert Pace(1.0, 2.5).recipe(Recipe().changed(train={"steps": 40})).train.steps == 100


@given(st.lists(multiples, min_size=1, max_size=4, unique=True), st.lists(multiples, min_size=1, max_size=4))
def test_every_method_has_as_many_trials(rates, lengths):
    paces = Paces(rates, lengths)
    for best in paces.first():
        tried = [*paces.first(), *paces.then(best)]
        assert len(set(tried)) == len(tried) == paces.trials
        assert {pace.length for pace in tried} == set(lengths)


def test_the_best_pace_has_the_highest_score_and_then_the_least_change():
    assert best_pace({Pace(0.3): 10.0, Pace(1.0): 9.0}) == Pace(0.3)
    assert best_pace({Pace(3.0, 1.0): 10.0, Pace(0.5, 1.0): 10.0, Pace(0.5, 0.5): 10.0}) == Pace(0.5, 1.0)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_multiples_are_above_zero(wrong):
    with pytest.raises(BadUsage, match="rates are multiples"):
        Paces((wrong,))
    with pytest.raises(BadUsage, match="lengths are multiples"):
        Paces((1.0,), (wrong,))


def curves(**hious):
    """Curves with two values each: no correction first."""
    return {
        "curves": {
            name: {"rule": name, "points": [{own: start, "hiou": 10.0}, {own: end, "hiou": hiou}]}
            for (name, hiou), (own, start, end) in zip(
                hious.items(), [("gamma", 0.0, 1.0), ("sigma", 1.0, 0.5)], strict=True
            )
        }
    }


def test_a_trial_scores_by_the_methods_own_rules():
    folds = [curves(cs=30.0, ac=20.0), curves(cs=40.0, ac=30.0)]
    assert score_of_trial(folds, {"nn"}) == 10.0
    assert score_of_trial(folds, {"ac"}) == 25.0
    assert score_of_trial(folds, {"cs", "nn"}) == 35.0
