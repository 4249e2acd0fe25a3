"""A rule, a method and a dataset are one definition and one line in a registry: everything else finds them there."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

from conftest import fresh_model, make_tiny, spread
from joem import calibration, cli, data, decision, engine, losses, methods, recipe
from joem.data import Sample, Scenes
from joem.data.registry import Kind
from joem.decision import Parameter, Rule
from joem.engine import Model
from joem.errors import BadUsage, LeakageError
from joem.methods.base import Method, Objective, group, head_channels
from joem.recipe import Recipe
from joem.segmenter import Segmenter
from joem.settings import MethodSettings, Weight, settings
from joem.vocabulary import VOID

# ----------------------------------------------------------------------------------------------------- a rule


def _excess(ranking):
    smallest = torch.finfo(ranking.seen_distance.dtype).tiny
    return ranking.unseen_distance / ranking.seen_distance.clamp(min=smallest) - 1


KAPPA = Parameter(
    "kappa",
    "κ",
    "by what share unseen classes may be farther away; 0 is nearest neighbour",
    neutral=0.0,
    largest=math.inf,
    rises=True,
    grid=lambda reach: (0.0, 0.05, 0.1, 0.3, 1.0),
)
EXCESS = Rule("excess", "excess of distance", "New classes may be farther away by a share.", _excess, KAPPA)


@pytest.fixture
def rule(monkeypatch):
    """The line in the registry."""
    monkeypatch.setitem(decision.RULES, "excess", EXCESS)
    return EXCESS


@pytest.fixture
def picture():
    return Scenes(1, 64)[0].image


@pytest.fixture
def model(tiny, picture):
    return spread(fresh_model(tiny), picture)


def run(capsys, *words):
    """What a command prints as JSON."""
    code = cli.main([*map(str, words), "--json"])
    printed, told = capsys.readouterr()
    assert code == 0, told
    return json.loads(printed)


def expected_labels(model, picture, kappa):
    """By the definition, from all distances."""
    far = decision.distances(model.features(picture), model.prototypes(), picture.shape[1:])[0]
    is_unseen = torch.tensor([name in model.vocabulary.unseen for name in model.vocabulary.names])
    return (far / torch.where(is_unseen, 1 + kappa, 1.0)[:, None, None]).argmin(0)


def test_a_rule_decides_in_python_and_in_recipes(rule, model, picture):
    found = Segmenter(model).encode(picture).segment(rule="excess", kappa=0.3).labels
    assert (found != expected_labels(model, picture, 0.3)).float().mean() < 1e-3  # ties aside
    assert torch.equal(
        Segmenter(model).encode(picture).segment(rule="excess").labels,
        Segmenter(model).encode(picture).segment(rule="nn").labels,
    )
    own = recipe.load("scenes", {"decision": {"rule": "excess", "kappa": 0.2}})
    assert str(own.decision) == "EXCESS, kappa 0.2"
    assert Recipe.from_dict(own.to_dict()) == own
    with pytest.raises(BadUsage, match=r"kappa must be in \[0,infinity\)"):
        recipe.load("scenes", {"decision": {"rule": "excess", "kappa": -0.2}})


def test_without_its_line_nobody_knows_it(model, picture):
    with pytest.raises(BadUsage, match="Unknown rule 'excess'"):
        Segmenter(model).encode(picture).segment(rule="excess")
    with pytest.raises(BadUsage, match="Unknown parameter of a rule 'kappa'"):
        recipe.load("scenes", {"decision": {"kappa": 0.2}})


def test_evaluate_sweep_and_predict_know_it(rule, model, picture, tmp_path, capsys):
    folder = model.save(tmp_path / "model")
    (row,) = run(capsys, "evaluate", folder, "--rule", "excess", "--kappa", 0.3)
    assert (row["rule"], row["kappa"]) == ("excess", 0.3)
    curves = run(capsys, "sweep", folder, "--out", tmp_path / "sweep")
    found = next(curve for curve in curves if curve["rule"] == "excess")
    assert [point["kappa"] for point in found["points"]] == [0.0, 0.05, 0.1, 0.3, 1.0]
    assert found["points"][3]["hiou"] == pytest.approx(row["hiou"])
    assert (tmp_path / "sweep/excess.png").is_file()
    assert "excess,kappa,0.3," in (tmp_path / "sweep/curves.csv").read_text()
    own = ("sweep", folder, "--rules", "excess", "--kappas", "0,0.3", "--out", tmp_path / "two")
    assert [len(curve["points"]) for curve in run(capsys, *own)] == [2]
    photo = tmp_path / "photo.png"
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(photo)
    words = ("predict", photo, "--model", folder, "--rule", "excess", "--kappa", 0.3, "--out", tmp_path / "seen")
    run(capsys, *words)
    labels = Segmenter(model).encode(picture).segment(rule="excess", kappa=0.3).labels
    assert np.array_equal(np.asarray(Image.open(tmp_path / "seen/photo/mask.png")), labels.numpy())
    assert cli.main(["evaluate", str(folder), "--rule", "nn", "--kappa", "0.3"]) == 2
    assert "--kappa is for the rule excess, but the rule is nn" in capsys.readouterr().err


def test_the_page_and_the_api_know_it(rule, model, picture):
    testclient = pytest.importorskip("fastapi.testclient")
    from joem.web import Limits, create_app

    with testclient.TestClient(create_app(Segmenter(model), Limits(), None, []), "http://localhost") as client:
        told = client.get("/api/model").json()
        about = next(each for each in told["rules"] if each["name"] == "excess")
        assert about["parameter"]["name"] == "kappa"
        assert about["parameter"]["largest"] is None
        assert told["decision"]["values"]["kappa"] == 0.0
        body = _png(picture)
        key = client.post("/api/scenes", content=body, headers={"Content-Type": "image/png"}).json()["scene"]
        asked = {"rule": "excess", "kappa": 0.3}
        areas = client.post(f"/api/scenes/{key}/segment", json=asked).json()["areas"]
        assert areas == Segmenter(model).encode(picture).segment(**asked).areas()
        assert client.post(f"/api/scenes/{key}/segment", json={**asked, "kappa": -1}).status_code == 422


def _png(picture):
    import io

    file = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_held_out_classes_choose_its_value(rule):
    small = make_tiny(
        data={"train_count": 200, "size": 32, "crop": 32},
        train={"epochs": 1, "batch_size": 16, "save_every": 0},
        decision={"rule": "excess"},
    )
    problem = engine.open_problem(small.data, needed=("train",))
    choice = calibration.Folds(small, problem, count=2, used=1).choose()
    assert choice.decision.values["kappa"] in KAPPA.grid(1.0)
    assert "excess" in choice.folds[0]["curves"]
    assert rule in calibration.candidates()
    chosen = choice.recipe(small)
    assert chosen.decision == choice.decision


@pytest.mark.slow
def test_an_exported_graph_holds_it(rule, model, picture, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from joem import onnx

    onnx.to_onnx(model, tmp_path / "model.onnx")
    monkeypatch.undo()  # the file knows the rule by itself
    assert "excess" not in decision.RULES
    exported = onnx.OnnxModel.load(tmp_path / "model.onnx")
    assert exported.rules["excess"] == ("excess", "kappa", 0.0)
    unseen = torch.tensor([name in model.vocabulary.unseen for name in model.vocabulary.names])
    ranking = Segmenter(model).encode(picture).ranking()
    labels = []
    for kappa in (0.0, 0.3, 5.0):
        labels.append(exported.labels(picture, exported.prototypes(), unseen, "excess", kappa))
        assert (labels[-1] != rule.decide(ranking, kappa)[0]).float().mean() < 1e-3
    assert all((one != other).float().mean() > 0.01 for one, other in pairwise(labels))


# --------------------------------------------------------------------------------------------------- a method


@settings
class ToySettings(MethodSettings):
    """Pixels are drawn to the place of their word.

    Args:
        name: toy.
        pull: how strongly.
    """

    name: str = "toy"
    pull: Weight = 1.0


class Toy(Method):
    """L = pull * |v - W s|^2, the mean over labelled pixels."""

    settings_class = ToySettings
    settings: ToySettings
    title: ClassVar[str] = "toy"
    rule: ClassVar[str] = "cs"

    def __init__(self, model, settings, vocabulary, vectors) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.place = nn.Linear(vectors.shape[1], head_channels(model))

    def forward(self, inputs, labels) -> Objective:
        features = self.features(inputs)
        small = losses.resized(labels, features.shape[2:])
        labelled = small != VOID
        apart = features.movedim(1, -1)[labelled] - self.place(self.vectors)[small[labelled]]
        pull = self.settings.pull * apart.square().sum() / labelled.sum().clamp(min=1)
        return Objective({"pull": pull}, labelled.float().mean() * len(labels))

    def prototypes(self, vectors, names: Sequence[str]):
        return self.place(vectors)

    def parameter_groups(self, head_multiplier):
        return {"visual": self.visual_groups(head_multiplier), "semantic": group(self.place)}


@pytest.fixture
def toy_method(monkeypatch):
    """The line in the registry."""
    monkeypatch.setitem(methods.METHODS, "toy", Toy)


def test_a_method_trains_saves_loads_and_segments(toy_method, tiny, picture, tmp_path, capsys):
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny.to_dict()))
    words = ("train", file, "--method.name", "toy", "--method.pull", 2, "--out", tmp_path / "run")
    assert run(capsys, *words)["model"] == str(tmp_path / "run/model")
    loaded = Model.load(tmp_path / "run")
    assert loaded.recipe.method == ToySettings(pull=2.0)
    assert loaded.recipe.decision.rule == "cs"
    assert "pull" in (tmp_path / "run/metrics.csv").read_text().splitlines()[0]
    result = Segmenter(loaded).encode(picture).segment(["background", "orange dog"])
    assert result.labels.shape == picture.shape[1:]
    assert [row["rule"] for row in run(capsys, "evaluate", tmp_path / "run")][-1] == "cs"


def test_its_settings_are_checked_and_shown_like_any_other(toy_method, capsys):
    with pytest.raises(
        BadUsage, match=r"method.r: there is no such setting. method has name, stage_lengths, stage_rates, pull"
    ):
        recipe.load("scenes", {"method": {"name": "toy", "r": 2}})
    with pytest.raises(BadUsage, match=r"method.pull: .* got -1"):
        recipe.load("scenes", {"method": {"name": "toy", "pull": -1}})
    assert cli.main(["train", "scenes", "--method.name", "toy", "--help"]) == 0
    assert "--method.pull VALUE" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------------- a dataset


class Squares:
    """Pictures of one colour each, with a square of another; made of nothing but their number."""

    names = ("background", "red square", "blue square", "green square")
    background = "background"

    def __init__(self, root, split) -> None:
        self.root, self.count = str(root), {"train": 8, "val": 3}[split]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        labels = self.labels(index)
        image = torch.zeros(3, 64, 64, dtype=torch.uint8)
        for label, channel in ((1, 0), (2, 2), (3, 1)):
            image[channel][labels == label] = 200 + index
        return Sample(image, labels, self.name(index))

    def labels(self, index: int):
        labels = torch.zeros(64, 64, dtype=torch.int64)
        labels[16:48, 16:48] = 1 + index % (2 if self.count == 8 else 3)
        return labels

    def name(self, index: int) -> str:
        return f"square {index}"

    def version(self, index: int) -> str:
        return "1"


@pytest.fixture
def toy_data(monkeypatch):
    """The line in the registry."""
    monkeypatch.setitem(data.KINDS, "toy", Kind(Squares))


def toy_words(file, root, *more):
    own = ("--data.kind", "toy", "--data.root", root, "--data.unseen", "[green square]")
    return ("train", file, *own, "--out", root / "run", *more)


def test_a_dataset_is_trained_and_evaluated_on(toy_data, tiny, tmp_path, capsys):
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny.to_dict()))
    run(capsys, *toy_words(file, tmp_path))
    loaded = Model.load(tmp_path / "run")
    assert loaded.vocabulary.names == Squares.names
    assert loaded.vocabulary.unseen == ("green square",)
    rows = run(capsys, "evaluate", tmp_path / "run")
    assert rows[0]["images"] == 3
    assert list(rows[0]["per_class"]) == list(Squares.names)
    told = run(capsys, "data", "toy", "--root", tmp_path, "--split", "train")
    assert (told["images"], [each["name"] for each in told["classes"]]) == (8, list(Squares.names))


def test_its_unseen_masks_are_guarded_too(toy_data, monkeypatch, tiny, tmp_path):
    toy = tiny.changed(data={"kind": "toy", "root": str(tmp_path), "unseen": ["green square"]})
    labels = Squares.labels
    problem = engine.open_problem(toy.data)
    assert len(data.seen_only(problem.train, problem.vocabulary, problem.rule)) == 8
    monkeypatch.setattr(
        Squares, "__getitem__", lambda self, index: Sample(torch.zeros(3, 64, 64).byte(), labels(self, 2) + 2, "liar")
    )
    with pytest.raises(LeakageError, match="green square"):
        engine.train(toy)
