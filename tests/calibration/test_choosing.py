import json
import sys

import pytest
import torch

from joem import calibration, cli, data, engine
from joem.calibration import tuning
from joem.data.scenes import Scenes
from joem.engine import Problem
from joem.errors import BadUsage, JoemError
from joem.methods.cosine import taught_names
from joem.recipe import load as load_recipe
from joem.semantics import imagenet
from joem.vocabulary import Vocabulary


def curve(*hious):
    points = [{"sigma": sigma, "hiou": hiou} for sigma, hiou in zip((1.0, 0.9, 0.8, 0.7), hious, strict=True)]
    return {"rule": "ac", "points": points}


def test_the_least_correction_within_a_point_is_chosen():
    assert tuning._least_correction([curve(40, 59.5, 60, 50)]) == (0.9, 59.5)
    assert tuning._least_correction([curve(40, 58, 60, 50)]) == (0.8, 60)
    assert tuning._least_correction([curve(40, 58, 60, 50), curve(40, 62, 50, 50)]) == (0.9, 60)


def test_curves_on_different_grids_are_read_between_their_points():
    first, second = ({"rule": "cs", "points": [{"gamma": g, "hiou": h} for g, h in points]} for points in (
        [(0, 10), (1, 20), (2, 40)], [(0, 10), (4, 50)],
    ))  # fmt: skip
    assert tuning._least_correction([first, second]) == (2.0, (40 + 30) / 2)


def test_the_rule_is_the_best_one_at_its_chosen_value():
    def cs(*hious):
        return {"rule": "cs", "points": [{"gamma": gamma, "hiou": hiou} for gamma, hiou in enumerate(hious)]}

    assert tuning._best_rule([{"cs": cs(40, 50, 55), "ac": curve(40, 58, 60, 50)}]) == "ac"
    assert tuning._best_rule([{"cs": cs(40, 61, 55), "ac": curve(40, 58, 60, 50)}]) == "cs"
    assert tuning._best_rule([{"cs": cs(59.5, 60, 55), "ac": curve(59.5, 60, 60, 50)}]) == "nn"
    folds = [{"cs": cs(10, 50, 20), "ac": curve(10, 30, 20, 10)}, {"cs": cs(50, 10, 10), "ac": curve(50, 42, 30, 30)}]
    assert tuning._best_rule(folds) == "ac"  # 36 at .9; cs and nn have 30


def test_folds_never_show_an_unseen_class_and_partition_the_seen_ones():
    vocabulary = Vocabulary(
        ("background", "red circle", "blue circle", "red cross", "blue cross"), ("blue cross",), "background"
    )
    pictures = Scenes(60, 64, classes=vocabulary.names[1:])
    problem = Problem(vocabulary, "exclude", pictures, pictures)
    folds = calibration.fold_problems(problem, 3, seed=0)
    held_out = [name for fold in folds for name in fold.vocabulary.unseen]
    assert sorted(held_out) == ["blue circle", "red circle", "red cross"]
    for fold in folds:
        assert "blue cross" not in fold.vocabulary.names
        assert fold.vocabulary.background == "background"
        for part in (fold.train, fold.val):
            for index in range(len(part)):
                assert part.labels(index).max() < 4
                assert part[index].labels.max() < 4
        shown, kept = ({part[index].name for index in range(len(part))} for part in (fold.train, fold.val))
        assert len(fold.val)
        assert not shown & kept
    with pytest.raises(BadUsage, match="2 to 3 folds, got 4"):
        calibration.fold_problems(problem, 4, seed=0)


def test_cross_validation_trains_without_the_unseen_classes(tiny, monkeypatch):
    tiny.train.epochs = 1
    met = []
    original = tuning.train

    def train(recipe, *, problem, progress):
        met.append(problem.vocabulary)
        return original(recipe, problem=problem, progress=progress)

    monkeypatch.setattr(tuning, "train", train)
    tiny.train.batch_size = 2
    tiny.data.train_count = 60
    problem = engine.open_problem(tiny.data)
    choice = calibration.cross_validate(tiny, problem, folds=6, used=2, progress=False)
    assert len(met) == len(choice.folds) == 2
    for vocabulary in met:
        assert not set(vocabulary.names) & set(problem.vocabulary.unseen)
    assert choice.sigma in calibration.SIGMAS
    assert choice.gamma >= 0
    assert set(choice.to_dict()) == {"sigma", "gamma", "rule", "folds"}


