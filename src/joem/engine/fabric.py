"""Lightning Fabric as the settings ask for it: devices, machines, precision; and the random numbers of a process."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from joem import extras, parallel
from joem.errors import BadUsage
from joem.settings import TrainSettings


def layout(settings: TrainSettings) -> tuple[int, int]:
    """Devices per node and nodes: those of the settings or, where these name one, those that torchrun started."""
    found = settings.devices, settings.nodes
    if found != (1, 1) or "LOCAL_WORLD_SIZE" not in os.environ:
        return found
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return local, int(os.environ["WORLD_SIZE"]) // local


def launched(settings: TrainSettings, rests: bool = False) -> Any:
    """A Fabric whose processes have found each other; `rests` is that of the method to train, see `Method`."""
    devices, nodes = layout(settings)
    if rests and devices * nodes > 1 and settings.strategy in {"auto", "ddp"}:
        # Processes would wait for gradients that a part which rests in this batch does not have.
        settings = replace(settings, strategy="ddp_find_unused_parameters_true")
    fabric = _fabric(settings)
    with parallel.ending_with_first():
        fabric.launch()
    return fabric


def _fabric(settings: TrainSettings) -> Any:
    extras.require("train", "Training", "lightning_fabric")
    from lightning_fabric import Fabric

    devices, nodes = layout(settings)
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=settings.strategy,
            precision=settings.precision,
        )
    except (ValueError, RuntimeError) as error:
        raise BadUsage(
            f"This machine cannot train as --train.accelerator, strategy and precision say: {error}"
        ) from None
    if settings.precision == "16-mixed" and fabric.device.type == "cpu":
        raise BadUsage("--train.precision 16-mixed needs a GPU: on a CPU use 32-true or bf16-mixed.")
    if settings.precision.startswith("bf16") and fabric.device.type == "cpu" and not bfloat16_works():
        raise BadUsage(
            f"--train.precision {settings.precision} would end the program on this CPU: a trial of convolution and "
            "attention in bfloat16 died in a process of its own, as where a virtual machine announces AMX and does not "
            "let it be used. Use 32-true, or try ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment."
        )
    return fabric


_TRIAL = """
import torch, torch.nn.functional as F
with torch.autocast("cpu", torch.bfloat16):
    maps = F.conv2d(torch.randn(1, 3, 224, 224), torch.randn(192, 3, 16, 16, requires_grad=True), stride=16)
    heads = F.linear(maps.flatten(2).transpose(1, 2), torch.randn(192, 192)).unflatten(2, (3, 64)).transpose(1, 2)
    F.scaled_dot_product_attention(heads, heads, heads).sum().backward()
"""


@cache
def bfloat16_works() -> bool:
    """Whether a CPU computes in bfloat16 what networks need, tried in another process.

    What a CPU says of itself is no answer: where it says too much, an illegal instruction ends the process.
    """
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False).returncode == 0


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random numbers that a process draws from, by the name that checkpoints give them."""
    states = {"random_state": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda_random_state"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Go on with the random numbers that `random_states` was asked about; those of absent devices do not matter."""
    # Copied: of a row of a larger tensor, torch would read the first row.
    own = {name: state.cpu().clone() for name, state in states.items()}
    if "random_state" in own:
        torch.set_rng_state(own["random_state"])
    if "cuda_random_state" in own and device.type == "cuda":
        torch.cuda.set_rng_state(own["cuda_random_state"], device)


def share_batch_statistics(method: nn.Module) -> None:
    """Let the batch normalisation of a method look at the pictures of all processes (GPUs only)."""
    from timm.layers import convert_sync_batchnorm  # torch's own would lose the activations in timm's layers

    convert_sync_batchnorm(method)
