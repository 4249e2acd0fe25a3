"""From the official archives to data ready for training: what is missing, and what can be built."""

from collections.abc import Callable
from pathlib import Path

from joem.data.preparation import prepare_coco_stuff, prepare_context, prepare_voc
from joem.data.preparation.conversion import Conversion, Piece, Preparation
from joem.errors import BadUsage, JoemError, choose

__all__ = ["PREPARED", "Conversion", "Piece", "Preparation", "prepare"]

PREPARED: dict[str, Callable[[Path], Preparation]] = {
    "voc": prepare_voc.prepare,
    "context": prepare_context.prepare,
    "coco-stuff": prepare_coco_stuff.prepare,
}
"""The datasets that can be prepared."""


def prepare(kind: str, root: str | Path) -> Preparation:
    """Check a download in its official layout and build what must be derived from it.

    Run it again whenever a piece was added: what is done stays done.

    Args:
        kind: voc, context or coco-stuff.
        root: the folder in which the archives were unpacked.
    """
    choose("dataset to prepare", kind, PREPARED)
    if not Path(root).is_dir():
        raise BadUsage(f"There is no folder {root}: make it, unpack the archives in it and run this again.")
    try:
        return PREPARED[kind](Path(root))
    except OSError as error:
        raise JoemError(
            f"Preparing stopped: {error}. Once the files can be read and written, run this again."
        ) from None
