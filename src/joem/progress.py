"""The one progress display: it moves at every step, on a terminal as bars, elsewhere as a line now and then.

Long work says `with progress.show("training", total) as advance:` and calls `advance()` after each step. Work inside
of work adds a bar below, or stands behind it in a line; of several processes only the first shows anything.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_SECONDS = 10.0  # between two lines where there is no terminal
_hidden = False
_display: Any = None  # the bars that are shown now; all work adds to them
_under_way: list[list[Any]] = []  # where there is no terminal: title, steps done and total of each, outermost first


class Advance(Protocol):
    """Moves a bar by some steps and says what was found."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Move on."""


@contextmanager
def hidden() -> Iterator[None]:
    """Show nothing of what happens inside."""
    global _hidden  # noqa: PLW0603
    before, _hidden = _hidden, True
    try:
        yield
    finally:
        _hidden = before


def say(text: str) -> None:
    """A line at once, above the bars, of what should not wait for the end.

    >>> with hidden():
    ...     say("one of them failed")
    """
    if not _silent():
        print(text, file=sys.stderr, flush=True)


def _silent() -> bool:
    return _hidden or int(os.environ.get("RANK", "0")) > 0


@contextmanager
def show(title: str, total: int, done: int = 0) -> Iterator[Advance]:
    """A bar for work of `total` steps, `done` of which are behind it.

    >>> with hidden(), show("training", 3) as advance:
    ...     advance(note="loss 0.5")
    """
    if _silent():
        yield lambda steps=1, note="": None
    elif sys.stderr.isatty():
        with _bar(title, total, done) as advance:
            yield advance
    else:
        with _lines(title, total, done) as advance:
            yield advance


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar that moves as they are used.

    >>> with hidden():
    ...     list(track("ab", "reading"))
    ['a', 'b']
    """
    known = list(items) if total is None else items
    with show(title, total if total is not None else len(known)) as advance:  # type: ignore[arg-type]
        for item in known:
            yield item
            advance()


def in_threads(call: Callable[[T], U], items: Sequence[T], title: str, threads: int | None = None) -> Iterator[U]:
    """What a call gives for every item, in order, worked out in threads, with a bar.

    They are ahead of who takes the results by twice their number of items, so that no more are held in memory. Without
    `threads` there are as many as cores, at most eight; 0 works in the thread that calls.

    >>> with hidden():
    ...     list(in_threads(len, ["a", "bc"], "counting")), list(in_threads(len, ["a", "bc"], "counting", threads=0))
    ([1, 2], [1, 2])
    """
    count = min(8, os.cpu_count() or 1) if threads is None else threads
    if not count:
        yield from map(call, track(items, title))
        return
    pool = ThreadPoolExecutor(count)
    try:
        rest = iter(items)
        waiting = deque(pool.submit(call, item) for item in islice(rest, 2 * count))
        for _ in track(items, title):
            yield waiting.popleft().result()
            waiting.extend(pool.submit(call, item) for item in islice(rest, 1))
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops listening waits for items under way only


@contextmanager
def _bar(title: str, total: int, done: int) -> Iterator[Advance]:
    global _display  # noqa: PLW0603
    outermost = _display is None
    if outermost:
        _display = _new_display()
        _display.start()
    task = _display.add_task(title, total=total, completed=done, note="")
    try:
        yield lambda steps=1, note=None: _display.update(task, advance=steps, **({"note": note} if note else {}))
    finally:
        _display.remove_task(task)
        if outermost:
            _display.stop()
            _display = None


def _new_display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    # What is printed to a file or a pipe meanwhile must not end up on the terminal.
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())


@contextmanager
def _lines(title: str, total: int, done: int) -> Iterator[Advance]:
    """Plain lines for logs, the first after some seconds: quick work leaves none."""
    own: list[Any] = [title, done, total]
    told, last = time.monotonic(), ""

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal told, last
        own[1], last = own[1] + steps, note or last
        if time.monotonic() - told >= _SECONDS:
            told = time.monotonic()
            say(f"{', '.join(f'{name} {count}/{of}' for name, count, of in _under_way)}  {last}".rstrip())

    _under_way.append(own)
    try:
        yield advance
    finally:
        _under_way.remove(own)
