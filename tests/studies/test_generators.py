import sys
from dataclasses import replace

import pytest
import torch
from small_studies import own_generators, small_recipe

from conftest import fresh_model
from joem import engine, studies
from joem.errors import BadUsage
from joem.studies.generators import held_out_quality


@pytest.fixture
def recipe():
    return small_recipe(data={"train_count": 80})


@pytest.mark.parametrize("name", ["zs3net", "cagnet", "csrl", "zs3net_joem"])
def test_generators_are_measured_against_gaussians(recipe, tmp_path, name):
    found = studies.generators(recipe, tmp_path, [name], own_generators(recipe))
    (rows,) = found.values()
    vocabulary = engine.open_problem(recipe.data).vocabulary
    assert rows
    assert {row.name for row in rows} <= set(vocabulary.seen)
    for row in rows:
        assert min(row.real, row.generator, row.gaussian, row.seen_gaussian) > 0
    head, body = studies.quality_table(found)
    assert len(head) == len(body[0])
    assert studies.generators(recipe, tmp_path, [name], own_generators(recipe)) == found
    with pytest.raises(BadUsage, match=f"generators/{name}/quality.json holds the result of another recipe"):
        studies.generators(recipe.changed(train={"seed": 1}), tmp_path, [name], own_generators(recipe))


def test_a_perfect_generator_is_as_good_as_other_real_features(recipe, monkeypatch):
    """Features of a class that are far from Gaussian: a generator that makes them beats the Gaussian."""
    model = fresh_model(own_generators(recipe)["zs3net"])
    problem = engine.open_problem(recipe.data)
    held_out = problem.vocabulary.with_unseen(problem.vocabulary.seen[1:4])
    fold = replace(problem, val=problem.train, vocabulary=held_out)

    def two_points(count):
        return torch.where(torch.rand(count, 1) < 0.5, -4.0, 4.0).expand(count, 8)

    real = {label: two_points(100) for label in range(len(held_out))}
    monkeypatch.setattr(sys.modules["joem.studies.generators"], "_real_features", lambda method, fold: (real, (4, 4)))
    monkeypatch.setattr(type(model.method), "make", lambda self, classes, count, labels: two_points(count)[:, None])
    rows = held_out_quality(model, fold)
    assert len(rows) == 3
    for row in rows:
        assert row.generator < row.gaussian
        assert row.generator < row.seen_gaussian


def test_methods_without_a_generator_are_refused(recipe, tmp_path):
    with pytest.raises(BadUsage, match="Unknown method with a generator 'joem'"):
        studies.generators(recipe, tmp_path, ["joem"])
