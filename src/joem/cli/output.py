"""How commands tell what they found: plain tables, and results that are there although something failed."""

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast


@contextmanager
def own_thread_only() -> Iterator[None]:
    """Keep the standard output to this thread: what others print, as Ray's do, goes to the standard error."""

    class Divided:
        def __getattr__(self, name: str) -> Any:
            return getattr(before if threading.get_ident() == own else sys.stderr, name)

    before, own = sys.stdout, threading.get_ident()
    sys.stdout = cast(Any, Divided())
    try:
        yield
    finally:
        sys.stdout = before


class Incomplete(NamedTuple):
    """What was found, and why that is not all: it is printed, and then the command fails."""

    found: Any
    failure: str | None = None


TITLES = {"miou_seen": "seen", "miou_unseen": "unseen", "hiou": "hIoU", "pixel_accuracy": "pixels right"}
"""The scores that tables may have; the first three are those of the field."""


def table(
    first: str, rows: Iterable[tuple[str, Mapping[str, Any]]], columns: Sequence[str] = tuple(TITLES)[:3]
) -> Iterator[str]:
    """Scores as lines, one row each.

    >>> list(table("rule", [("nn", {"hiou": 12.34})], ["hiou"]))[1].split()
    ['nn', '12.3']
    """
    yield f"{first:24}" + "".join(f"{TITLES[column]:>14}" for column in columns)
    for name, row in rows:
        cells = ("-" if row[column] is None else f"{row[column]:.1f}" for column in columns)
        yield f"{name:24}" + "".join(f"{cell:>14}" for cell in cells)
