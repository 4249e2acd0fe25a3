"""Which pictures make up which batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from joem.errors import BadUsage


@dataclass
class EpochSampler:
    """Batches of (epoch, index) for `TrainingSet`, shuffled by (seed, epoch): a DataLoader's `batch_sampler`.

    Batch b of an epoch is the same for any number of processes: each takes a contiguous part of it. A last batch that
    is not full is left out, unless it is the only one.

    Args:
        length: number of pictures.
        batch_size: pictures per batch, over all processes.
        seed: another seed, another order.
        epoch: which epoch.
        start_batch: where to begin, for resuming in the middle.
        rank: which process this is.
        world: how many processes there are.

    >>> sampler = EpochSampler(5, 2, seed=0, epoch=1)
    >>> len(sampler), [len(batch) for batch in sampler]
    (2, [2, 2])
    """

    length: int
    batch_size: int
    seed: int
    epoch: int = 0
    start_batch: int = 0
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.length < 1 or self.batch_size < 1 or not 0 <= self.rank < self.world:
            raise BadUsage(f"Batches need length >= 1, batch_size >= 1 and 0 <= rank < world, got {self}.")
        size = min(self.length, self.batch_size)
        if size < self.world:
            raise BadUsage(
                f"A batch of {size} pictures cannot be shared by {self.world} processes: "
                "raise train.batch_size, add pictures or use fewer devices."
            )

    def __len__(self) -> int:
        return max(0, self._batches - self.start_batch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.length).tolist()
        for number in range(self.start_batch, self._batches):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            begin, end = (len(batch) * part // self.world for part in (self.rank, self.rank + 1))
            yield [(self.epoch, index) for index in batch[begin:end]]

    @property
    def _batches(self) -> int:
        return max(1, self.length // self.batch_size)
