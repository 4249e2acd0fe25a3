import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from joem import data, engine, scores
from joem.engine import files, training
from joem.engine.checkpoint import Checkpoints
from joem.engine.model import Model
from joem.engine.training import Interrupted, rates
from joem.errors import BadUsage, JoemError, LeakageError
from joem.recipe import DecisionSettings, TrainSettings
from joem.vocabulary import Vocabulary


def weights(model):
    return {key: value.clone() for key, value in model.method.state_dict().items()}


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


class StopAt:
    """Interrupts a run after some steps, as Ctrl-C does."""

    def __init__(self, monkeypatch, step):
        original = training._Run.train_step

        def train_step(run, images, labels):
            if run.step + 1 == step:
                run.stop = True
            return original(run, images, labels)

        monkeypatch.setattr(training._Run, "train_step", train_step)


def test_a_run_writes_what_it_promises(tiny, tmp_path):
    model = engine.train(tiny, tmp_path, progress=False)
    lines = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [int(line["step"]) for line in lines] == [1, 2, 3, 4]
    for line in lines:
        parts = [float(line[name]) for name in ("ce", "bar", "sc")]
        assert float(line["total"]) == pytest.approx(sum(parts))
    assert (tmp_path / "recipe.yaml").is_file()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000004"]
    assert {p.name for p in (tmp_path / "model").iterdir()} == {"weights.safetensors", "model.json"}
    assert_same_weights(weights(Model.load(tmp_path)), weights(model))


def test_same_seed_same_weights_other_seed_other_weights(tiny):
    first, second = engine.train(tiny, progress=False), engine.train(tiny, progress=False)
    assert_same_weights(weights(first), weights(second))
    tiny.train.seed = 1
    third = engine.train(tiny, progress=False)
    assert not torch.equal(weights(first)["semantic.weight"], weights(third)["semantic.weight"])


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_interrupted_and_resumed_equals_uninterrupted(tiny, tmp_path, monkeypatch, stop, optimiser):
    tiny.model.dropout = 0.3  # so that the random numbers matter too
    tiny.train.visual.name = optimiser
    whole = engine.train(tiny, tmp_path / "whole", progress=False)
    with monkeypatch.context() as patch:
        StopAt(patch, stop)
        with pytest.raises(Interrupted, match=f"step {stop} of 4.*--resume"):
            engine.train(tiny, tmp_path / "parts", progress=False)
    usable = Model.load(tmp_path / "parts")
    assert usable.prototypes().shape == (len(usable.vocabulary), 8)
    torch.rand(17)  # whatever happened to the random numbers in between
    resumed = engine.train(tiny, tmp_path / "parts", resume=True, progress=False)
    assert_same_weights(weights(resumed), weights(whole))

    def metrics(folder):
        return [
            {k: v for k, v in line.items() if k != "seconds"}
            for line in csv.DictReader((tmp_path / folder / "metrics.csv").open())
        ]

    assert metrics("parts") == metrics("whole")


def test_ctrl_c_leaves_a_usable_checkpoint(tiny, tmp_path):
    tiny.train.epochs = 10_000
    started = threading.Event()

    def interrupt():
        while not (tmp_path / "metrics.csv").exists():
            time.sleep(0.05)
        started.set()
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(Interrupted, match="can be used as it is"):
        engine.train(tiny, tmp_path, progress=False)
    watcher.join()
    assert started.is_set()
    Model.load(tmp_path)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_run_in_the_same_folder_is_refused(tiny, tmp_path):
    engine.train(tiny, tmp_path, progress=False)
    with pytest.raises(BadUsage, match="already holds a run: add --resume"):
        engine.train(tiny, tmp_path, progress=False)
    with pytest.raises(BadUsage, match="no checkpoint to resume"):
        engine.train(tiny, tmp_path / "other", resume=True, progress=False)


OTHER = "name,note\nmine,keep\n"


