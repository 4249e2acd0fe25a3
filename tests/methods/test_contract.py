"""One contract that every method keeps."""

import sys
from dataclasses import replace

import pytest
import torch

from conftest import assert_same_weights, fresh_model, make_run, make_small, stop_after
from joem import data, engine, methods
from joem.engine import Interrupted, Model
from joem.errors import BadUsage, LeakageError
from joem.segmenter import Segmenter

NAMES = sorted(methods.METHODS)
AT_ONCE = [name for name in NAMES if not methods.get(name).new_class_stages and not methods.get(name).sees_every_mask]
RETRAINED = [name for name in NAMES if methods.get(name).new_class_stages]


@pytest.mark.parametrize("name", NAMES)
def test_trains_repeatably_resumes_exactly_saves_and_segments(name, tmp_path, monkeypatch):
    recipe = make_small(name)
    whole = engine.train(recipe, tmp_path / "whole")
    steps = 2 * len(whole.method.stages)
    assert_same_weights(engine.train(recipe), whole)
    # Interrupted in the middle of the last stage, and exactly where two stages meet.
    for stop in {steps - 1, steps - 2} - {0}:
        with monkeypatch.context() as patch:
            stop_after(patch, stop)
            with pytest.raises(Interrupted, match=f"step {stop} of {steps}"):
                engine.train(recipe, tmp_path / str(stop))
        torch.rand(7)
        assert_same_weights(engine.train(recipe, tmp_path / str(stop), resume=True), whole)
    loaded = Model.load(tmp_path / "whole")
    assert_same_weights(loaded, whole)
    assert loaded.recipe == recipe
    picture = engine.open_problem(recipe.data).val[0].image
    some = (whole.vocabulary.unseen[0], whole.vocabulary.names[0], whole.vocabulary.seen[-1])
    for names in (None, some):
        results = [Segmenter(model).encode(picture).segment(names, "nn").labels for model in (whole, loaded)]
        assert results[0].shape == picture.shape[1:]
        assert torch.equal(*results)