def test_strict_names_of_unseen_and_held_out_classes_do_not_teach_in_folds(monkeypatch):
    met = []

    def train(recipe, *, problem, progress):
        met.append((set(taught_names(recipe.method, problem.vocabulary)), problem.vocabulary.unseen))

    monkeypatch.setattr(tuning, "train", train)
    monkeypatch.setattr(tuning, "sweep", lambda *_, **__: {})
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    strict = load_recipe("voc-zs3-4-lite")
    for fold in calibration.fold_problems(problem, 3, seed=0):
        tuning._try_fold(strict, problem, fold, progress=False)
    assert sorted(held_out for _, (held_out,) in met) == ["bus", "cat", "dog"]
    for taught, (held_out,) in met:
        assert taught == set(range(1000)) - imagenet.kinds_of("cow") - imagenet.kinds_of(held_out)


def test_by_default_as_many_classes_are_held_out_as_are_unseen():
    names = tuple(f"c{i}" for i in range(20))
    assert tuning._proportional_folds(Vocabulary(names, names[:4])) == 5
    assert tuning._proportional_folds(Vocabulary(names)) == 20


class Striped:
    """Forty pictures, each showing background and one class but the last."""

    background = "background"

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return 40

    def labels(self, index):
        return torch.tensor([[0, 1 + index % (len(self.names) - 2)]])

    def name(self, index):
        return str(index)


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
    pictures = Watched(Scenes(300, 64, classes=names), lambda labels: torch.isin(labels, unseen).any())
    tiny.train.epochs, tiny.train.batch_size = 1, 4
    return tiny, Problem(vocabulary, "exclude", pictures, Untouchable())


def test_tuning_never_looks_at_unseen_classes_or_evaluation_pictures(sealed, tmp_path):
    recipe, problem = sealed
    found = calibration.tune(recipe, problem, tmp_path, lambdas=(0.1, 1.0), folds=2, progress=False)
    assert [row["lambda"] for row in found.table] == [0.1, 1.0]
    assert all(row["folds"] == 2 for row in found.table)
    assert len(found.trials) == 4
    seen = set(problem.vocabulary.seen)
    for trial in found.trials:
        assert set(trial["held_out"]) < seen
        assert set(trial["curves"]) == {"cs", "ac", "ratio"}
    best = max(found.table, key=lambda row: row["hiou"])
    written = load_recipe(str(tmp_path / "recipe.yaml"))
    assert (written.method.sc_weight, written.decision.sigma) == (best["lambda"], best["sigma"])
    assert written.decision.gamma == pytest.approx(best["gamma"])
    told = json.loads((tmp_path / "tuned.json").read_text())
    assert f"held-out seen classes is {best['hiou']:.1f}" in told["reason"]
    assert f"lambda {best['lambda']:g} has the highest." in told["reason"]
    with pytest.raises(BadUsage, match="trials of another recipe or grid"):
        calibration.tune(recipe, problem, tmp_path, lambdas=(0.1,), folds=2, progress=False)