@pytest.mark.parametrize("held", ["model", "metrics.csv"])
def test_results_without_checkpoints_are_never_written_over(tiny, tmp_path, held):
    if held == "model":
        (tmp_path / held).mkdir()
    else:
        (tmp_path / held).write_text(OTHER)
    with pytest.raises(BadUsage, match=f"already holds {held}, but no checkpoint to go on from: choose another --out"):
        engine.train(tiny, tmp_path, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == [held]
    assert held == "model" or (tmp_path / held).read_text() == OTHER


def test_a_run_that_came_to_no_checkpoint_may_begin_again(tiny, tmp_path):
    tiny.train.epochs = 1
    (tmp_path / "recipe.yaml").write_text("another: recipe\n")
    (tmp_path / "metrics.csv").write_text("step,of,another,recipe\n")
    (tmp_path / "metrics-mine.csv").write_text(OTHER)
    engine.train(tiny, tmp_path, progress=False)
    assert [int(line["step"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())] == [1, 2]
    assert (tmp_path / "metrics-mine.csv").read_text() == OTHER
    for folder in ("checkpoints", "model"):  # as if it had been killed in its first steps
        shutil.rmtree(tmp_path / folder)
    engine.train(tiny, tmp_path, progress=False)
    assert [int(line["step"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())] == [1, 2]


def test_resuming_touches_no_file_that_is_not_of_the_run(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        StopAt(patch, 1)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path, progress=False)
    (tmp_path / "metrics-mine.csv").write_text(OTHER)
    engine.train(tiny, tmp_path, resume=True, progress=False)
    assert (tmp_path / "metrics-mine.csv").read_text() == OTHER


@pytest.mark.parametrize("broken", [0, 3])
def test_a_broken_picture_loses_no_step(tiny, tmp_path, monkeypatch, broken):
    tiny.train.save_every = 0
    original = training._Run.batches

    def batches(run):
        for batch in original(run):
            if run.step == broken:
                raise JoemError("Cannot read picture 7.")
            yield batch

    whole = engine.train(tiny, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(training._Run, "batches", batches)
        with pytest.raises(JoemError, match="picture 7"):
            engine.train(tiny, tmp_path, progress=False)
    # Before the first step there is nothing to keep: the run may simply begin again.
    assert [path.name for path in tmp_path.glob("checkpoints/*")] == (["step-00000003"] if broken else [])
    resumed = engine.train(tiny, tmp_path, resume=broken > 0, progress=False)
    assert_same_weights(weights(resumed), weights(whole))


def test_a_full_disk_is_told_to_all_processes(tiny, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(JoemError, match=rf"{tmp_path} cannot be written to \(.*No space left on device\): make room"):
        engine.train(tiny, tmp_path, progress=False)


def test_tensorboard_has_every_step_once_after_a_stop(tiny, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny.train.tensorboard, tiny.train.save_every = True, 2
    original = training._Run.train_step

    def train_step(run, images, labels):
        if run.step == 3:
            raise RuntimeError("power cut")
        return original(run, images, labels)

    with monkeypatch.context() as patch:
        patch.setattr(training._Run, "train_step", train_step)
        with pytest.raises(RuntimeError, match="power cut"):
            engine.train(tiny, tmp_path, progress=False)
    engine.train(tiny, tmp_path, resume=True, progress=False)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("loss/ce")] == [1, 2, 3, 4]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tiny, tmp_path, monkeypatch):
    original = training._Run.train_step

    def train_step(run, images, labels):
        return original(run, images * float("nan") if run.step == 2 else images, labels)

    monkeypatch.setattr(training._Run, "train_step", train_step)
    with pytest.raises(JoemError, match=r"not a number at step 2 .*last good checkpoint is .*step-00000002"):
        engine.train(tiny, tmp_path, progress=False)
    kept = weights(Model.load(tmp_path))
    assert all(torch.isfinite(value).all() for value in kept.values() if value.is_floating_point())


def test_an_unseen_mask_slipped_in_is_stopped_before_the_loss(tiny, monkeypatch):
    problem = engine.open_problem(tiny.data)
    unseen = problem.vocabulary.unseen_indices[0]

    class Liar(data.Remembered):
        """Says in the scan that there is no unseen pixel, then brings one."""

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            sample.labels[:4] = unseen
            return sample

    with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
        engine.train(tiny, problem=replace(problem, train=Liar(problem.train)), progress=False)
    # and the loop's own guard, even if the dataset's were gone
    monkeypatch.setattr(sys.modules["joem.data.guard"], "guard", lambda labels, vocabulary: None)
    with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
        engine.train(tiny, problem=replace(problem, train=Liar(problem.train)), progress=False)


def test_methods_never_hold_vectors_of_unseen_classes(tiny):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    unseen = list(model.vocabulary.unseen_indices)
    assert not model.method.vectors[unseen].any()
    assert model.vectors[unseen].any()


def test_accumulated_parts_give_the_gradient_of_the_whole_batch(tiny):
    """Labelled pixels differ between the parts, so a plain mean over the parts would be wrong."""
    tiny.model.freeze_backbone = True
    tiny.model.aspp_dropout = 0.0
    tiny.model.dropout = 0.0

    def gradients(accumulate):
        recipe = deepcopy(tiny)
        recipe.train.accumulate = accumulate
        recipe.train.visual.name = recipe.train.semantic.name = "sgd"
        run = training._Run(recipe, engine.open_problem(recipe.data), training._fabric(recipe.train), None)
        run.module.eval()  # batch statistics depend on how a batch is cut
        images, labels = next(run.batches())
        labels[0, 5:] = 255
        labels[3] = 255
        before = weights(run.model)
        run.train_step(images, labels)
        after = weights(run.model)
        return {key: after[key] - before[key] for key in after if after[key].is_floating_point()}

    whole, parts = gradients(1), gradients(4)
    assert any(value.abs().max() > 0 for value in whole.values())
    for key in whole:
        torch.testing.assert_close(parts[key], whole[key], atol=1e-7, rtol=1e-4, msg=key)


TWO_PROCESSES = """
import sys, torch
from joem import engine, recipe
from joem.engine import training
r = recipe.load(sys.argv[1])
fabric = training._fabric(r.train)
fabric.launch()
run = training._Run(r, engine.open_problem(r.data), fabric, None)
run.module.eval()
images, labels = next(run.batches())
labels[0, 5:] = 255
if fabric.global_rank == 0:
    labels[1] = 255
run.train_step(images, labels)
if fabric.is_global_zero:
    torch.save({"weights": run.model.method.state_dict(), "world": fabric.world_size}, sys.argv[2])
"""


def test_two_processes_give_the_gradient_of_one(tiny, tmp_path):
    """Two gloo processes on halves of a batch, unevenly labelled, against one process on all of it."""
    import yaml

    tiny.train.visual.name = tiny.train.semantic.name = "sgd"
    tiny.model.aspp_dropout = tiny.model.dropout = 0.0
    tiny.train.devices = 2
    tiny.train.strategy = "ddp"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.to_dict()))
    (tmp_path / "two.py").write_text(TWO_PROCESSES)
    command = [
        sys.executable,
        str(tmp_path / "two.py"),
        str(tmp_path / "tiny.yaml"),
        str(tmp_path / "two.pt"),
    ]
    subprocess.run(command, check=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = torch.load(tmp_path / "two.pt", weights_only=True)
    assert found["world"] == 2

    tiny.train.devices, tiny.train.strategy = 1, "auto"
    run = training._Run(tiny, engine.open_problem(tiny.data), training._fabric(tiny.train), None)
    run.module.eval()
    images, labels = next(run.batches())
    labels[0, 5:] = labels[4, 5:] = 255  # picture 4 is the first of the second process
    labels[1] = 255
    before = weights(run.model)
    run.train_step(images, labels)
    after = weights(run.model)
    changed = [key for key in after if not torch.equal(after[key], before[key])]
    assert "semantic.weight" in changed
    for key in after:
        torch.testing.assert_close(found["weights"][key], after[key], atol=1e-7, rtol=1e-4, msg=key)


def test_rates_follow_warmup_and_poly():
    settings = TrainSettings()
    settings.visual.lr, settings.visual.warmup, settings.visual.power = 0.1, 4, 0.9
    settings.semantic.power = 0.0
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimisers = {
        "visual": torch.optim.SGD([{"params": [parameter], "scale": 10.0}], lr=1.0),
        "semantic": torch.optim.Adam([{"params": [parameter], "scale": 1.0}], lr=1.0),
    }
    for step in range(20):
        rates(optimisers, settings, step, 20)
        expected = 0.1 * 10 * (1 - step / 20) ** 0.9 * min(1.0, (step + 1) / 4)
        assert optimisers["visual"].param_groups[0]["lr"] == pytest.approx(expected)
        assert optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(settings.semantic.lr)


def test_mixed_precision_and_channels_last_train(tiny, tmp_path):
    import yaml

    tiny.train.precision, tiny.train.channels_last, tiny.train.clip = "bf16-mixed", True, 1.0
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.to_dict()))
    # In a process of its own: some virtual machines announce AMX tiles that oneDNN then cannot use.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "joem",
        "train",
        str(tmp_path / "tiny.yaml"),
        "--out",
        str(tmp_path / "run"),
    ]
    subprocess.run(command, check=True, timeout=240, env=environment)
    model = Model.load(tmp_path / "run")
    assert all(torch.isfinite(v).all() for v in weights(model).values() if v.is_floating_point())


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_training_lowers_the_loss(tiny, tmp_path, variant):
    tiny.method.variant = variant
    tiny.train.epochs = 30
    tiny.train.visual.lr = tiny.train.semantic.lr = 3e-3
    engine.train(tiny, tmp_path, progress=False)
    totals = [float(line["total"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())]
    assert sum(totals[-5:]) < 0.8 * sum(totals[:5])


def test_a_batch_too_small_for_its_parts_is_refused(tiny):
    tiny.train.accumulate = 16
    with pytest.raises(BadUsage, match="cannot be cut into 16 parts"):
        engine.train(tiny, progress=False)
    tiny.train.accumulate = 8
    with pytest.raises(BadUsage, match="at least two pictures per part"):
        engine.train(tiny, progress=False)


def test_save_and_load_give_the_same_prototypes_for_old_and_new_names(tiny, tmp_path):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    loaded = Model.load(model.save(tmp_path / "model"))
    names = (*model.vocabulary.names[:3], "brown dog")
    assert torch.equal(model.prototypes(names), loaded.prototypes(names))
    assert loaded.recipe == model.recipe


def test_a_model_whose_vector_file_is_gone_still_knows_its_vocabulary(tiny, tmp_path):
    words = sorted({word for name in data.scenes.vocabulary().names for word in name.split()})
    vectors = tmp_path / "words.vec"
    lines = [f"{word} " + " ".join(str(hash((i, j)) % 97 / 97) for j in range(4)) for i, word in enumerate(words)]
    vectors.write_text("\n".join(lines))
    tiny.semantics.vectors = f"word2vec:{vectors}"
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    model.save(tmp_path / "model")
    new = ("background", "striped red ring")
    expected = model.prototypes(new)
    moved = tmp_path / "elsewhere" / "words.vec"
    moved.parent.mkdir()
    vectors.rename(moved)
    loaded = Model.load(tmp_path / "model")
    assert torch.equal(loaded.prototypes(), model.prototypes())
    with pytest.raises(JoemError, match=r"striped red ring: no vectors for new names.*words.vec"):
        loaded.prototypes(new)
    found = Model.load(tmp_path / "model", search=[moved.parent])
    assert torch.equal(found.prototypes(new), expected)


def test_a_checkpoint_of_another_architecture_lists_what_is_missing(tiny, tmp_path):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    described["recipe"]["model"]["channels"] = 16
    (tmp_path / "model" / "model.json").write_text(json.dumps(described))
    with pytest.raises(JoemError, match=r"(?s)another architecture.*semantic.weight"):
        Model.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda recipe: setattr(recipe.data, "unseen", ["red ring"]), "data.unseen"),
        (lambda recipe: setattr(recipe.method, "r", 2), "method.r"),
        (lambda recipe: setattr(recipe.train.visual, "name", "sgd"), "train.visual"),
        (lambda recipe: setattr(recipe.train, "seed", 7), "train.seed"),
        (lambda recipe: setattr(recipe.train, "epochs", 9), "train.epochs"),
    ],
)
def test_resuming_another_run_is_refused_and_loses_nothing(tiny, tmp_path, change, named):
    engine.train(tiny, tmp_path / "run", progress=False)
    change(tiny)
    with pytest.raises(BadUsage, match=f"belongs to another run: {named}"):
        engine.train(tiny, tmp_path / "run", resume=True, progress=False)
    assert (tmp_path / "run" / "model" / "model.json").is_file()


