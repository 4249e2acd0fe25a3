import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml

from conftest import fresh_model, stop_after
from joem import calibration, decision, engine
from joem.calibration import choosing
from joem.data.scenes import Scenes
from joem.decision import Decision
from joem.decision.rules import GAMMA, Rule
from joem.engine import Problem
from joem.errors import BadUsage, Interrupted
from joem.recipe import load as load_recipe
from joem.vocabulary import Vocabulary


def curve(*hious, rule="ac"):
    points = [{"sigma": sigma, "hiou": hiou} for sigma, hiou in zip((1.0, 0.9, 0.8, 0.7), hious, strict=True)]
    return {"rule": rule, "points": points}


def cs(*hious, rule="cs"):
    return {"rule": rule, "points": [{"gamma": gamma, "hiou": hiou} for gamma, hiou in enumerate(hious)]}


def fold(value=0.1, **curves):
    return {"lambda": value, "held_out": [], "curves": curves, "pixels": []}


def test_the_least_correction_within_a_point_is_chosen():
    assert choosing._least_correction([curve(40, 59.5, 60, 50)]) == (0.9, 59.5)
    assert choosing._least_correction([curve(40, 58, 60, 50)]) == (0.8, 60)
    assert choosing._least_correction([curve(40, 58, 60, 50), curve(40, 62, 50, 50)]) == (0.9, 60)


def test_curves_on_different_grids_are_read_between_their_points():
    first, second = ({"rule": "cs", "points": [{"gamma": g, "hiou": h} for g, h in points]} for points in (
        [(0, 10), (1, 20), (2, 40)], [(0, 10), (4, 50)],
    ))  # fmt: skip
    assert choosing._least_correction([first, second]) == (2.0, (40 + 30) / 2)


def test_the_rule_is_the_best_one_at_its_chosen_value(tiny):
    def rule(*curves):
        return choosing.conclude(tiny, [fold(**each) for each in curves]).decision.rule

    assert rule({"cs": cs(40, 50, 55), "ac": curve(40, 58, 60, 50)}) == "ac"
    assert rule({"cs": cs(40, 61, 55), "ac": curve(40, 58, 60, 50)}) == "cs"
    assert rule({"cs": cs(59.5, 60, 55), "ac": curve(59.5, 60, 60, 50)}) == "nn"
    two = {"cs": cs(10, 50, 20), "ac": curve(10, 30, 20, 10)}, {"cs": cs(50, 10, 10), "ac": curve(50, 42, 30, 30)}
    assert rule(*two) == "ac"  # 36 at .9; cs and nn have 30


def test_rules_out_of_the_paper_take_no_part_unless_the_recipe_has_them(tiny):
    curves = {"cs": cs(40, 50, 55), "ac": curve(40, 58, 60, 50), "ratio": curve(40, 40, 50, 70, rule="ratio")}
    chosen = choosing.conclude(tiny, [fold(**curves)]).decision
    assert chosen == Decision("ac", {"sigma": 0.8, "gamma": 2.0})
    chosen = choosing.conclude(tiny.changed(decision={"rule": "ratio"}), [fold(**curves)]).decision
    assert chosen == Decision("ratio", {"sigma": 0.7, "gamma": 2.0})


def test_a_new_rule_takes_part(tiny, monkeypatch):
    toy = Rule("toy", "toy", "As CS.", decision.get("cs").turning, GAMMA)
    monkeypatch.setitem(decision.RULES, "toy", toy)
    assert [rule.name for rule in calibration.candidates()] == ["nn", "cs", "ac", "toy"]
    curves = {"cs": cs(40, 50, 55), "ac": curve(40, 58, 60, 50), "toy": cs(40, 70, 55, rule="toy")}
    assert choosing.conclude(tiny, [fold(**curves)]).decision == Decision("toy", {"gamma": 1.0, "sigma": 0.8})


def test_the_lambda_whose_rule_reaches_most_is_best(tiny):
    trials = [
        fold(0.1, cs=cs(30, 30, 30), ac=curve(30, 45, 50, 40)),
        fold(1.0, cs=cs(30, 55, 30), ac=curve(30, 40, 30, 20)),
    ]
    found = choosing.conclude(tiny, trials)
    assert (found.sc_weight, found.decision.rule, found.decision.value) == (1.0, "cs", 1.0)
    assert [row["hiou"] for row in found.table] == [50, 55]
    assert "lambda 1 has the highest." in found.reason
    assert found.recipe(tiny).method.sc_weight == 1.0


