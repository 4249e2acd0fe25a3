import shutil
from dataclasses import replace

import pytest
import torch

from conftest import make_small, make_tiny
from joem import data, engine
from joem.engine import Model, Problem, starting
from joem.errors import BadUsage
from joem.vocabulary import Vocabulary


def started(recipe, start, **more):
    return recipe.changed(train={"start": str(start), **more})


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("old") / "run"
    recipe = make_small("blend")
    return engine.train(recipe, out), out


@pytest.fixture
def other_classes():
    """A problem with fewer classes in another order, one of which the old model does not know."""
    names = ("background", "purple triangle", "red circle", "blue star")
    pictures = data.scenes.Scenes(60, 32, classes=names[1:])
    return Problem(Vocabulary(pictures.names, ("blue star",), "background"), "exclude", pictures, pictures)


def test_prototypes_of_old_words_stay_and_pixels_learn(old_run):
    old, out = old_run
    new = engine.train(started(make_small("blend", experts=[{"kind": "cosine", "hidden": 9}]), out))
    assert new.recipe.method == old.recipe.method  # the networks are those of the old model, not of the recipe
    before, after = old.method.state_dict(), new.method.state_dict()
    assert torch.equal(before["experts.0.semantic.weight"], after["experts.0.semantic.weight"])
    assert not torch.equal(before["experts.0.head.layers.1.weight"], after["experts.0.head.layers.1.weight"])
    assert torch.equal(before["experts.0.head.layers.0.running_mean"], after["experts.0.head.layers.0.running_mean"])
    cosine = old.method.experts[0]
    assert torch.equal(cosine.prototypes(old.vectors, None), new.method.experts[0].prototypes(old.vectors, None))


def test_weights_of_classes_follow_their_names(old_run, other_classes):
    old, out = old_run
    recipe, start = starting.start_of(started(make_small("blend"), out))
    first = starting.first_model(recipe, other_classes.vocabulary, start)
    theirs, own = (each.method.state_dict()["experts.1.centres"] for each in (old, first))
    known = old.vocabulary.seen
    shared = [name for name in other_classes.vocabulary.seen if name in known]
    assert "red circle" in shared
    for name in shared:
        row = other_classes.vocabulary.seen.index(name)
        assert torch.equal(own[row], theirs[known.index(name)])


def test_old_classes_are_still_known_and_saved(old_run, other_classes, tmp_path):
    old, out = old_run
    new = engine.train(started(make_small("blend"), out), tmp_path / "new", problem=other_classes)
    loaded = Model.load(tmp_path / "new")
    for model in (new, loaded):
        assert model.vocabulary.names[:4] == other_classes.vocabulary.names
        assert set(old.vocabulary.names) <= set(model.vocabulary.names)
        assert set(model.vocabulary.unseen) >= {"blue star"}
        assert model.prototypes().shape[0] == len(model.vocabulary)
    assert torch.equal(new.prototypes(), loaded.prototypes())


def test_a_stopped_training_with_a_start_goes_on_to_the_same_end(old_run, tmp_path):
    _, out = old_run
    recipe = started(make_small("blend"), out, save_every=1, epochs=2)
    whole = engine.train(recipe, tmp_path / "whole")
    engine.train(recipe, tmp_path / "stopped")
    newest = sorted((tmp_path / "stopped" / "checkpoints").glob("step-*"))[-1]
    shutil.rmtree(newest)
    again = engine.train(recipe, tmp_path / "stopped", resume=True)
    for name, value in whole.method.state_dict().items():
        assert torch.equal(value, again.method.state_dict()[name]), name


def test_nothing_is_forgotten_without_a_step_and_all_is_told(old_run):
    old, out = old_run
    same = replace(old, recipe=started(old.recipe, out))
    found = engine.forgetting(same)
    assert found.images == 2
    assert found.same == 100
    assert set(found.kept.values()) == {100.0}
    assert "it agrees with the old model on 100.0 %" in found.lines()[0]
    assert found.not_new == ()
    assert "before" not in found.to_dict()


def test_the_old_data_are_scored_before_and_after(old_run, tmp_path):
    old, out = old_run
    new = engine.train(started(make_small("blend"), out, epochs=3))
    found = engine.forgetting(new, old_root=str(tmp_path))  # scenes need no files
    problem = engine.open_problem(old.recipe.data)
    (before,) = engine.evaluate(old, problem, [old.recipe.decision])
    assert found.before.scores.miou_seen == pytest.approx(before.scores.miou_seen)
    assert "the mean IoU of the old classes was" in found.lines()[1]


def test_what_is_forgotten_is_measured_on_the_old_data_where_no_picture_is_kept_back(old_run, tmp_path):
    old, out = old_run
    data.write_folder(data.scenes.Scenes(1, 32), tmp_path / "one")
    own = {"kind": "folder", "root": str(tmp_path / "one")}
    model = replace(old, recipe=started(old.recipe, out).changed(data=own))
    found = engine.forgetting(model)
    assert found.images == 0
    assert found.lines() == [
        "What it forgot: no picture was kept back to compare on. --from-data DIR takes those of the old data."
    ]
    (line,) = engine.forgetting(model, old_root=str(tmp_path)).lines()
    assert "the mean IoU of the old classes was" in line


def test_agreement_is_counted_by_pixels():
    vocabulary = Vocabulary(("background", "cat", "dog", "cow"), (), "background")
    counts = torch.tensor([[50, 1, 1, 0], [2, 6, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])  # [old label, new label]
    kept, same = starting._agreement(counts, vocabulary)
    assert kept == {"cat": 75.0, "dog": 50.0}
    assert same == 70.0
    assert starting.Forgetting(3, {}, float("nan")).lines()[0].startswith("What it forgot: the old model finds none")


def test_classes_with_old_masks_are_not_called_zero_shot(old_run):
    old, out = old_run
    name = old.vocabulary.seen[1]
    recipe = started(make_small("blend"), out).changed(data={"unseen": [name]})
    assert f"Not zero-shot: the old model had masks of {name}." in engine.forgetting(engine.train(recipe)).lines()


def test_methods_with_a_classifier_start_too(tmp_path):
    recipe = make_tiny(train={"epochs": 1, "save_every": 0})
    old = engine.train(recipe, tmp_path / "old")
    new = engine.train(started(recipe, tmp_path / "old"))
    assert torch.equal(old.method.semantic.weight, new.method.semantic.weight)
    assert not torch.equal(old.method.classifier.weight, new.method.classifier.weight)


def test_captions_and_a_start_are_refused(old_run, tmp_path):
    _, out = old_run
    with pytest.raises(BadUsage, match="learns from masks alone"):
        starting.start_of(started(make_small("blend"), out).changed(data={"captions": str(tmp_path)}))
