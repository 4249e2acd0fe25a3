"""Several processes, several optimisers, one gradient scale: a run that stops does so everywhere and can go on."""

import csv
import os
import pickle
import re
import signal
import subprocess
import sys
from functools import cache

import pytest
import torch
import yaml
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision

from conftest import make_run, stop_after, weights
from joem import engine, parallel
from joem.engine import Interrupted, Model, fabric
from joem.errors import JoemError, LeakageError, UnknownWord
from joem.io import read_tensors

TWO = {"devices": 2, "strategy": "ddp"}
SGD = {"visual": {"name": "sgd"}, "semantic": {"name": "sgd"}}

# ------------------------------------------------------------------------------------------ two processes

TROUBLE = """
import os, signal, sys
from joem import cli
from joem.engine.training import Run

trouble, step = os.environ["TROUBLE"], 2
train_step = Run.train_step
second = os.environ.get("LOCAL_RANK") == "1"

def step_with_trouble(run, images, labels):
    if second and run.step == step and trouble == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if second and run.step == step and trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if second and run.step == step and trouble == "nan":
        images = images * float("nan")
    return train_step(run, images, labels)

Run.train_step = step_with_trouble
sys.exit(cli.main(sys.argv[1:]))
"""


TWO_PROCESSES = """
import sys, torch
from joem import engine, recipe
from joem.engine.training import Run
r = recipe.load(sys.argv[1])
fabric = engine.launched(r.train)
run = Run(r, engine.open_problem(r.data), fabric, None)
run.module.eval()
images, labels = next(run.batches())
labels[0, 5:] = 255
if fabric.global_rank == 0:
    labels[1] = 255
run.train_step(images, labels)
if fabric.is_global_zero:
    torch.save({"weights": run.model.method.state_dict(), "world": fabric.world_size}, sys.argv[2])
"""


@pytest.mark.slow
def test_two_processes_give_the_gradient_of_one(tiny, tmp_path):
    """Two gloo processes on halves of a batch, unevenly labelled, against one process on all of it."""
    tiny = tiny.changed(model={"dropout": 0.0, "head": {"aspp_dropout": 0.0}}, train=SGD)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.changed(train=TWO).to_dict()))
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

    run = make_run(tiny)
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


@pytest.fixture(scope="module")
def train_two(shared_tiny, tmp_path_factory):
    """Trains in two processes, the second of which meets trouble: the folder of the run, and how it ended."""
    folder = tmp_path_factory.mktemp("two")
    recipe = shared_tiny.changed(model={"dropout": 0.3}, train=TWO)  # dropout: the random numbers matter
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    (folder / "trouble.py").write_text(TROUBLE)

    @cache
    def train(out, trouble, *words):
        ended = subprocess.run(
            [sys.executable, "trouble.py", "train", "tiny.yaml", "--out", out, *words],
            check=False,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TROUBLE": trouble},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        return folder / out, ended

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "told", "saved"),
    [
        ("interrupt", r"Interrupted at step 3 of 4. The checkpoint .*step-00000003 can be used", 3),
        ("kill", r"Process 0 of 2 cannot reach the others any more.*with --resume goes on", 2),
        ("nan", r"not a number at step 2 \(ce nan, bar nan.*last good checkpoint is .*step-00000002", 2),
    ],
)
def test_trouble_in_one_of_two_processes_stops_both(train_two, trouble, told, saved):
    """Only the second process meets it: the first has to hear of it, tell the user once and exit with 1."""
    run, ended = train_two(trouble, trouble)
    assert ended.returncode == 1, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("joem: ")]
    assert len(lines) == 1, ended.stderr
    assert re.search(told, lines[0]), lines
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    newest = max((run / "checkpoints").iterdir())
    assert newest.name == f"step-{saved:08d}"
    kept = Model.load(run).method.state_dict().values()
    assert all(value.isfinite().all() for value in kept if value.is_floating_point())


class Two:
    """Two processes, seen from the second."""

    world_size, global_rank, device = 2, 1, torch.device("cpu")

    def __init__(self, first_failed):
        self.first_failed = first_failed

    def all_gather(self, flag):
        return torch.stack([torch.tensor(int(self.first_failed)), flag])

    def broadcast(self, error, src):
        return LeakageError("of the first") if src == 0 else pickle.loads(pickle.dumps(error))


def test_an_error_of_any_process_is_raised_by_all():
    with parallel.together(Two(first_failed=False)):
        pass
    with pytest.raises(LeakageError, match="of the first"), parallel.together(Two(first_failed=True)):
        pass
    with pytest.raises(UnknownWord, match="what") as caught, parallel.together(Two(first_failed=False)):
        raise UnknownWord("what is a wug?", "wug", ["bug"])
    assert (caught.value.word, caught.value.near) == ("wug", ["bug"])


