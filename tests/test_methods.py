"""One contract that every method keeps, and every loss of the compared systems against a slow loop."""

import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import data, engine, methods
from joem.engine import training
from joem.engine.model import Model
from joem.engine.training import Interrupted
from joem.errors import BadUsage, LeakageError
from joem.methods.classifier import as_prototypes
from joem.segmenter import Segmenter

NAMES = sorted(methods.METHODS)
AT_ONCE = [name for name in NAMES if not methods.get(name).new_class_stages and not methods.get(name).sees_every_mask]
RETRAINED = [name for name in NAMES if methods.get(name).new_class_stages]


@pytest.fixture
def recipe(tiny):
    """Two steps per stage, with dropout, so that the random numbers matter."""
    tiny.data = replace(tiny.data, train_count=8, val_count=2, crop=32, size=32)
    tiny.model.dropout = 0.2
    tiny.train = replace(tiny.train, batch_size=4, epochs=1, save_every=0)
    tiny.method.generator.samples = 16
    tiny.method.generator.noise = 6
    tiny.method.generator.hidden = 12
    tiny.method.generator.alternate = 1
    return tiny


def trained(recipe, name, out=None, **options):
    recipe = deepcopy(recipe)
    recipe.method.name = name
    return engine.train(recipe, out, progress=False, **options)


def assert_same_weights(a, b):
    a, b = a.method.state_dict(), b.method.state_dict()
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_trains_repeatably_resumes_exactly_saves_and_segments(recipe, name, tmp_path, monkeypatch):
    whole = trained(recipe, name, tmp_path / "whole")
    stages = whole.method.stages
    steps = 2 * len(stages)
    assert_same_weights(trained(recipe, name), whole)
    # Interrupted in the middle of the last stage, and exactly where two stages meet.
    for stop in {steps - 1, steps - 2} - {0}:
        original = training._Run.train_step

        def train_step(run, *batch, stop=stop, original=original):
            run.stop = run.step + 1 == stop
            return original(run, *batch)

        with monkeypatch.context() as patch:
            patch.setattr(training._Run, "train_step", train_step)
            with pytest.raises(Interrupted, match=f"step {stop} of {steps}"):
                trained(recipe, name, tmp_path / str(stop))
        torch.rand(7)
        assert_same_weights(trained(recipe, name, tmp_path / str(stop), resume=True), whole)
    loaded = Model.load(tmp_path / "whole")
    assert_same_weights(loaded, whole)
    picture = engine.open_problem(recipe.data).val[0].image
    some = (whole.vocabulary.unseen[0], whole.vocabulary.names[0], whole.vocabulary.seen[-1])
    for names in (None, some):
        results = [Segmenter(model).encode(picture).segment(names, "nn").labels for model in (whole, loaded)]
        assert results[0].shape == picture.shape[1:]
        assert torch.equal(*results)


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_trains_what_it_says_and_nothing_else(recipe, name):
    recipe.method.name = name
    run = training._Run(recipe, engine.open_problem(recipe.data), training._fabric(recipe.train), None)
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
def test_unseen_masks_are_stopped_but_for_the_upper_bound(recipe, name, monkeypatch):
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
        trained(recipe, name, problem=lying)
        return
    for _ in range(2):
        with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
            trained(recipe, name, problem=lying)
        # the second time, the dataset's own guard is gone and the loop's must do
        monkeypatch.setattr(sys.modules["joem.data.guard"], "guard", lambda labels, vocabulary: None)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_words_come_in_through_their_door_only(recipe, name):
    recipe.method.name = name
    model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
    unseen = list(model.vocabulary.unseen_indices)
    assert model.vectors[unseen].any()
    assert bool(model.method.vectors[unseen].any()) == model.method.uses_unseen_words
    assert model.method.uses_unseen_words == (name in RETRAINED)


@pytest.mark.parametrize("name", AT_ONCE)
def test_words_are_enough_for_a_new_class(recipe, name):
    model = trained(recipe, name)
    picture = torch.randint(0, 256, (3, 32, 40), dtype=torch.uint8)
    result = Segmenter(model).encode(picture).segment(["background", "orange dog"], "nn")
    assert result.unseen == ("orange dog",)
    larger = engine.add_class(model, "orange dog", engine.open_problem(recipe.data), progress=False)
    names = (*model.vocabulary.names, "orange dog")
    assert larger.vocabulary.names == names
    assert torch.equal(larger.prototypes(), model.prototypes(names))


@pytest.mark.parametrize("name", RETRAINED)
def test_methods_that_must_train_again_for_a_new_class_say_so_and_do(recipe, name):
    problem = engine.open_problem(recipe.data)
    model = trained(recipe, name, problem=problem)
    with pytest.raises(BadUsage, match=f"orange dog: no such class.*{name} has to train its stage.*add_class"):
        model.prototypes(("background", "orange dog"))
    larger = engine.add_class(model, "orange dog", problem, progress=False)
    assert larger.vocabulary.unseen[-1] == "orange dog"
    assert len(larger.prototypes()) == len(model.vocabulary) + 1
    encoder = model.method.visual.state_dict()
    assert all(torch.equal(value, encoder[key]) for key, value in larger.method.visual.state_dict().items())


def test_the_upper_bound_sees_unseen_classes_and_cannot_take_a_word(recipe):
    problem = engine.open_problem(recipe.data, every_mask=True)
    shown = data.class_presence(problem.train)[:, list(problem.vocabulary.unseen_indices)]
    assert shown.any()
    model = trained(recipe, "supervised")
    with pytest.raises(BadUsage, match="needs masks of a class and a whole new training"):
        model.prototypes(("orange dog",))
    with pytest.raises(BadUsage, match="a new class needs masks"):
        engine.add_class(model, "orange dog", problem)


def test_stage_lengths_are_shares_of_the_epochs(recipe, tmp_path):
    recipe.train.epochs, recipe.method.stage_lengths = 2, {"semantic": 0.5}
    recipe.train.log_every = 1
    trained(recipe, "two_stage", tmp_path)
    lines = {path.name: len(path.read_text().splitlines()) - 1 for path in tmp_path.glob("metrics*.csv")}
    assert lines == {"metrics-visual.csv": 4, "metrics-semantic.csv": 2}
    recipe.method.stage_lengths = {"sematic": 1.0}
    with pytest.raises(BadUsage, match=r"Unknown stage of two_stage 'sematic'.*Did you mean 'semantic'"):
        trained(recipe, "two_stage")


def test_every_stage_has_its_own_schedule(recipe):
    recipe.method.name = "two_stage"
    recipe.train.semantic.power = 1.0
    run = training._Run(recipe, engine.open_problem(recipe.data), training._fabric(recipe.train), None)
    run.begin(1)
    run.step = 2
    run.train_step(*next(run.batches()))
    assert run.optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(recipe.train.semantic.lr)
    run.step = 3
    run.train_step(*next(run.batches()))
    assert run.optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(recipe.train.semantic.lr / 2)


@given(st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=30)
def test_prototypes_of_a_classifier_decide_as_its_logits(seed):
    random = torch.Generator().manual_seed(seed)
    weights, biases = torch.randn(5, 3, generator=random).double(), torch.randn(5, generator=random).double()
    points = 3 * torch.randn(40, 3, generator=random).double()
    found = torch.cdist(torch.nn.functional.pad(points, (0, 1)), as_prototypes(weights, biases)).argmin(dim=1)
    assert torch.equal(found, (points @ weights.T + biases).argmax(dim=1))
