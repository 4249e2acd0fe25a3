"""What a recipe asks for, on files in the benchmarks' own layout: classes, splits, and who has to be there."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.io import savemat
from small_voc import SIDE, photo, two_halves, write_voc

from conftest import fresh_model, make_small
from joem import calibration, cli, data, engine, methods, protocols, recipe
from joem.data.preparation import prepare_context
from joem.decision import Decision
from joem.errors import BadUsage, JoemError
from joem.recipe import Recipe
from joem.segmenter import Segmenter
from joem.settings import DataSettings
from joem.vocabulary import VOID

SPNET = protocols.get("voc-spnet").vocabulary


@pytest.fixture
def voc(tmp_path):
    return write_voc(tmp_path)


@pytest.fixture
def spnet(tiny, voc) -> Recipe:
    return tiny.changed(data=spnet_data(voc))


def spnet_data(root):
    return {"kind": "voc", "root": str(root), "protocol": "voc-spnet", "train_split": "auto", "val_split": "auto"}


# ---------------------------------------------------------------- the SPNet setting, where background is no class


def test_background_is_no_class_where_its_pixels_do_not_count(spnet):
    problem = engine.open_problem(spnet.data)
    assert problem.vocabulary == SPNET
    assert "background" not in problem.train.names
    assert len(problem.train) == 8
    assert [problem.train.labels(0).unique().tolist(), problem.val.labels(1).unique().tolist()] == [[0, VOID], [2, 19]]
    assert data.seen_only(problem.train, SPNET, problem.rule).labels(0).unique().tolist() == [0, VOID]


def test_background_is_in_no_loss_of_the_spnet_setting(spnet):
    """L_ce and L_sc are those of fifteen seen classes, by a sum over these alone."""
    method = fresh_model(spnet).method.eval()
    labels = torch.randint(0, 15, (2, 4, 4))
    features = torch.randn(2, 8, 4, 4)
    with torch.no_grad():
        terms, _ = method.objective(features, labels)
        logits = method.classifier(features)
        words = method.vectors[:15]
        points = method.semantic(words)
    expected = 0.0
    for picture, row, column in np.ndindex(2, 4, 4):
        scores = logits[picture, :15, row, column].double()
        expected -= float(scores[labels[picture, row, column]] - scores.exp().sum().log()) / 32
    assert float(terms["ce"]) == pytest.approx(expected, rel=1e-5)

    def relations(rows, tau):
        away = (rows[:, None].double() - rows[None].double()).square().sum(-1).sqrt().mul(-tau).exp()
        return away / away.sum(1, keepdim=True)

    given, made = relations(words, 5.0), relations(points, 1.0)
    assert float(terms["sc"]) == pytest.approx(0.1 * float((given * (given / made).log()).sum()), rel=1e-4)


@pytest.mark.parametrize("name", methods.METHODS)
def test_no_method_knows_of_background_in_the_spnet_setting(name, voc):
    model = fresh_model(make_small(name).changed(data=spnet_data(voc)))
    assert model.vocabulary.seen == SPNET.seen
    assert len(model.vectors) == 20
    assert not any(20 < len(weight) <= 22 for weight in model.method.state_dict().values() if weight.ndim > 1)


def test_the_spnet_setting_is_trained_scored_and_used_without_background(spnet, voc):
    model = engine.train(spnet, voc / "run")
    segmenter = Segmenter.load(voc / "run")
    assert segmenter.vocabulary.names == SPNET.names
    result = segmenter.encode(voc / "VOCdevkit/VOC2012/JPEGImages/v0.jpg").segment()
    assert result.names == SPNET.names
    (found,) = engine.evaluate(model, engine.open_problem(spnet.data), [Decision("nn")])
    assert found.confusion.shape == (20, 20)
    assert found.confusion.sum() == SIDE * SIDE // 2 * 3  # half of v0 and all of v1
    folds = engine.open_problem(spnet.data, needed=("train",))
    assert "background" not in {
        name for fold in calibration.fold_problems(folds, 2, seed=0) for name in fold.vocabulary.names
    }


def test_ignoring_without_a_protocol_leaves_background_out_too(tiny, voc):
    settings = replace(tiny.data, kind="voc", root=str(voc), unseen=["sheep"], rule="ignore", val_split="val")
    problem = engine.open_problem(settings)
    assert problem.vocabulary.names == SPNET.names
    assert problem.vocabulary.unseen == ("sheep",)
    kept = engine.open_problem(replace(settings, rule="exclude"))
    assert kept.vocabulary.names[0] == kept.vocabulary.background == "background"


def test_generated_pictures_follow_the_rule_and_know_no_protocol(tiny):
    problem = engine.open_problem(replace(tiny.data, rule="ignore"))
    assert "background" not in problem.vocabulary.names
    assert VOID in problem.train.labels(0)
    with pytest.raises(BadUsage, match="'voc-zs3-2' is about 'voc' with 21 classes, but 'scenes' has"):
        engine.open_problem(replace(tiny.data, protocol="voc-zs3-2"))


# ------------------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("name", protocols.names())
def test_a_protocol_brings_its_splits_unless_others_are_given(name):
    protocol = protocols.get(name)
    settings = DataSettings(kind=protocol.dataset, protocol=name)
    assert settings.splits() == (protocol.train_split, protocol.val_split)
    assert replace(settings, train_split="mine").splits() == ("mine", protocol.val_split)
    assert replace(settings, val_split=None).splits() == (protocol.train_split, None)
    assert Recipe(data=settings).data.train_split == protocol.train_split
    assert DataSettings().splits() == ("train", "val")


@pytest.mark.parametrize(
    ("words", "splits"),
    [
        ([], ("train", "val")),
        (["--data.protocol", "voc-zs3-4"], ("train_aug", "val")),
        (["--data.protocol", "voc-zs3-4", "--data.train_split", "train"], ("train", "val")),
        (["--data.protocol", "context-zs3-4", "--data.val_split", "train"], ("train", "train")),
    ],
)
def test_a_protocol_on_the_command_line_brings_its_splits(words, splits, monkeypatch):
    seen = {}
    monkeypatch.setattr("joem.engine.train", lambda recipe, *_, **__: seen.update(recipe=recipe))
    assert cli.main(["train", "scenes", "--no-validation", *words]) == 0
    assert (seen["recipe"].data.train_split, seen["recipe"].data.val_split) == splits


def test_data_of_a_protocol_are_its_training_pictures(voc, capsys):
    assert cli.main(["data", "voc", "--root", str(voc), "--protocol", "voc-zs3-2"]) == 0
    assert capsys.readouterr().out.startswith("8 pictures")
    assert cli.main(["data", "voc", "--root", str(voc), "--protocol", "voc-zs3-2", "--split", "train"]) == 0
    assert capsys.readouterr().out.startswith("4 pictures")


# ------------------------------------------------------------------------------------- only what is needed


@pytest.mark.slow
def test_evaluation_needs_no_training_picture_and_training_none_to_evaluate_on(spnet, voc, capsys):
    folder, away = voc / "VOCdevkit/VOC2012", voc / "away"
    lists = folder / "ImageSets/Segmentation"
    away.mkdir()
    (lists / "val.txt").rename(away / "val.txt")
    engine.train(spnet, voc / "run")
    (away / "val.txt").rename(lists / "val.txt")
    for stem in ("train", "train_aug"):
        (lists / f"{stem}.txt").unlink()
    for picture in folder.glob("*/t?.*"):
        picture.unlink()
    shutil.rmtree(folder / "SegmentationClassAug")
    for words in (["evaluate"], ["sweep", "--rules", "ac"], ["report"]):
        assert cli.main([words[0], str(voc / "run"), *words[1:], "--json"]) == 0, words
    capsys.readouterr()
    with pytest.raises(JoemError, match=r"no .*train_aug.txt"):
        engine.open_problem(spnet.data)


def test_what_was_not_asked_for_is_empty(spnet):
    problem = engine.open_problem(spnet.data, needed=("val",))
    assert (len(problem.train), len(problem.val)) == (0, 2)
    with pytest.raises(JoemError, match="0 of 0 pictures stay"):
        engine.train(spnet, problem=problem)


# ------------------------------------------------------------------------------------------ PASCAL Context


@pytest.fixture
def context_root(tmp_path, monkeypatch):
    """PASCAL Context as it is shipped, MATLAB files of 459 labels on VOC 2010, then prepared."""
    monkeypatch.setattr(prepare_context, "LISTED", 6)
    own = [prepare_context.OTHER_NAMES.get(name, name) for name in prepare_context.VOCABULARY.names[1:]]
    names = sorted([*own, *(f"other thing {n:03}" for n in range(400))])
    number = {name: place for place, name in enumerate(names, start=1)}
    folder = tmp_path / "VOCdevkit/VOC2010"
    (tmp_path / "trainval").mkdir()
    (folder / "ImageSets/Main").mkdir(parents=True)
    halves = [
        ("grass", "dog"),
        ("sky", "horse"),
        ("road", "person"),
        ("water", "tree"),
        ("cow", "grass"),
        ("sky", "cow"),
    ]
    for seed, (left, right) in enumerate(halves):
        photo(folder / f"JPEGImages/p{seed}.jpg", seed)
        labels = two_halves(number[left], number[right], np.uint16)
        savemat(tmp_path / f"trainval/p{seed}.mat", {"LabelMap": labels})
    (folder / "ImageSets/Main/train.txt").write_text("p0\np1\np2\np3\np4\n")
    (folder / "ImageSets/Main/val.txt").write_text("p5\n")
    (tmp_path / "labels.txt").write_text("".join(f"{place}: {name}\n" for name, place in number.items()))
    assert data.prepare("context", tmp_path).ready
    return tmp_path


@pytest.mark.parametrize("unseen", [2, 4, 6, 8, 10])
def test_a_context_recipe_trains_on_files_as_they_are_shipped(unseen, context_root):
    """The recipe's own settings but for what makes it large: backbone, channels, crop, epochs; GloVe for word2vec."""
    changes = {
        "data": {"protocol": f"context-zs3-{unseen}", "root": str(context_root), "crop": SIDE, "workers": 0},
        "semantics": {"vectors": "glove"},
        "model": {"backbone": "tu-test_efficientnet", "weights": "none", "head": {"channels": 16}},
        "train": {"epochs": 2, "batch_size": 4, "accelerator": "cpu", "log_every": 1},
    }
    loaded = recipe.load("paper-context", changes)
    model = engine.train(loaded, context_root / "run")
    steps = list(csv.DictReader((context_root / "run/metrics.csv").open()))
    assert [line["step"] for line in steps] == ["1", "2"]  # four of five pictures: one shows a cow
    assert all(float(line[term]) > 0 for line in steps for term in ("ce", "bar", "sc"))
    assert (len(model.vocabulary), len(model.vocabulary.unseen)) == (60, unseen)
    (found,) = engine.evaluate(model, engine.open_problem(loaded.data), [loaded.decision])
    assert found.confusion.sum() == SIDE * SIDE
    assert json.loads((context_root / "run/model/model.json").read_text())["recipe"]["data"]["train_split"] == "train"


# ------------------------------------------------------------------------------------------ other folders


def test_protocol_of_other_data_is_refused(tiny, tmp_path):
    data.write_folder(data.Scenes(2, 64), tmp_path)
    settings = replace(
        tiny.data, kind="folder", root=str(tmp_path), train_split=None, val_split=None, protocol="voc-zs3-2"
    )
    with pytest.raises(BadUsage, match="'voc-zs3-2' is about 'voc' with 21 classes"):
        engine.open_problem(settings)


def test_training_on_a_users_folder(tiny, tmp_path):
    data.write_folder(data.Scenes(16, 64, classes=["red circle", "blue star", "red star"]), tmp_path)
    folder = {"kind": "folder", "root": str(tmp_path), "train_split": None, "val_split": None}
    model = engine.train(tiny.changed(data={**folder, "unseen": ["red star"], "rule": "ignore"}))
    assert model.vocabulary.names == ("red circle", "blue star", "red star")  # no background where it is ignored
    assert model.vocabulary.unseen == ("red star",)
