"""Lightning Fabric as the settings ask for it: devices, machines, precision; and the random numbers of a process."""

import os
from dataclasses import replace
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
    return fabric


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
