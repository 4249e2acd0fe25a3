"""Optimisers of a method's parameters and their learning rates."""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from joem.errors import BadUsage
from joem.methods import Method
from joem.settings import OptimiserSettings, TrainSettings


def make_optimisers(
    method: Method, settings: TrainSettings, kept: Collection[nn.Parameter] = ()
) -> dict[str, Optimizer]:
    """The optimisers of the parameters that learn in a method's current stage, by name; `kept` ones do not learn."""
    groups = method.parameter_groups(settings.visual.head_multiplier)
    if kept:
        groups = {name: _without(params, {id(each) for each in kept}) for name, params in groups.items()}
    try:
        return {name: _optimiser(getattr(settings, name), params) for name, params in groups.items() if params}
    except ValueError as error:  # a negative rate, for instance
        raise BadUsage(f"The optimisers --train.{', --train.'.join(groups)} cannot be made: {error}.") from None


def _without(groups: list[dict[str, Any]], kept: set[int]) -> list[dict[str, Any]]:
    """Groups without some parameters, and without groups that have none left."""
    rest = [{**group, "params": [each for each in group["params"] if id(each) not in kept]} for group in groups]
    return [group for group in rest if group["params"]]


def _optimiser(settings: OptimiserSettings, groups: list[dict[str, Any]]) -> Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr, weight_decay=settings.weight_decay)


def set_rates(
    optimisers: dict[str, Optimizer],
    settings: TrainSettings,
    step: int,
    steps: int,
    steps_per_epoch: int,
    rate: float = 1.0,
) -> None:
    """Set every learning rate for a step: linear warm-up, then poly, rate * lr * (1 - step / steps) ** power.

    Rates that fall with every epoch are those of its first step: in epoch e of E, lr * (1 - (e - 1) / E) ** power.
    """
    for name, optimiser in optimisers.items():
        own: OptimiserSettings = getattr(settings, name)
        at = step - step % steps_per_epoch if own.every == "epoch" else step
        factor = (1.0 - at / steps) ** own.power
        if step < own.warmup:
            factor *= (step + 1) / own.warmup
        for group in optimiser.param_groups:
            group["lr"] = rate * own.lr * group["scale"] * factor
