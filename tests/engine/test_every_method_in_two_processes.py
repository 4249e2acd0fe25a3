"""Every method in two processes: its stages run to the end, and its gradient is that of one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import fresh_model, make_run, make_small
from joem import methods
from joem.engine.fabric import share_batch_statistics

NAMES = sorted(methods.METHODS)
NO_CHANCE = [name for name in NAMES if not methods.get(name).uses_unseen_words]  # makes nothing up from noise
BATCH = 4

# One start for all methods: it takes longer than their trainings.
EVERY_METHOD = """
import sys, traceback
import torch
from conftest import make_run, make_small
from joem import engine, parallel
from joem.progress import hidden
from test_every_method_in_two_processes import NAMES, TWO, gradients_of_a_step

torch.set_num_threads(1)
found = {}
with hidden():
    for name in NAMES:
        recipe = make_small(name).changed(train=TWO)
        try:
            state = engine.train(recipe).method.state_dict()
            same = all(torch.equal(*pair) for pair in zip(*map(dict.values, parallel.gathered(state)), strict=True))
            run = make_run(recipe)
            gradients = [gradients_of_a_step(run, stage) for stage in range(len(run.stages))]
            found[name] = {"same": same, "gradients": gradients}
        except Exception:
            found[name] = {"error": traceback.format_exc()}
if parallel.is_first():
    torch.save(found, sys.argv[1])
"""
TWO = {"devices": 2, "strategy": "ddp"}


def gradients_of_a_step(run, stage):
    """What one step of a stage hands to the optimisers: name -> gradient, None for a parameter that rests."""
    kept = {}

    def keep(scale):
        for name, weight in run.model.method.named_parameters():
            kept[name] = None if weight.grad is None else weight.grad * scale
            weight.grad = None

    run.begin(stage)
    run.module.eval()  # batch statistics are those of a process
    run.step = run.ends[stage] - 2
    run._apply = keep
    images, labels = uneven(next(run.batches()), run.fabric.global_rank)
    torch.manual_seed(100 + run.fabric.global_rank)
    run.train_step(images, labels)
    return kept


def uneven(batch, rank):
    """The share of a batch of one of two processes, with fewer labels in the first."""
    images, labels = batch
    if rank == 0:
        labels[0, 5:] = 255
    return images, labels


@pytest.fixture(scope="module")
def in_two(tmp_path_factory):
    folder, tests = tmp_path_factory.mktemp("two"), Path(__file__).parents[1]
    (folder / "two.py").write_text(EVERY_METHOD)
    path = os.pathsep.join([str(tests), str(tests / "engine"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    subprocess.run(
        [sys.executable, str(folder / "two.py"), str(folder / "found.pt")], check=True, timeout=400, env=environment
    )
    return torch.load(folder / "found.pt", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_stage_runs_to_the_end_and_leaves_the_same_weights_everywhere(name, in_two):
    assert "error" not in in_two[name], in_two[name]["error"]
    assert in_two[name]["same"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_give_the_gradient_of_their_parts(name, in_two):
    """Against one process that goes through both parts, each with the random numbers of its process."""
    run = make_run(make_small(name))
    for stage, found in enumerate(in_two[name]["gradients"]):
        method = run.model.method
        run.begin(stage)
        run.module.eval()
        run.step = run.ends[stage] - 2
        images, labels = next(run.batches())
        sum_of_weights = 0.0
        for rank in range(2):
            half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
            part, truth = uneven((images[half], labels[half]), rank)
            if name == "cagnet":
                method.batches.zero_()  # both parts are of the same batch
            torch.manual_seed(100 + rank)
            terms, weight = method(part, truth)
            (sum(terms.values()) * weight).backward()
            sum_of_weights += float(weight)
        assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in found.values())
        for key, weight in method.named_parameters():
            if weight.grad is None:
                assert found[key] is None, key  # zeros would let Adam go on with its momentum
            else:
                torch.testing.assert_close(found[key], weight.grad / sum_of_weights, atol=1e-6, rtol=1e-4, msg=key)
            weight.grad = None


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_CHANCE)
def test_two_processes_give_the_gradient_of_the_whole_batch(name, in_two):
    """Of methods that draw no random numbers; made-up features are drawn per process, and matched within its part."""
    run = make_run(make_small(name))
    for stage, found in enumerate(in_two[name]["gradients"]):
        expected = gradients_of_a_step(run, stage)
        for key, gradient in expected.items():
            if gradient is not None:
                torch.testing.assert_close(found[key], gradient, atol=1e-6, rtol=1e-4, msg=key)


def test_sharing_batch_statistics_keeps_activations_and_weights():
    """What runs on several GPUs, as far as one process can tell: the same function of the same weights."""
    model = fresh_model(make_small("joem"))
    method, picture = model.method.eval(), torch.rand(1, 3, 64, 64)
    before, weights = method.features(picture), [id(weight) for weight in method.parameters()]
    share_batch_statistics(method)
    norms = [each for each in method.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)]
    assert norms
    assert all(isinstance(each, torch.nn.SyncBatchNorm) for each in norms)
    torch.testing.assert_close(method.features(picture), before)
    assert [id(weight) for weight in method.parameters()] == weights
