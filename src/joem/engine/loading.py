"""Batches for training: the same from any step on, whatever happened before; errors arrive as errors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from joem import data
from joem.engine.stored_maps import PixelSet
from joem.errors import BadUsage, JoemError
from joem.models import HEADS
from joem.recipe import Recipe

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _ErrorsAsSamples:
    """Pictures whose errors are handed over like samples: torch would put a traceback around those of its workers."""

    pictures: data.TrainingSet | PixelSet

    def __getitem__(self, key: tuple[int, int]) -> Batch | JoemError:
        try:
            return self.pictures[key]
        except JoemError as error:
            return error


def _collate(samples: list[Batch | JoemError]) -> Batch | JoemError:
    errors = [sample for sample in samples if isinstance(sample, JoemError)]
    return errors[0] if errors else data.collate([sample for sample in samples if not isinstance(sample, JoemError)])


def check_labelling(recipe: Recipe, stages: Sequence[str]) -> None:
    """Refuse pictures without labels where no stage of the method labels them itself."""
    if recipe.data.transductive and "self_train" not in stages:
        raise BadUsage(
            f"data.transductive brings pictures without labels, and {recipe.method.name} does not label them itself: "
            "set --method.self_training 0.25 of zs3net or spnet, or leave it out."
        )


def check_batch(recipe: Recipe, pictures: int, world: int) -> None:
    """Refuse a batch that cannot be cut into the parts that a recipe asks for."""
    settings = recipe.train
    parts = world * settings.accumulate
    smallest = min(settings.batch_size, pictures) // parts
    if smallest < 1:
        raise BadUsage(f"A batch of {settings.batch_size} cannot be cut into {parts} parts: make it larger.")
    head = recipe.model.head
    if head is not None and smallest < HEADS[head.name].least_batch:
        raise BadUsage(
            f"{head.name} normalises over the batch and needs at least {HEADS[head.name].least_batch} pictures per "
            f"part, got a batch of {settings.batch_size} in {parts} parts from {pictures} pictures."
        )


def stage_steps(recipe: Recipe, stages: Sequence[str], pictures: int) -> list[int]:
    """The optimiser steps of every stage of a method, on so many training pictures."""
    settings = recipe.train
    per_epoch = len(data.EpochSampler(pictures, settings.batch_size, settings.seed))
    least = max(settings.epochs * per_epoch, settings.steps)
    return [round(least * recipe.method.stage_lengths.get(stage, 1.0)) for stage in stages]


def epoch_batches(
    pictures: data.TrainingSet | PixelSet, sampler: data.EpochSampler, workers: int, pin_memory: bool
) -> Iterator[Batch]:
    """The batches of one epoch that the sampler names."""
    loader: DataLoader[Any] = DataLoader(
        _ErrorsAsSamples(pictures),  # type: ignore[arg-type]
        batch_sampler=sampler,
        collate_fn=_collate,
        num_workers=workers,
        generator=torch.Generator(),  # or every loader would draw from dropout's random numbers
        pin_memory=pin_memory,
    )
    for batch in loader:
        if isinstance(batch, JoemError):
            raise batch
        yield batch
