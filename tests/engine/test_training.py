"""The training loop: what a run writes, repeats, refuses, and that its gradients are those of the whole batch."""

import csv
import shutil
import sys
from dataclasses import replace

import pytest
import torch

from conftest import assert_same_weights, make_run, weights
from joem import data, engine
from joem.engine import Model, fabric
from joem.engine.checkpoint import Checkpoints
from joem.engine.optimisers import set_rates
from joem.engine.training import Run
from joem.errors import BadUsage, JoemError, LeakageError
from joem.settings import OptimiserSettings, TrainSettings

OTHER = "name,note\nmine,keep\n"


def test_a_run_writes_what_it_promises(tiny, tmp_path):
    model = engine.train(tiny, tmp_path)
    lines = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [int(line["step"]) for line in lines] == [1, 2, 3, 4]
    for line in lines:
        parts = [float(line[name]) for name in ("ce", "bar", "sc")]
        assert float(line["total"]) == pytest.approx(sum(parts))
    assert (tmp_path / "recipe.yaml").is_file()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000004"]
    assert {p.name for p in (tmp_path / "model").iterdir()} == {"weights.safetensors", "model.json"}
    assert_same_weights(Model.load(tmp_path), model)


def test_same_seed_same_weights_other_seed_other_weights(tiny):
    first, second = engine.train(tiny), engine.train(tiny)
    assert_same_weights(first, second)
    third = engine.train(tiny.changed(train={"seed": 1}))
    assert not torch.equal(weights(first)["semantic.weight"], weights(third)["semantic.weight"])


def test_a_second_run_in_the_same_folder_is_refused(tiny, tmp_path):
    engine.train(tiny, tmp_path)
    with pytest.raises(BadUsage, match="already holds a run: add --resume"):
        engine.train(tiny, tmp_path)
    with pytest.raises(BadUsage, match="no checkpoint to resume"):
        engine.train(tiny, tmp_path / "other", resume=True)


