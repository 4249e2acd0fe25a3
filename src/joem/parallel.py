"""Processes that work together: their ranks, what they share, and how they stop together."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from joem.errors import JoemError

T = TypeVar("T")

_FIRST = "JOEM_FIRST_PROCESS"
"""The variable that tells a process the id of the one that started it."""


def join() -> None:
    """Let the processes that torchrun started find each other; alone, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        import torch.distributed

        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")


def device(name: str) -> str:
    """The device of that name that is this process's own; auto is a GPU, or mps, or else the CPU.

    >>> device("cpu")
    'cpu'
    """
    import torch

    if name == "auto":
        mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    # torchrun gives the processes of a machine numbers: each takes the GPU of its number.
    return f"cuda:{os.environ['LOCAL_RANK']}" if name == "cuda" and "LOCAL_RANK" in os.environ else name


@contextmanager
def ending_with_first() -> Iterator[None]:
    """While processes find each other, one that the first has started ends with it: it would wait for half an hour.

    Later on, connections that break tell that a process is gone; and torchrun looks after those that it has started.
    """
    over, first = threading.Event(), os.environ.get(_FIRST)

    def watch() -> None:
        while not over.wait(0.5):
            if str(os.getppid()) != first:
                print("joem: The first process was ended, so this one ends, too.", file=sys.stderr, flush=True)
                os._exit(1)

    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        os.environ[_FIRST] = str(os.getpid())
    elif first is not None:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        # What this process starts later has another parent, such as torchrun.
        os.environ.pop(_FIRST, None)


def _group() -> Any:
    """torch.distributed where processes work together, which they cannot before torch is imported; None elsewhere."""
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed and distributed.is_available() and distributed.is_initialized() else None


def leave() -> None:
    """Let go of the other processes at the end; a process that does not may be aborted while it exits."""
    if group := _group():
        group.destroy_process_group()


def rank_and_world() -> tuple[int, int]:
    """The rank of this process among those that work together, and how many they are."""
    group = _group()
    return (group.get_rank(), group.get_world_size()) if group else (0, 1)


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return rank_and_world()[0] == 0


def gathered(value: T) -> list[T]:
    """The values of all processes, on each of them."""
    values = [value] * rank_and_world()[1]
    if len(values) > 1:
        _group().all_gather_object(values, value)
    return values


def from_first(work: Callable[[], T]) -> T:
    """What the first process finds, or raises, on all of them; the others do not work."""
    found: T | JoemError | None = None
    if is_first():
        try:
            found = work()
        except JoemError as error:
            found = error
    first = gathered(found)[0]
    if isinstance(first, JoemError):
        raise first
    return cast(T, first)


def ranks_that_say_yes(fabric: Any, flag: bool) -> list[int]:
    """The ranks of the processes whose flag is set, the same list in each of them."""
    if fabric.world_size == 1:
        return [0] if flag else []
    import torch

    answers = fabric.all_gather(torch.tensor(int(flag), device=fabric.device))
    return [rank for rank, answer in enumerate(answers.flatten().tolist()) if answer]


@contextmanager
def together(fabric: Any) -> Iterator[None]:
    """What one process raises here, a broken picture for instance, all of them raise; none leaves before the others."""
    error: JoemError | None = None
    try:
        yield
    except JoemError as found:
        error = found
    failed = ranks_that_say_yes(fabric, error is not None)
    if failed:
        raise fabric.broadcast(error, src=failed[0])
