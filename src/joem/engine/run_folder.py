"""The folder of a run: one run at a time, and without what a killed one left half written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joem.errors import BadUsage
from joem.io import remove_drafts, writing
from joem.locking import FileLock
from joem.parallel import together


@contextmanager
def alone_in(out: Path | None, fabric: Any) -> Iterator[None]:
    """Hold the folder of a run, for all its processes, until the end of the block; None holds nothing."""
    if out is None:
        yield
        return
    lock, is_new = FileLock(out / ".lock"), not out.exists()
    try:
        with together(fabric), writing(out):
            if fabric.is_global_zero:
                if not lock.take():
                    raise BadUsage(
                        f"{out} is being trained into by {lock.holder()}: wait until it ends, or choose another --out."
                    )
                remove_drafts(out)
                remove_drafts(out / "checkpoints")
        yield
    finally:
        lock.release()
        if is_new and fabric.is_global_zero and out.is_dir() and not any(out.iterdir()):
            out.rmdir()  # the run came to nothing
