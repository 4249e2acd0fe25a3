"""The rule that `joem train` chooses before it trains."""

import sys
from dataclasses import replace

import pytest

from conftest import make_small
from joem import calibration, engine
from joem.calibration.sweep import fold_sweep, sweep


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.setattr(sys.modules["joem.calibration.choosing"], "_LEAST_PICTURES", 20)
    return make_small("blend").changed(data={"train_count": 60}, train={"folds": 2, "fold_steps": 1})


def test_folds_choose_rule_and_values(recipe):
    problem = engine.open_problem(recipe.data)
    chosen, reason = calibration.decide(recipe, problem)
    assert replace(chosen, decision=recipe.decision) == recipe  # nothing else of it changes
    assert reason.startswith(f"Rule: {chosen.decision}, chosen on 2 short trainings without ")
    seen = problem.vocabulary.seen
    assert any(name in reason for name in seen)
    assert not any(f" {name}," in reason for name in problem.vocabulary.unseen)


def test_without_folds_the_recipe_decides(recipe):
    problem = engine.open_problem(recipe.data)
    told = {"folds": f"{recipe.decision}, of the recipe.", "start": "that of the model it starts from."}
    for changes in ({"folds": 0}, {"start": "voc-names"}):
        own = recipe.changed(train=changes)
        chosen, reason = calibration.decide(own, problem)
        assert chosen == own
        assert reason == f"Rule: {told[next(iter(changes))]}"


@pytest.mark.parametrize(("classes", "pictures"), [(3, 20), (10, 10_000)])
def test_a_few_classes_or_pictures_are_too_few(recipe, monkeypatch, classes, pictures):
    monkeypatch.setattr(sys.modules["joem.calibration.choosing"], "_LEAST_PICTURES", pictures)
    problem = engine.open_problem(recipe.data)
    few = problem.vocabulary.with_unseen(problem.vocabulary.names[classes + 1 :])
    chosen, reason = calibration.decide(recipe, replace(problem, vocabulary=few))
    assert chosen == recipe
    assert f"{classes} seen classes in " in reason
    assert f"too few to choose it by, 10 in {pictures} are needed" in reason


def test_pictures_that_count_four_times_do(recipe, monkeypatch):
    problem = engine.open_problem(recipe.data)
    model = engine.train(recipe)
    monkeypatch.setattr(sys.modules["joem.calibration.sweep"], "scoring_parts", lambda fold: [(fold.val, 4)])
    once, four_times = sweep(model, problem), fold_sweep(model, problem)
    assert set(once) == set(four_times)
    for rule, curve in once.items():
        assert four_times[rule].values == curve.values
        assert four_times[rule].true_unseen == tuple(4 * each for each in curve.true_unseen)
        assert four_times[rule].seen_as_unseen == tuple(4 * each for each in curve.seen_as_unseen)
        assert [each.miou_seen for each in four_times[rule].scores] == [each.miou_seen for each in curve.scores]