@pytest.mark.parametrize("name", NAMES)
def test_features_have_the_stride_that_the_method_states_and_the_channels_of_its_prototypes(name):
    model = fresh_model(make_small(name))
    stride = model.method.stride
    features = model.features(torch.randint(0, 256, (3, 40, 65), dtype=torch.uint8))
    assert features.shape[2:] == (-(-40 // stride), -(-65 // stride))
    assert model.prototypes().shape == (len(model.vocabulary), features.shape[1])
    assert model.prototypes(model.vocabulary.names[2:5]).shape == (3, features.shape[1])
    torch.testing.assert_close(model.prototypes(model.vocabulary.names[2:5]), model.prototypes()[2:5])


@pytest.mark.parametrize("name", NAMES)
def test_its_settings_are_its_own_and_its_rule_is_known(name):
    method = methods.get(name)
    assert method.settings_class(name=name).name == name
    assert make_small(name).method == method.settings_class(**vars(make_small(name).method))
    assert method.title
    assert engine.Model.create(make_small(name), engine.open_problem(make_small(name).data).vocabulary).method.stages


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_trains_what_it_says_and_nothing_else(name):
    run = make_run(make_small(name))
    method = run.model.method
    batches = run.batches()
    for number, stage in enumerate(method.stages):
        run.begin(number)
        run.step = run.ends[number] - 2
        before = {key: value.clone() for key, value in method.named_parameters()}
        batch_statistics = {key: value.clone() for key, value in method.visual.named_buffers()}
        run.train_step(*next(batches))
        changed = {key for key, value in method.named_parameters() if not torch.equal(value, before[key])}
        learning = {key for key, value in method.named_parameters() if value.requires_grad}
        assert changed, stage
        assert changed <= learning
        if not any(key.startswith("visual.") for key in learning):
            assert all(torch.equal(value, batch_statistics[key]) for key, value in method.visual.named_buffers())


@pytest.mark.parametrize("name", NAMES)
def test_unseen_masks_are_stopped_but_for_the_upper_bound(name, monkeypatch):
    recipe = make_small(name)
    problem = engine.open_problem(recipe.data)
    unseen = problem.vocabulary.unseen_indices[0]

    class Liar(data.Remembered):
        """Says in the scan that there is no unseen pixel, then brings one."""

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            sample.labels[:4] = unseen
            return sample

    lying = replace(problem, train=Liar(problem.train))
    if methods.get(name).sees_every_mask:
        assert name == "supervised"
        engine.train(recipe, problem=lying)
        return
    for _ in range(2):
        with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
            engine.train(recipe, problem=lying)
        # the second time, the dataset's own guard is gone and the loop's must do
        monkeypatch.setattr(sys.modules["joem.data.guard"], "guard", lambda labels, vocabulary: None)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_words_come_in_through_their_door_only(name):
    model = fresh_model(make_small(name))
    unseen = list(model.vocabulary.unseen_indices)
    assert model.vectors[unseen].any()
    assert bool(model.method.vectors[unseen].any()) == model.method.uses_unseen_words
    assert model.method.uses_unseen_words == (name in RETRAINED)


@pytest.mark.parametrize("name", AT_ONCE)
def test_words_are_enough_for_a_new_class(name, tmp_path):
    recipe = make_small(name)
    model = engine.train(recipe)
    picture = torch.randint(0, 256, (3, 32, 40), dtype=torch.uint8)
    result = Segmenter(model).encode(picture).segment(["background", "orange dog"], "nn")
    assert result.unseen == ("orange dog",)
    larger = engine.add_class(model, "orange dog", engine.open_problem(recipe.data))
    names = (*model.vocabulary.names, "orange dog")
    assert larger.vocabulary.names == names
    assert torch.equal(larger.prototypes(), model.prototypes(names))
    again = Model.load(larger.save(tmp_path / "larger"))
    assert again.vocabulary == larger.vocabulary
    assert torch.equal(again.prototypes(), larger.prototypes())
    assert torch.equal(again.features(picture), model.features(picture))


@pytest.mark.parametrize("name", RETRAINED)
def test_methods_that_must_train_again_for_a_new_class_say_so_and_do(name):
    recipe = make_small(name)
    problem = engine.open_problem(recipe.data)
    model = engine.train(recipe, problem=problem)
    with pytest.raises(BadUsage, match=f"orange dog: no such class.*{name} has to train its stage.*add_class"):
        model.prototypes(("background", "orange dog"))
    larger = engine.add_class(model, "orange dog", problem)
    assert larger.vocabulary.unseen[-1] == "orange dog"
    assert len(larger.prototypes()) == len(model.vocabulary) + 1
    encoder = model.method.visual.state_dict()
    assert all(torch.equal(value, encoder[key]) for key, value in larger.method.visual.state_dict().items())


def test_the_upper_bound_sees_unseen_classes_and_cannot_take_a_word():
    recipe = make_small("supervised")
    problem = engine.open_problem(recipe.data, every_mask=True)
    shown = data.class_presence(problem.train)[:, list(problem.vocabulary.unseen_indices)]
    assert shown.any()
    model = engine.train(recipe)
    with pytest.raises(BadUsage, match="needs masks of a class and a whole new training"):
        model.prototypes(("orange dog",))
    with pytest.raises(BadUsage, match="a new class needs masks"):
        engine.add_class(model, "orange dog", problem)


def test_stage_lengths_are_shares_of_the_epochs(tmp_path):
    recipe = make_small("two_stage", stage_lengths={"semantic": 0.5}).changed(train={"epochs": 2, "log_every": 1})
    engine.train(recipe, tmp_path)
    lines = {path.name: len(path.read_text().splitlines()) - 1 for path in tmp_path.glob("metrics*.csv")}
    assert lines == {"metrics-visual.csv": 4, "metrics-semantic.csv": 2}
    with pytest.raises(BadUsage, match=r"Unknown stage of two_stage 'sematic'.*Did you mean 'semantic'"):
        engine.train(make_small("two_stage", stage_lengths={"sematic": 1.0}))


def test_every_stage_has_its_own_schedule():
    recipe = make_small("two_stage").changed(train={"semantic": {"power": 1.0}})
    run = make_run(recipe)
    run.begin(1)
    for step, share in ((2, 1), (3, 0.5)):
        run.step = step
        run.train_step(*next(run.batches()))
        rate = run.optimisers["semantic"].param_groups[0]["lr"]
        assert rate == pytest.approx(share * recipe.train.semantic.lr)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_without_labels_is_no_trouble(name):
    """Every stage gives finite gradients where nothing is labelled."""
    method = fresh_model(make_small(name)).method
    for stage in method.stages:
        method.begin(stage)
        terms, _ = method(torch.randn(2, 3, 32, 32), torch.full((2, 32, 32), 255))
        torch.stack(list(terms.values())).sum().backward()
        for key, value in method.named_parameters():
            assert value.grad is None or torch.isfinite(value.grad).all(), (stage, key)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"blend"}))
def test_a_method_without_experts_needs_a_head(name):
    recipe = make_small(name).changed(model={"head": None})
    with pytest.raises(BadUsage, match=r"no head to make features with: set --model\.head\.name to one of deeplab"):
        fresh_model(recipe)


def test_an_unknown_method_answers_with_the_list():
    with pytest.raises(BadUsage, match=r"Unknown method 'joemm'. Did you mean 'joem'\? Available options are: joem, "):
        methods.get("joemm")