def test_lambda_is_told_only_where_there_is_one(tiny):
    trial = {"held_out": [], "pixels": [], "curves": {"cs": cs(30, 55, 30), "ac": curve(30, 40, 30, 20)}}
    found = choosing.conclude(tiny.changed(method={"name": "spnet"}), [trial])
    assert found.sc_weight is None
    assert "lambda" not in found.reason
    assert '"lambda"' not in json.dumps(found.to_dict())
    assert set(found.to_dict()) == {"rule", "sigma", "gamma", "reason", "table", "folds"}
    assert '"lambda": 0.1' in json.dumps(choosing.conclude(tiny, [{"lambda": 0.1, **trial}]).to_dict())


class Watched:
    """A dataset in which some pictures must not be looked at."""

    def __init__(self, dataset, forbidden):
        self.dataset, self.forbidden = dataset, forbidden
        self.names, self.background = dataset.names, dataset.background

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        assert not self.forbidden(self.dataset.labels(index))
        return self.dataset[index]

    def labels(self, index):
        return self.dataset.labels(index)

    def name(self, index):
        return str(index)


class Untouchable:
    """A dataset that must not be looked at at all."""

    names = background = None

    def __len__(self):
        raise AssertionError("the evaluation pictures were counted")

    def __getitem__(self, index):
        raise AssertionError("an evaluation picture was read")

    labels = name = __getitem__


@pytest.fixture
def sealed(tiny):
    """A recipe and its problem, with unseen classes in training pictures, none of which may be read."""
    names = ("red circle", "blue circle", "red cross", "blue cross", "green ring", "green cross", "red ring")
    vocabulary = Vocabulary(("background", *names), ("blue cross", "green ring"), "background")
    unseen = torch.tensor(vocabulary.unseen_indices)
    pictures = Watched(Scenes(300, 32, classes=names), lambda labels: torch.isin(labels, unseen).any())
    recipe = tiny.changed(data={"crop": 32}, train={"epochs": 1, "batch_size": 8, "save_every": 0})
    return recipe, Problem(vocabulary, "exclude", pictures, Untouchable())


@pytest.fixture
def trained(monkeypatch):
    """The lambda and the held-out classes of every training that was begun."""
    begun, original = [], engine.train

    def train(recipe, out, *, problem, resume):
        begun.append((getattr(recipe.method, "sc_weight", None), problem.vocabulary.unseen))
        return original(recipe, out, problem=problem, resume=resume)

    monkeypatch.setattr(engine, "train", train)
    return begun


def test_tuning_never_looks_at_unseen_classes_or_evaluation_pictures(sealed, tmp_path):
    recipe, problem = sealed
    found = calibration.Folds(recipe, problem, tmp_path, lambdas=(0.1, 1.0), count=2).tune()
    assert [row["lambda"] for row in found.table] == [0.1, 1.0]
    assert all(row["folds"] == 2 for row in found.table)
    assert len(found.folds) == 4
    seen = set(problem.vocabulary.seen)
    for each in found.folds:
        assert set(each["held_out"]) < seen
        assert set(each["curves"]) == {"cs", "ac", "ratio", "probability"}
    best = max(found.table, key=lambda row: row["hiou"])
    written = load_recipe(str(tmp_path / "recipe.yaml"))
    assert (written.method.sc_weight, written.decision) == (best["lambda"], found.decision)
    assert set(written.decision.values) == {"sigma", "gamma", "discount"}
    told = json.loads((tmp_path / "tuned.json").read_text())
    assert f"held-out seen classes is {best['hiou']:.1f}" in told["reason"]
    assert f"lambda {best['lambda']:g} has the highest." in told["reason"]
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("lambda-*/fold-*/*")}
    kept = ("curves.json", "metrics.csv", "recipe.yaml")  # and no checkpoint, no model
    assert made == {f"lambda-{value}/fold-{number}/{name}" for value in (0.1, 1) for number in (0, 1) for name in kept}
    with pytest.raises(BadUsage, match=r"lambda-0.1/fold-0/curves.json holds .* \(recipe.train.seed was 0, now 1;"):
        calibration.Folds(recipe.changed(train={"seed": 1}), problem, tmp_path, lambdas=(0.1,), count=2).tune()
    with pytest.raises(BadUsage, match=r"fold-0/curves.json holds .* \(held_out was"):
        calibration.Folds(recipe, problem, tmp_path, lambdas=(0.1,), count=3).tune()


