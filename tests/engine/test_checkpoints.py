"""Stopping and going on: the same weights as if nothing had happened, and nothing lost on the way."""

import csv
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from conftest import assert_same_weights, fresh_model, stop_after
from joem import engine
from joem.engine import Interrupted, Model
from joem.engine.checkpoint import Checkpoints
from joem.engine.training import Run
from joem.errors import BadUsage, JoemError
from joem.io import read_tensors, write_tensors
from joem.locking import FileLock


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_interrupted_and_resumed_equals_uninterrupted(tiny, tmp_path, monkeypatch, stop, optimiser):
    # With dropout, so that the random numbers matter too.
    tiny = tiny.changed(model={"dropout": 0.3}, train={"visual": {"name": optimiser}})
    whole = engine.train(tiny, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        with pytest.raises(Interrupted, match=f"step {stop} of 4.*--resume"):
            engine.train(tiny, tmp_path / "parts")
    usable = Model.load(tmp_path / "parts")
    assert usable.prototypes().shape == (len(usable.vocabulary), 8)
    torch.rand(17)  # whatever happened to the random numbers in between
    resumed = engine.train(tiny, tmp_path / "parts", resume=True)
    assert_same_weights(resumed, whole)

    def metrics(folder):
        return [
            {k: v for k, v in line.items() if k != "seconds"}
            for line in csv.DictReader((tmp_path / folder / "metrics.csv").open())
        ]

    assert metrics("parts") == metrics("whole")


def test_ctrl_c_leaves_a_usable_checkpoint(tiny, tmp_path):
    tiny = tiny.changed(train={"epochs": 10_000})
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
        engine.train(tiny, tmp_path)
    watcher.join()
    assert started.is_set()
    Model.load(tmp_path)
    assert signal.getsignal(signal.SIGINT) is before


def test_resuming_touches_no_file_that_is_not_of_the_run(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path)
    (tmp_path / "metrics-mine.csv").write_text("mine,keep\n")
    engine.train(tiny, tmp_path, resume=True)
    assert (tmp_path / "metrics-mine.csv").read_text() == "mine,keep\n"


@pytest.mark.parametrize("broken", [0, 3])
def test_a_broken_picture_loses_no_step(tiny, tmp_path, monkeypatch, broken):
    tiny = tiny.changed(train={"save_every": 0})
    original = Run.batches

    def batches(run):
        for batch in original(run):
            if run.step == broken:
                raise JoemError("Cannot read picture 7.")
            yield batch

    whole = engine.train(tiny)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "batches", batches)
        with pytest.raises(JoemError, match="picture 7"):
            engine.train(tiny, tmp_path)
    # Before the first step there is nothing to keep: the run may simply begin again.
    assert [path.name for path in tmp_path.glob("checkpoints/*")] == (["step-00000003"] if broken else [])
    resumed = engine.train(tiny, tmp_path, resume=broken > 0)
    assert_same_weights(resumed, whole)


