"""What a job is asked for, and what it would cost before anything is trained."""

import json

import pytest
from small_studies import small_recipe

from joem import cli, engine, recipe, studies
from joem.errors import BadUsage
from joem.studies import costs, request
from joem.studies.request import Request


@pytest.fixture
def tiny_recipes(monkeypatch):
    """Every recipe of the box is a tiny one."""
    tiny = small_recipe(decision={"rule": "ac", "sigma": 0.7})

    def load(name, changes):
        return tiny.changed(**{section: values for section, values in changes.items() if section != "data"})

    monkeypatch.setattr(recipe, "load", load)
    monkeypatch.setattr(request, "load_own", lambda name, changes: {})
    return tiny


def test_a_plan_lists_what_is_trained_and_counts_the_steps_that_are_taken(tiny_recipes, tmp_path, monkeypatch):
    asked = Request("table3", tmp_path, "lite", methods=("joem",), seeds=1, folds=1, lambdas=(0.5, 2.0))
    needed = studies.trainings(asked)
    found = studies.plan(needed, step_seconds=1800)
    assert [cost.what for cost in found.costs] == [
        "voc-zs3-4: JoEm, lambda 0.5, fold 0",
        "voc-zs3-4: JoEm, lambda 2, fold 0",
        "voc-zs3-4: JoEm, seed 0",
    ]
    assert not list(tmp_path.iterdir())
    steps, original = [], engine.training.Run.fit

    def fit(run):
        steps.append(run.steps)
        return original(run)

    monkeypatch.setattr(engine.training.Run, "fit", fit)
    studies.reproduce(asked)
    assert len(steps) == len(found.costs)
    assert {cost.steps for cost in found.costs if "seed" in cost.what} <= set(steps)
    assert found.hours == sum(cost.steps for cost in found.costs) / 2
    again = studies.plan(needed, step_seconds=1800)
    assert all(cost.done for cost in again.costs)
    assert again.hours == 0


@pytest.mark.parametrize("name", ["fig2b", "fig5", "supp-fig2"])
def test_a_figure_plans_what_it_trains(tiny_recipes, tmp_path, name):
    asked = Request(name, tmp_path, "lite", splits=("4",))
    needed = studies.trainings(asked)
    assert not any(each.file.is_file() for each in needed)
    studies.reproduce(asked)
    assert needed
    assert {each.file for each in needed} == {*tmp_path.rglob("training.json"), *tmp_path.rglob("curves.json")}


def test_settings_are_shown_of_the_splits_asked_for(tmp_path):
    rows = studies.reproduce(Request("supp-table1", tmp_path, splits=("voc-spnet",)))
    assert [row["setting"] for row in rows] == ["SPNet, published", "SPNet, paper-spnet-setting"]


@pytest.mark.parametrize("name", ["joem", "zs3net", "cagnet"])
def test_a_step_of_every_stage_is_measured_and_scaled_to_the_batch(tiny_recipes, name):
    own = tiny_recipes.changed(method={"name": name}, train={"batch_size": 24, "devices": 3, "strategy": "ddp"})
    found = costs.measure(own)
    assert (found.batch, found.device[:5]) == (2, "cpu (")
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.scaled(own) == {stage: 4 * seconds for stage, seconds in found.seconds.items()}  # 8 of 24 per device
    assert tuple(found.seconds) == costs._stages(own)


def test_a_stage_shorter_than_an_epoch_is_measured_too(tiny_recipes):
    own = tiny_recipes.changed(method={"name": "zs3net", "stage_lengths": {"transfer": 0.1}}, train={"epochs": 1})
    assert costs.measure(own).seconds["transfer"] > 0


def test_stored_maps_are_not_measured_into_the_cache_of_the_user(tiny_recipes, tmp_path):
    head = {"name": "hypercolumn", "channels": 8}
    cached = tiny_recipes.changed(
        model={"head": head, "freeze_backbone": True}, train={"cache": str(tmp_path), "pixels": 0}
    )
    assert costs.measure(cached).seconds["train"] > 0
    assert not list(tmp_path.iterdir())


def test_table_1_at_the_papers_scale(tmp_path, capsys):
    words = ["reproduce", "table1", "--out", str(tmp_path / "out"), "--dry-run", "--step-seconds", "0.36", "--json"]
    options = ["--methods", "devise,joem", "--splits", "4,voc-zs3-2", "--train.devices", "4", "--train.epochs", "40"]
    assert cli.main([*words, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out").exists()
    costs = {cost["what"]: cost for cost in found["trainings"]}
    assert {what.split(":")[0] for what in costs} == {"voc-zs3-2", "voc-zs3-4", "context-zs3-4"}
    assert costs["voc-zs3-4: JoEm, seed 4"]["steps"] == 40 * (8762 // 32)
    assert costs["voc-zs3-2: JoEm, lambda 10, fold 2"]["hours"] == pytest.approx(40 * (9836 // 32) * 0.36 / 3600)
    assert len(costs) == 3 * (5 + 5 + 6 * 3)  # five seeds of two systems; the paper's lambdas and the recipe's own
    assert "context-zs3-4: JoEm, lambda 3.3e-06, fold 0" in costs
    assert len(found["notes"]) == 1
    assert "4,998" in found["notes"][0]


def test_recipes_take_what_is_asked_for_on_every_split_and_row(tmp_path):
    vectors = {"": "glove", "context": "use", "context-zs3-6": "minilm"}
    overrides = {"model": {"weights": "none"}, "train": {"precision": "bf16-mixed"}, "semantics": {"oov": "zero"}}
    asked = Request("table1", tmp_path, root="here", vectors=vectors, overrides=overrides, splits=("6",), seeds=1)
    needed = studies.trainings(asked)
    assert {each.recipe.data.protocol for each in needed} == {"voc-zs3-6", "context-zs3-6"}
    assert {each.recipe.semantics.vectors for each in needed} == {"glove", "minilm"}
    assert asked.settings("context-zs3-4").semantics.vectors == "use"
    for each in needed:
        own = each.recipe
        assert (own.model.weights, own.train.precision, own.semantics.oov) == ("none", "bf16-mixed", "zero")
        assert own.data.root == "here"


@pytest.mark.parametrize(
    ("job", "options", "told"),
    [
        ("table1", {"splits": ("3",)}, "table1 at lite scale has no split '3'. It has voc-zs3-2, voc-zs3-4"),
        ("table1", {"methods": ("cagnet",)}, "table1 has no row 'cagnet'. It has devise, spnet"),
        ("fig5", {"seeds": 2}, "fig5 has its own rows and trains each once: --methods and --seeds are for tables"),
        ("table1", {"overrides": {"data": {"protocol": "voc-zs3-2"}}}, "has its own --data.protocol: .* with --splits"),
        ("table1", {"overrides": {"train": {"seed": 3}}}, "has its own --train.seed: .* with --seeds"),
    ],
)
def test_what_a_job_does_not_have_is_refused(tmp_path, job, options, told):
    with pytest.raises(BadUsage, match=told):
        studies.trainings(Request(job, tmp_path, "lite", **options))


def test_a_step_takes_time():
    with pytest.raises(BadUsage, match="more than no time"):
        studies.plan([], 0.0)