def test_a_stopped_tuning_goes_on_within_the_fold_where_it_stopped(sealed, tmp_path, monkeypatch, trained):
    recipe, problem = sealed
    wish = {"lambdas": (0.1, 1.0), "count": 2}
    whole = calibration.Folds(recipe, problem, tmp_path / "whole", **wish).tune()
    assert len(trained) == len(set(trained)) == 4
    trained.clear()
    calibration.Folds(recipe, problem, tmp_path / "parts", lambdas=(0.1,), count=2, used=1).choose()
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Interrupted):
            calibration.Folds(recipe, problem, tmp_path / "parts", **wish).tune()
    assert [path.name for path in (tmp_path / "parts/lambda-0.1/fold-1/checkpoints").iterdir()] == ["step-00000003"]
    parts = calibration.Folds(recipe, problem, tmp_path / "parts", **wish).tune()
    assert parts == whole
    assert len(trained) == 5  # one of them twice
    calibration.Folds(recipe, problem, tmp_path / "parts", **wish).tune()  # nothing is left to do
    assert len(trained) == 5


def test_nothing_need_be_kept(sealed, tmp_path, trained):
    recipe, problem = sealed
    kept = calibration.Folds(recipe, problem, tmp_path / "kept", count=2, used=1).choose()
    assert calibration.Folds(recipe, problem, None, count=2, used=1).choose() == kept
    assert kept.sc_weight == recipe.method.sc_weight  # the recipe's own
    assert len(trained) == 2


def test_lambda_is_tried_where_there_is_one(sealed, tmp_path, monkeypatch):
    recipe, problem = sealed
    model = fresh_model(recipe)
    part = calibration.fold_problems(problem, 2, 0)[0]
    curves = calibration.sweep(model, part)
    monkeypatch.setattr(choosing, "train_in", lambda *_: model)
    monkeypatch.setattr(choosing, "fold_sweep", lambda *_: curves)
    found = calibration.Folds(
        recipe.changed(method={"name": "spnet"}), problem, tmp_path / "spnet", count=2, used=1
    ).tune()
    assert len(found.table) == 1
    found = calibration.Folds(recipe, problem, tmp_path / "joem", count=2, used=1).tune()
    assert [row["lambda"] for row in found.table] == list(calibration.LAMBDAS)
    with pytest.raises(BadUsage, match="spnet has no lambda to choose"):
        calibration.Folds(recipe.changed(method={"name": "spnet"}), problem, tmp_path, lambdas=(0.1, 1.0)).tune()


TUNE = """
import sys
from pathlib import Path
import torch
from joem import calibration, engine, jobs, recipe

jobs._PAUSE = 0.1
torch.set_num_threads(1)
settings = recipe.load(sys.argv[1])
problem = engine.open_problem(settings.data, needed=("train",))
calibration.Folds(settings, problem, Path(sys.argv[2]), lambdas=(0.1,), count=2).tune()
"""


@pytest.fixture
def small(tiny):
    return tiny.changed(data={"train_count": 100, "size": 32, "crop": 32}, train={"epochs": 1, "save_every": 5})


@pytest.fixture
def script(small, tmp_path):
    """A program that tunes a small recipe, and its first argument."""
    (tmp_path / "tune.py").write_text(TUNE)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(small.to_dict()))
    return [str(tmp_path / "tune.py"), str(tmp_path / "tiny.yaml")]


def test_processes_share_the_folds_and_finish_those_of_a_killed_one(small, script, tmp_path):
    out, environment = tmp_path / "shared", {**os.environ, "OMP_NUM_THREADS": "1"}
    start = [sys.executable, *script, str(out)]
    first = subprocess.Popen(start, env=environment)
    end = time.monotonic() + 240
    while not list(out.glob("lambda-*/fold-*/checkpoints/step-*")):
        assert time.monotonic() < end
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    others = [subprocess.Popen(start, env=environment) for _ in range(2)]
    calibration.Folds(small, engine.open_problem(small.data), tmp_path / "alone", lambdas=(0.1,), count=2).tune()
    assert [other.wait(timeout=240) for other in others] == [0, 0]
    assert (out / "tuned.json").read_text() == (tmp_path / "alone/tuned.json").read_text()