def test_tensorboard_has_every_step_once_after_a_stop(tiny, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny = tiny.changed(train={"tensorboard": True, "save_every": 2})
    original = Run.train_step

    def train_step(run, images, labels):
        if run.step == 3:
            raise RuntimeError("power cut")
        return original(run, images, labels)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train_step", train_step)
        with pytest.raises(RuntimeError, match="power cut"):
            engine.train(tiny, tmp_path)
    engine.train(tiny, tmp_path, resume=True)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("loss/ce")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": {"unseen": ["red ring"]}}, "data.unseen"),
        ({"method": {"r": 2}}, "method.r"),
        ({"train": {"visual": {"name": "sgd"}}}, "train.visual"),
        ({"train": {"seed": 7}}, "train.seed"),
        ({"train": {"epochs": 9}}, "train.epochs"),
    ],
)
def test_resuming_another_run_is_refused_and_loses_nothing(tiny, tmp_path, change, named):
    engine.train(tiny, tmp_path / "run")
    with pytest.raises(BadUsage, match=f"belongs to another run: {named}"):
        engine.train(tiny.changed(**change), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model" / "model.json").is_file()


def test_resuming_with_another_architecture_is_an_error(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path)
    with pytest.raises(JoemError, match="another architecture"):
        engine.train(tiny.changed(model={"head": {"channels": 16}}), tmp_path, resume=True)


def test_a_checkpoint_that_lacks_something_is_named_with_what_it_lacks(tiny, tmp_path):
    model = fresh_model(tiny)
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(1, model, {}, {"random_state": torch.get_rng_state()[None]})
    tensors = read_tensors(path / "weights.safetensors")
    del tensors["vocabulary_vectors"]
    write_tensors(path / "weights.safetensors", tensors)
    with pytest.raises(JoemError, match=r"weights\.safetensors does not hold vocabulary_vectors"):
        checkpoints.restore(path, model, {})
    (path / "state.json").write_text("[]")
    with pytest.raises(JoemError, match=r"state\.json does not hold step, stage, groups"):
        checkpoints.stage(path)


def test_the_newest_checkpoint_is_found_and_old_ones_go(tiny, tmp_path):
    model = fresh_model(tiny)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest() is None
    for step in (5, 100, 20_000):
        checkpoints.save(step, model, {}, {"random_state": torch.get_rng_state()[None]})
    assert checkpoints.newest() == tmp_path / "step-00020000"
    assert len(list(tmp_path.iterdir())) == 2


def test_checkpoints_hold_no_pickles(tiny, tmp_path):
    engine.train(tiny, tmp_path)
    kinds = {path.suffix for path in Path(tmp_path).rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json", ".csv", ".yaml"}


def test_an_interruption_in_the_last_step_does_not_undo_the_run(tiny, tmp_path, monkeypatch):
    stop_after(monkeypatch, 4)
    engine.train(tiny, tmp_path)
    assert (tmp_path / "model/model.json").is_file()


def test_a_folder_takes_one_training_at_a_time(tiny, tmp_path):
    engine.train(tiny, tmp_path)
    other = FileLock(tmp_path / ".lock")
    assert other.take()
    for folder, options in ((tmp_path, {"resume": True}), (tmp_path, {})):
        with pytest.raises(BadUsage, match=f"is being trained into by process {os.getpid()} on .*: wait until it"):
            engine.train(tiny, folder, **options)
    other.release()
    engine.train(tiny, tmp_path, resume=True)
    assert not (tmp_path / ".lock").exists()


def test_a_run_that_comes_to_nothing_leaves_no_folder(tiny, tmp_path):
    with pytest.raises(BadUsage, match="no checkpoint to resume"):
        engine.train(tiny, tmp_path / "new", resume=True)
    assert not (tmp_path / "new").exists()


def test_what_a_killed_run_left_half_written_goes_when_it_is_resumed(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path)
    if os.fork() == 0:  # killed while it saves
        monkeypatch.setattr("joem.engine.checkpoint.write_json", lambda *_: os._exit(9))
        Checkpoints(tmp_path / "checkpoints").save(3, fresh_model(tiny), {}, {})
    os.wait()
    assert list((tmp_path / "checkpoints").glob(".*"))
    engine.train(tiny, tmp_path, resume=True)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize("cut", ["1", "2,0.5", "\xff\xfe"])
def test_a_line_of_metrics_that_was_cut_does_not_stay(tiny, tmp_path, monkeypatch, cut):
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interrupted):
            engine.train(tiny, tmp_path)
    with (tmp_path / "metrics.csv").open("ab") as file:
        file.write(cut.encode("latin-1"))
    engine.train(tiny, tmp_path, resume=True)
    lines = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [int(line["step"]) for line in lines] == [1, 2, 3, 4]
    assert all(line["seconds"] for line in lines)
