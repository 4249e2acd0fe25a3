"""Processes that train together stop together: one that is left alone waits for the others for ever."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.distributed

from joem import data
from joem.data import Dataset
from joem.errors import JoemError

T = TypeVar("T")


def who(fabric: Any, flag: bool) -> list[int]:
    """The ranks of the processes that say yes, the same list in each of them."""
    if fabric.world_size == 1:
        return [0] if flag else []
    answers = fabric.all_gather(torch.tensor(int(flag), device=fabric.device))
    return [rank for rank, answer in enumerate(answers.flatten().tolist()) if answer]


def place() -> tuple[int, int]:
    """The rank of this process among those that work together, and how many they are."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def share(pictures: Dataset) -> Dataset:
    """This process's share of the pictures: all of them where it is alone."""
    rank, world = place()
    return pictures if world == 1 else data.View(pictures, range(rank, len(pictures), world))


def gathered(value: T) -> list[T]:
    """The values of all processes, on each of them."""
    _, world = place()
    values: list[Any] = [value] * world
    if world > 1:
        torch.distributed.all_gather_object(values, value)
    return values


def from_first(work: Callable[[], T]) -> T:
    """What the first process finds, or raises, on all of them; the others do not work."""
    rank, _ = place()
    found: T | JoemError | None = None
    if rank == 0:
        try:
            found = work()
        except JoemError as error:
            found = error
    first = gathered(found)[0]
    if isinstance(first, JoemError):
        raise first
    return cast(T, first)


@contextmanager
def together(fabric: Any) -> Iterator[None]:
    """What one process raises here, a broken picture for instance, all of them raise; none leaves before the others."""
    error: JoemError | None = None
    try:
        yield
    except JoemError as found:
        error = found
    failed = who(fabric, error is not None)
    if failed:
        raise fabric.broadcast(error, src=failed[0])