@pytest.mark.parametrize("held", ["model", "metrics.csv"])
def test_results_without_checkpoints_are_never_written_over(tiny, tmp_path, held):
    if held == "model":
        (tmp_path / held).mkdir()
    else:
        (tmp_path / held).write_text(OTHER)
    with pytest.raises(BadUsage, match=f"already holds {held}, but no checkpoint to go on from: choose another --out"):
        engine.train(tiny, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [held]
    assert held == "model" or (tmp_path / held).read_text() == OTHER


def test_a_run_that_came_to_no_checkpoint_may_begin_again(tiny, tmp_path):
    tiny = tiny.changed(train={"epochs": 1})
    (tmp_path / "recipe.yaml").write_text("another: recipe\n")
    (tmp_path / "metrics.csv").write_text("step,of,another,recipe\n")
    (tmp_path / "metrics-mine.csv").write_text(OTHER)
    engine.train(tiny, tmp_path)
    assert [int(line["step"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())] == [1, 2]
    assert (tmp_path / "metrics-mine.csv").read_text() == OTHER
    for folder in ("checkpoints", "model"):  # as if it had been killed in its first steps
        shutil.rmtree(tmp_path / folder)
    engine.train(tiny, tmp_path)
    assert [int(line["step"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())] == [1, 2]


def test_a_full_disk_is_told_to_all_processes(tiny, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(JoemError, match=rf"{tmp_path} cannot be written to \(.*No space left on device\): make room"):
        engine.train(tiny, tmp_path)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tiny, tmp_path, monkeypatch):
    original = Run.train_step

    def train_step(run, images, labels):
        return original(run, images * float("nan") if run.step == 2 else images, labels)

    monkeypatch.setattr(Run, "train_step", train_step)
    with pytest.raises(JoemError, match=r"not a number at step 2 .*last good checkpoint is .*step-00000002"):
        engine.train(tiny, tmp_path)
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
        engine.train(tiny, problem=replace(problem, train=Liar(problem.train)))
    # and the loop's own guard, even if the dataset's were gone
    monkeypatch.setattr(sys.modules["joem.data.guard"], "guard", lambda labels, vocabulary: None)
    with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
        engine.train(tiny, problem=replace(problem, train=Liar(problem.train)))


def test_accumulated_parts_give_the_gradient_of_the_whole_batch(tiny):
    """Labelled pixels differ between the parts, so a plain mean over the parts would be wrong."""
    tiny = tiny.changed(
        model={"freeze_backbone": True, "dropout": 0.0, "head": {"aspp_dropout": 0.0}},
        train={"visual": {"name": "sgd"}, "semantic": {"name": "sgd"}},
    )

    def gradients(accumulate):
        run = make_run(tiny.changed(train={"accumulate": accumulate}))
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


def test_rates_follow_warmup_and_poly():
    settings = TrainSettings(
        visual=OptimiserSettings(lr=0.1, warmup=4, power=0.9), semantic=OptimiserSettings(lr=2e-4, power=0.0)
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimisers = {
        "visual": torch.optim.SGD([{"params": [parameter], "scale": 10.0}], lr=1.0),
        "semantic": torch.optim.Adam([{"params": [parameter], "scale": 1.0}], lr=1.0),
    }
    for step in range(20):
        set_rates(optimisers, settings, step, 20, steps_per_epoch=5)
        expected = 0.1 * 10 * (1 - step / 20) ** 0.9 * min(1.0, (step + 1) / 4)
        assert optimisers["visual"].param_groups[0]["lr"] == pytest.approx(expected)
        assert optimisers["semantic"].param_groups[0]["lr"] == pytest.approx(settings.semantic.lr)


@pytest.mark.parametrize("backbone", ["tu-test_efficientnet", "tu-test_vit"])
def test_mixed_precision_and_channels_last_train(tiny, backbone):
    if not fabric.bfloat16_works():
        pytest.skip("this CPU cannot compute in bfloat16")
    model = {"backbone": backbone, "stride": 16, "head": {"name": "hypercolumn", "channels": 8, "hidden": 16}}
    settings = {"precision": "bf16-mixed", "channels_last": True, "clip": 1.0}
    trained = engine.train(tiny.changed(model=model, train=settings))
    assert all(torch.isfinite(v).all() for v in weights(trained).values() if v.is_floating_point())


def test_where_bfloat16_ends_the_process_it_is_refused(tiny, monkeypatch):
    """As on virtual machines that announce AMX tiles which cannot be used."""
    monkeypatch.setattr(fabric, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setattr(fabric, "bfloat16_works", fabric.bfloat16_works.__wrapped__)
    with pytest.raises(BadUsage, match=r"bf16-mixed would end the program on this CPU: .* Use 32-true"):
        engine.train(tiny.changed(train={"precision": "bf16-mixed"}))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_training_lowers_the_loss(tiny, tmp_path, variant):
    recipe = tiny.changed(
        method={"variant": variant}, train={"epochs": 30, "visual": {"lr": 3e-3}, "semantic": {"lr": 3e-3}}
    )
    engine.train(recipe, tmp_path)
    totals = [float(line["total"]) for line in csv.DictReader((tmp_path / "metrics.csv").open())]
    assert sum(totals[-5:]) < 0.8 * sum(totals[:5])


def test_a_batch_too_small_for_its_parts_is_refused(tiny):
    with pytest.raises(BadUsage, match="cannot be cut into 16 parts"):
        engine.train(tiny.changed(train={"accumulate": 16}))
    with pytest.raises(BadUsage, match=r"deeplabv3plus .* at least 2 pictures per part"):
        engine.train(tiny.changed(train={"accumulate": 8}))


@pytest.mark.parametrize("change", [{"epochs": 0}, {"accumulate": 0}, {"log_every": 0}, {"batch_size": -1}])
def test_settings_of_the_loop_that_cannot_be_are_refused(change):
    with pytest.raises(BadUsage, match=rf"{next(iter(change))}: Input should be greater than or equal to 1, got"):
        TrainSettings(**change)


def test_a_precision_that_does_not_exist_is_bad_usage(tiny):
    with pytest.raises(BadUsage, match="strategy and precision"):
        engine.train(tiny.changed(train={"precision": "7-bit"}))


def test_memory_is_left_alone_where_the_user_chose(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert engine.reuse_freed_memory() is False


def test_half_precision_needs_a_gpu(tiny):
    with pytest.raises(BadUsage, match="16-mixed needs a GPU: on a CPU use 32-true or bf16-mixed"):
        engine.train(tiny.changed(train={"precision": "16-mixed"}))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_picture_is_told_without_a_traceback(tiny, monkeypatch, workers):
    def read(pictures, key):
        raise JoemError("Cannot read picture 7.")

    monkeypatch.setattr(data.TrainingSet, "__getitem__", read)
    with pytest.raises(JoemError) as caught:
        engine.train(tiny.changed(data={"workers": workers}))
    assert str(caught.value) == "Cannot read picture 7."
