"""How a run ends before its last step: Ctrl-C, or a disk that refuses."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

from joem.errors import JoemError


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
def writing(out: Path | None) -> Iterator[None]:
    """What the disk refuses, as an error that processes can tell each other."""
    try:
        yield
    except OSError as error:
        raise JoemError(
            f"{out} cannot be written to ({error}): make room there, or choose another --out. A run that has a "
            "checkpoint goes on from it with --resume."
        ) from error