@pytest.mark.parametrize(
    ("gpu", "mps", "local", "found"),
    [(True, True, "2", "cuda:2"), (True, False, None, "cuda"), (False, True, None, "mps"), (False, False, "1", "cpu")],
)
def test_auto_is_the_device_of_this_process(monkeypatch, gpu, mps, local, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setenv("LOCAL_RANK", local) if local else monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert parallel.device("auto") == found
    assert parallel.device("cuda:1") == "cuda:1"


def test_alone_an_error_is_the_same_object():
    error = JoemError("mine")
    with pytest.raises(JoemError) as caught, parallel.together(Fabric(accelerator="cpu")):
        raise error
    assert caught.value is error


# ------------------------------------------------------------------------------------- one gradient scale


@pytest.fixture
def half(monkeypatch):
    """Training in 16-mixed on the CPU, which Fabric itself offers on GPUs only; the scale doubles every step."""

    def half_on_cpu(settings):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
        return Fabric(accelerator="cpu", plugins=[MixedPrecision("16-mixed", "cpu", scaler)])

    monkeypatch.setattr(fabric, "_fabric", half_on_cpu)  # `launched` is imported by name in several places


def changes(recipe, steps=2):
    """What some steps of training add to the weights, and the scale after them."""
    run = make_run(recipe)
    run.module.eval()
    before = {name: weight.clone() for name, weight in run.model.method.named_parameters()}
    batches = run.batches()
    for _ in range(steps):
        run.train_step(*next(batches))
        run.step += 1
    after = dict(run.model.method.named_parameters())
    return {name: (after[name] - before[name]).detach() for name in before}, run.scaler and run.scaler.get_scale()


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_every_optimiser_divides_by_the_same_scale(tiny, half, monkeypatch, clip):
    """Fabric's own step would divide the second optimiser's gradients by the scale of the step after."""
    tiny = tiny.changed(train={**SGD, "clip": clip})
    scaled, scale = changes(tiny)
    assert scale == 64.0 * 2**2
    monkeypatch.undo()
    exact, none = changes(tiny)
    assert none is None
    for name in ("classifier.weight", "semantic.weight", "semantic.bias"):
        assert exact[name].norm() > 0
        assert (scaled[name] - exact[name]).norm() < 0.05 * exact[name].norm(), name


def test_the_gradient_scale_and_the_random_numbers_go_on_after_a_stop(tiny, half, tmp_path, monkeypatch):
    tiny = tiny.changed(model={"dropout": 0.3})

    def run(folder, **options):
        model = engine.train(tiny, tmp_path / folder, **options)
        lines = csv.DictReader((tmp_path / folder / "metrics.csv").open())
        return model.method.state_dict(), [float(line["total"]) for line in lines]

    whole, losses = run("whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interrupted, match="step 2 of 4"):
            run("parts")
    state = (tmp_path / "parts/checkpoints/step-00000002/state.json").read_text()
    assert '"scale": 256.0' in state
    parts, again = run("parts", resume=True)
    assert again == losses
    assert all(torch.equal(parts[name], whole[name]) for name in whole)
    last = [(tmp_path / part / "checkpoints/step-00000004/state.json").read_text() for part in ("whole", "parts")]
    assert last[0] == last[1]


def test_a_checkpoint_of_another_precision_starts_with_a_new_scale(tiny, tmp_path, monkeypatch, request):
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interrupted, match="step 2 of 4"):
            engine.train(tiny, tmp_path)
    assert '"gradient_scale": null' in (tmp_path / "checkpoints/step-00000002/state.json").read_text()
    request.getfixturevalue("half")
    engine.train(tiny, tmp_path, resume=True)
    assert '"scale": 256.0' in (tmp_path / "checkpoints/step-00000004/state.json").read_text()  # two steps from 64


def test_random_numbers_of_the_gpu_are_kept_where_there_is_one(monkeypatch):
    gpu, kept = torch.device("cuda", 1), torch.arange(16, dtype=torch.uint8)
    restored = {}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: kept if device == gpu else None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: state}))
    states = fabric.random_states(gpu)
    assert states["cuda_random_state"] is kept
    torch.manual_seed(5)
    states["random_state"] = torch.get_rng_state()
    expected = torch.rand(3)
    fabric.set_random_states(states, gpu)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(restored.pop(gpu), kept)
    assert set(fabric.random_states(torch.device("cpu"))) == {"random_state"}
    fabric.set_random_states(states, torch.device("cpu"))
    assert restored == {}


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_process_goes_on_with_its_own_random_numbers(rank):
    states, expected = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        torch.rand(5)
        states.append(torch.get_rng_state())
        expected.append(torch.rand(3))
    fabric.set_random_states({"random_state": torch.stack(states)[rank]}, torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected[rank])


KILLED_AT_THE_START = """
import os, signal, sys
import torch.distributed
from joem import cli

if os.environ.get("LOCAL_RANK", "0") == "0":
    torch.distributed.init_process_group = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_nobody_waits_for_a_first_process_that_was_killed_at_the_start(tiny, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny.changed(train=TWO).to_dict()))
    (tmp_path / "killed.py").write_text(KILLED_AT_THE_START)
    command = [sys.executable, str(tmp_path / "killed.py"), "train", str(tmp_path / "tiny.yaml")]
    ended = subprocess.run(  # which waits for both: the second one writes to the same file
        [*command, "--out", str(tmp_path / "run")],
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL
    assert "joem: The first process was ended, so this one ends, too." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_a_process_starts_after_its_training_does_not_take_it_for_the_first(tiny):
    fabric.launched(tiny.train)
    assert parallel._FIRST not in os.environ


@pytest.mark.slow
def test_two_processes_that_are_stopped_and_resumed_end_with_the_same_weights(train_two):
    run, _ = train_two("kill", "kill")
    assert not (run / "model").exists()
    folders = [train_two("whole", "none")[0], train_two("kill", "none", "--resume")[0]]
    whole, parts = (read_tensors(folder / "model/weights.safetensors") for folder in folders)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
