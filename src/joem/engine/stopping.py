"""How a run ends before its last step: Ctrl-C, or a process of several that is gone."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from joem.errors import ProcessLost

_LOST = ("closed by peer", "reset by peer", "Broken pipe", "Timed out waiting")  # what gloo says


class Stoppable(Protocol):
    """A run that looks at `stop` after every step."""

    stop: bool


@contextmanager
def interruptible(run: Stoppable) -> Iterator[None]:
    """The first Ctrl-C ends the run after the current step, with a checkpoint; the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        run.stop = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def lost_processes_told(fabric: Any, out: Path | None) -> Iterator[None]:
    """What the others of several processes meet when one of them was killed, as an error that says how to go on."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, torch.distributed.DistError) or any(each in str(error) for each in _LOST)
        if fabric.world_size == 1 or not lost:
            raise
        going_on = "" if out is None else f" If {out} has a checkpoint, the same command with --resume goes on from it."
        raise ProcessLost(
            f"Process {fabric.global_rank} of {fabric.world_size} cannot reach the others any more: one of them was "
            f"killed, or lost its network ({str(error).splitlines()[0]}).{going_on}"
        ) from None