@pytest.mark.parametrize("change", [{"epochs": 0}, {"accumulate": 0}, {"log_every": 0}, {"batch_size": -1}])
def test_settings_of_the_loop_that_cannot_be_are_refused(change):
    with pytest.raises(BadUsage, match=rf"train\.{next(iter(change))} must be at least 1"):
        TrainSettings(**change)


def test_a_precision_that_does_not_exist_is_bad_usage(tiny):
    tiny.train.precision = "7-bit"
    with pytest.raises(BadUsage, match="strategy and precision"):
        engine.train(tiny, progress=False)


def test_resuming_with_another_architecture_is_an_error(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        StopAt(patch, 1)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path, progress=False)
    tiny.model.channels = 16
    with pytest.raises(JoemError, match="another architecture"):
        engine.train(tiny, tmp_path, resume=True, progress=False)


def test_missing_and_damaged_models_are_named(tiny, tmp_path):
    with pytest.raises(JoemError, match="no model in"):
        Model.load(tmp_path)
    Model.create(tiny, engine.open_problem(tiny.data).vocabulary).save(tmp_path / "m")
    (tmp_path / "m" / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(JoemError, match=r"weights\.safetensors cannot be read"):
        Model.load(tmp_path / "m")
    (tmp_path / "m" / "model.json").write_text('{"format": 99, "joem": "9.9"}')
    with pytest.raises(JoemError, match=r"format 99.*joem 9.9"):
        Model.load(tmp_path / "m")


def test_a_model_that_lacks_something_is_named_with_what_it_lacks(tiny, tmp_path):
    folder = Model.create(tiny, engine.open_problem(tiny.data).vocabulary).save(tmp_path / "m")
    described, tensors = (
        json.loads((folder / "model.json").read_text()),
        files.read_tensors(folder / "weights.safetensors"),
    )
    del tensors["vocabulary_vectors"]
    files.write_tensors(folder / "weights.safetensors", tensors)
    with pytest.raises(JoemError, match=r"weights\.safetensors does not hold vocabulary_vectors"):
        Model.load(folder)
    del described["normalisation"]
    (folder / "model.json").write_text(json.dumps(described))
    with pytest.raises(JoemError, match=r"model\.json does not hold normalisation"):
        Model.load(folder)
    (folder / "model.json").write_text("[1, 2]")
    with pytest.raises(JoemError, match=r"model\.json does not hold format"):
        Model.load(folder)


def test_a_checkpoint_that_lacks_something_is_named_with_what_it_lacks(tiny, tmp_path):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(1, model, {}, {"random_state": torch.get_rng_state()[None]})
    tensors = files.read_tensors(path / "weights.safetensors")
    del tensors["vocabulary_vectors"]
    files.write_tensors(path / "weights.safetensors", tensors)
    with pytest.raises(JoemError, match=r"weights\.safetensors does not hold vocabulary_vectors"):
        checkpoints.restore(path, model, {})
    (path / "state.json").write_text("[]")
    with pytest.raises(JoemError, match=r"state\.json does not hold step, stage, groups"):
        checkpoints.stage(path)


def test_a_model_is_never_saved_over_other_files(tiny, tmp_path):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    folder = tmp_path / "precious"
    folder.mkdir()
    model.save(folder)  # an empty folder is as good as none
    model.save(folder)  # and so is another model
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}
    (folder / "thesis.txt").write_text("important")
    with pytest.raises(BadUsage, match=r"holds thesis\.txt, which is no part of a model"):
        model.save(folder)
    assert (folder / "thesis.txt").read_text() == "important"
    with pytest.raises(BadUsage, match="is a file, and a model is a folder"):
        model.save(folder / "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "important"


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "thing"

    def write(text, fail):
        with files.atomic_folder(target) as draft:
            (draft / "a").write_text(text)
            if fail:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write("first", fail=True)
    assert list(tmp_path.iterdir()) == []
    write("second", fail=False)
    with pytest.raises(RuntimeError):
        write("third", fail=True)
    assert (target / "a").read_text() == "second"
    write("fourth", fail=False)
    assert (target / "a").read_text() == "fourth"
    assert list(tmp_path.iterdir()) == [target]


def test_the_newest_checkpoint_is_found_and_old_ones_go(tiny, tmp_path):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest() is None
    for step in (5, 100, 20_000):
        checkpoints.save(step, model, {}, {"random_state": torch.get_rng_state()[None]})
    assert checkpoints.newest() == tmp_path / "step-00020000"
    assert len(list(tmp_path.iterdir())) == 2


def test_evaluation_equals_a_loop_over_pictures(tiny):
    from joem.segmenter import Segmenter

    problem = engine.open_problem(tiny.data)
    model = Model.create(tiny, problem.vocabulary)
    decisions = [DecisionSettings("nn"), DecisionSettings("cs", gamma=0.1), DecisionSettings("ac", sigma=0.7)]
    results = engine.evaluate(model, problem, decisions, progress=False)
    segmenter = Segmenter(model)
    for wish, result in zip(decisions, results, strict=True):
        counts = torch.zeros_like(result.confusion)
        for index in range(len(problem.val)):
            sample = problem.val[index]
            found = segmenter.encode(sample.image).segment(rule=wish.rule, sigma=wish.sigma, gamma=wish.gamma)
            for truth, label in zip(sample.labels.flatten().tolist(), found.labels.flatten().tolist(), strict=True):
                counts[truth, label] += 1
        assert torch.equal(result.confusion, counts)
        expected = scores.scores(counts, problem.vocabulary.unseen_indices)
        assert result.scores.to_dict() == expected.to_dict()
        assert result.to_dict()["images"] == 3


def test_worst_confusions_are_sorted_by_share(tiny):
    problem = engine.open_problem(tiny.data)
    counts = torch.tensor([[8, 2, 0], [0, 1, 9], [0, 0, 5]])
    vocabulary = Vocabulary(("a", "b", "c"))
    found = scores.scores(counts, [])
    result = engine.Evaluation(DecisionSettings(), found, counts, vocabulary, len(problem.val), 1.0)
    assert result.worst_confusions() == [("b", "c", 90.0), ("a", "b", 20.0)]


def test_protocol_of_other_data_is_refused(tiny, tmp_path):
    data.write_folder(data.Scenes(2, 64), tmp_path)
    settings = replace(
        tiny.data, kind="folder", root=str(tmp_path), train_split=None, val_split=None, protocol="voc-zs3-2"
    )
    with pytest.raises(BadUsage, match="'voc-zs3-2' is about 'voc' with 21 classes"):
        engine.open_problem(settings)


def test_training_on_a_users_folder(tiny, tmp_path):
    data.write_folder(data.Scenes(16, 64, classes=["red circle", "blue star", "red star"]), tmp_path)
    tiny.data = replace(tiny.data, kind="folder", root=str(tmp_path), train_split=None, val_split=None)
    tiny.data.unseen, tiny.data.rule = ["red star"], "ignore"
    model = engine.train(tiny, progress=False)
    assert model.vocabulary.names == ("red circle", "blue star", "red star")  # no background where it is ignored
    assert model.vocabulary.unseen == ("red star",)


def test_memory_is_left_alone_where_the_user_chose(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert engine.reuse_freed_memory() is False


def test_checkpoints_hold_no_pickles(tiny, tmp_path):
    engine.train(tiny, tmp_path, progress=False)
    kinds = {path.suffix for path in Path(tmp_path).rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json", ".csv", ".yaml"}


def test_settings_that_cannot_train_are_told(tiny):
    tiny.train.visual.lr = -1.0
    with pytest.raises(BadUsage, match=r"--train.visual, --train.semantic cannot be made: Invalid learning rate: -1.0"):
        engine.train(tiny, progress=False)
    tiny.train.precision = "16-mixed"
    with pytest.raises(BadUsage, match="16-mixed needs a GPU: on a CPU use 32-true or bf16-mixed"):
        engine.train(tiny, progress=False)
