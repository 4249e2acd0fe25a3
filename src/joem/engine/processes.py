"""Processes that train together stop together: one that is left alone waits for the others for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from joem.errors import JoemError


def who(fabric: Any, flag: bool) -> list[int]:
    """The ranks of the processes that say yes, the same list in each of them."""
    if fabric.world_size == 1:
        return [0] if flag else []
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
    failed = who(fabric, error is not None)
    if failed:
        raise fabric.broadcast(error, src=failed[0])
