"""Batches for training: the same from any step on, whatever happened before; errors arrive as errors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from joem import data
from joem.engine.stored_maps import PixelSet
from joem.errors import JoemError

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