def test_a_stopped_tuning_goes_on_where_it_stopped(sealed, tmp_path, monkeypatch):
    recipe, problem = sealed
    original, trained = tuning.train, []

    def train(settings, *, problem, progress):
        if len(trained) == 1:
            trained.append("stopped")
            raise KeyboardInterrupt
        trained.append((settings.method.sc_weight, problem.vocabulary.unseen))
        return original(settings, problem=problem, progress=progress)

    monkeypatch.setattr(tuning, "train", train)
    wish = {"lambdas": (0.1, 1.0), "folds": 2, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        calibration.tune(recipe, problem, tmp_path, **wish)
    calibration.tune(recipe, problem, tmp_path, **wish)
    calibration.tune(recipe, problem, tmp_path, **wish)  # nothing is left to do
    assert trained.pop(1) == "stopped"
    assert len(trained) == len(set(trained)) == 4


def test_the_recipe_s_own_rule_decides_which_lambda_is_best(tiny):
    def trial(value, ac, ratio):
        rules = {"ac": ("sigma", ac), "ratio": ("sigma", ratio), "cs": ("gamma", 30)}
        points = {rule: [{parameter: 1.0, "hiou": hiou}] for rule, (parameter, hiou) in rules.items()}
        return {"lambda": value, "curves": {rule: {"rule": rule, "points": points[rule]} for rule in rules}}

    trials = [trial(0.1, ac=50, ratio=40), trial(1.0, ac=40, ratio=50)]
    assert tuning._conclude(tiny, trials).recipe.method.sc_weight == 0.1
    tiny.decision.rule = "ratio"
    assert tuning._conclude(tiny, trials).recipe.method.sc_weight == 1.0


def test_tuning_with_too_few_pictures_says_so(sealed, tmp_path):
    recipe, problem = sealed
    blank = data.View(problem.train, [])
    fold = Problem(problem.vocabulary, "exclude", problem.train, blank)
    with pytest.raises(JoemError, match="None of the 0 pictures kept for scoring shows blue cross, green ring"):
        tuning._try_fold(recipe, problem, fold, progress=False)


def test_no_fold_is_too_few(sealed, tmp_path):
    recipe, problem = sealed
    with pytest.raises(BadUsage, match="At least one fold must be trained, got 0"):
        calibration.tune(recipe, problem, tmp_path, folds=2, used=0)
    with pytest.raises(BadUsage, match="At least one fold must be trained, got -1"):
        calibration.cross_validate(recipe, problem, used=-1)


def test_without_optuna_the_way_to_get_it_is_told(sealed, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    recipe, problem = sealed
    with pytest.raises(JoemError, match=r"pip install .joem\[tune\]"):
        calibration.tune(recipe, problem, tmp_path, folds=2, progress=False)


def test_methods_without_lambda_are_trained_once_per_fold(sealed, tmp_path, monkeypatch):
    recipe, problem = sealed
    model = engine.train(recipe, problem=tuning.fold_problems(problem, 2, 0)[0], progress=False)
    monkeypatch.setattr(tuning, "train", lambda *_, **__: model)
    recipe.method.name = "spnet"
    found = calibration.tune(recipe, problem, tmp_path, folds=2, used=1, progress=False)
    assert [row["lambda"] for row in found.table] == [recipe.method.sc_weight]
    assert "lambda" not in found.reason
    recipe.method.name = "joem"
    found = calibration.tune(recipe, problem, tmp_path / "joem", folds=2, used=1, progress=False)
    assert [row["lambda"] for row in found.table] == list(calibration.LAMBDAS)


@pytest.mark.parametrize(("name", "has_lambda"), [("joem", True), ("two_stage", True), ("spnet", False)])
def test_lambda_is_told_only_where_there_is_one(name, has_lambda, tiny, tmp_path, monkeypatch, capsys):
    tiny.method.name = name
    row = {"lambda": 0.1, "sigma": 0.8, "gamma": 0.25, "hiou": 40.0, "folds": 1}
    found = tuning.Tuning(tiny, [row], [{"lambda": 0.1, "curves": {}}])
    monkeypatch.setattr(calibration, "tune", lambda *_: found)
    assert cli.main(["tune", "scenes", "--method.name", name, "--out", str(tmp_path)]) == 0
    header, values = capsys.readouterr().out.splitlines()[:2]
    columns = ["lambda", "sigma", "gamma"] if has_lambda else ["sigma", "gamma"]
    assert header.split()[: len(columns)] == columns
    assert header.split()[len(columns)] == "hIoU"
    assert values.split() == [f"{row[column]:g}" for column in columns] + ["40.0"]
    assert cli.main(["tune", "scenes", "--method.name", name, "--out", str(tmp_path), "--json"]) == 0
    assert ('"lambda"' in capsys.readouterr().out) == has_lambda


def test_a_lambda_for_a_method_without_one_is_refused(tiny, tmp_path):
    tiny.method.name = "spnet"
    with pytest.raises(BadUsage, match="spnet has no lambda to choose"):
        calibration.tune(tiny, engine.open_problem(tiny.data), tmp_path, lambdas=(0.1, 1.0))


def test_processes_that_train_together_cannot_tune(tiny, tmp_path):
    tiny.train.devices = 2
    with pytest.raises(BadUsage, match=r"--train\.devices 1"):
        calibration.tune(tiny, engine.open_problem(tiny.data), tmp_path)
