"""Checkpoints from which a run goes on to the same weights as if it had never stopped."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from joem.errors import BadUsage
from joem.io import atomic_folder, damage_told, read_json, read_tensors, require, write_json, write_tensors
from joem.model import VECTORS, Model, load_weights
from joem.model_description import check_description
from joem.model_folder import DESCRIPTION, WEIGHTS

_OPTIMISERS, _STATE = "optimisers.safetensors", "state.json"
_ADVICE = "Remove that checkpoint to go on from the one before it, or start a new run with another --out."
_KEEP = 2
# The settings of the loop that make the run.
_SAME = ("epochs", "steps", "batch_size", "seed", "pixels", "start", "visual", "semantic", "generator")


@dataclass
class Checkpoints:
    """The checkpoints of one run, `folder/step-N`, each also a model that can be used."""

    folder: Path

    def newest(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        found = sorted(self.folder.glob("step-*"))
        return found[-1] if found else None

    def save(
        self,
        step: int,
        model: Model,
        optimisers: dict[str, Optimizer],
        random_states: dict[str, Tensor],
        scaler: GradScaler | None = None,
    ) -> Path:
        """Write a checkpoint whole or not at all, and drop all but the last two.

        `random_states` holds the states of the random numbers of every process, one row each.
        """
        path = self.folder / f"step-{step:08d}"
        if path.exists():
            return path
        tensors, groups = _flatten(optimisers)
        with atomic_folder(path) as draft:
            model.write(draft)
            write_tensors(draft / _OPTIMISERS, {**tensors, **random_states})
            scale = None if scaler is None else scaler.state_dict()
            write_json(
                draft / _STATE, {"step": step, "stage": model.method.stage, "groups": groups, "gradient_scale": scale}
            )
        for old in sorted(self.folder.glob("step-*"))[:-_KEEP]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def stage(self, path: Path) -> str:
        """The stage of training that a checkpoint was written in."""
        return str(self._state(path)["stage"])

    def restore(
        self, path: Path, model: Model, optimisers: dict[str, Optimizer], scaler: GradScaler | None = None
    ) -> tuple[int, dict[str, Tensor]]:
        """Put a checkpoint's weights and the states of the optimisers in place; returns its step and random states."""
        state, described = self._state(path), read_json(path / DESCRIPTION)
        weights = read_tensors(path / WEIGHTS)
        require(weights, (VECTORS,), path / WEIGHTS)
        weights.pop(VECTORS)
        load_weights(model.method, weights, path)
        check_description(described, path / DESCRIPTION)
        with damage_told(path / DESCRIPTION, _ADVICE):
            stored = _what_makes_a_run(described)
        _check_same_run(stored, _what_makes_a_run(model.description()), path)
        tensors = read_tensors(path / _OPTIMISERS)
        random_states = {key: tensors.pop(key) for key in [*tensors] if "/" not in key}  # optimisers' have a path
        with damage_told(path, _ADVICE):
            for name, optimiser in optimisers.items():
                optimiser.load_state_dict(_unflatten(name, tensors, state["groups"][name]))
                _check_states(optimiser)
            if scaler is not None and state.get("gradient_scale"):  # none is stored of a run in another precision
                scaler.load_state_dict(state["gradient_scale"])
            return int(state["step"]), random_states

    def _state(self, path: Path) -> dict[str, Any]:
        state: dict[str, Any] = read_json(path / _STATE)
        require(state, ("step", "stage", "groups"), path / _STATE)
        return state


def _check_states(optimiser: Optimizer) -> None:
    """Refuse what an optimiser keeps of its steps where it does not fit the weights; loading does not look."""
    for weight, entries in optimiser.state.items():
        for name, value in entries.items():
            if isinstance(value, Tensor) and value.shape not in {torch.Size([]), weight.shape}:
                raise BadUsage(f"{name} has the shape {tuple(value.shape)}, expected {tuple(weight.shape)}")


def _check_same_run(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    """Refuse to go on with other data, words, networks or optimisers: the result would be no run of either recipe."""
    differences = [
        f"{name} was {value!r}, now {new.get(name)!r}" for name, value in old.items() if value != new.get(name)
    ]
    if differences:
        raise BadUsage(
            f"The checkpoint {path} belongs to another run: {'; '.join(differences)}. Resume with the settings it was "
            "started with, or start a new run with another --out."
        )


def _what_makes_a_run(described: dict[str, Any]) -> dict[str, Any]:
    """The settings of a model's description that a resumed run must share, by name."""
    recipe = described["recipe"]
    sections = {section: recipe[section] for section in ("data", "semantics", "model", "method")}
    sections["vocabulary"] = described["vocabulary"]
    settings = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    settings |= {f"train.{name}": recipe["train"][name] for name in _SAME}
    return {name: value for name, value in settings.items() if name not in {"data.root", "data.workers"}}


def _flatten(optimisers: dict[str, Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Optimiser states as named tensors and JSON: nothing has to be unpickled to resume."""
    tensors: dict[str, Tensor] = {}
    groups: dict[str, Any] = {}
    for name, optimiser in optimisers.items():
        state = optimiser.state_dict()
        groups[name] = state["param_groups"]
        for index, entries in state["state"].items():
            for key, value in entries.items():
                if value is not None:
                    tensors[f"{name}/{index}/{key}"] = torch.as_tensor(value)
    return tensors, groups


def _unflatten(name: str, tensors: dict[str, Tensor], groups: list[dict[str, Any]]) -> dict[str, Any]:
    state: dict[int, dict[str, Tensor]] = {}
    for full_key, value in tensors.items():
        owner, index, key = full_key.split("/")
        if owner == name:
            state.setdefault(int(index), {})[key] = value
    return {"state": state, "param_groups": groups}
