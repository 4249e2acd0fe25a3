"""Heavy work in threads of its own, so that the service answers while it computes."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from joem.engine import return_freed_memory
from joem.web.failures import Refusal
from joem.web.limits import Limits

_T = TypeVar("_T")
_NEWEST = 0.1  # what the last piece of work counts in the mean


class Workers:
    """A few threads; how much can wait for them is bounded by how many requests are let in, and by how long it takes.

    Args:
        limits: how many threads, and how long a piece of work may take with its wait.
    """

    def __init__(self, limits: Limits) -> None:
        self._seconds, self._threads = limits.seconds, limits.workers
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="joem")
        self._lock = Lock()
        self._unfinished = 0
        self._mean: float | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do the work in a thread, or refuse it if it could not be done in time.

        A thread cannot be stopped: work that takes too long keeps its thread until it is done, although the client
        was told before. Work that still waits then is dropped.
        """
        late = self.expected_seconds() - self._seconds
        if late > 0:
            raise Refusal(503, f"Too much work waits: try again in {math.ceil(late)} s.", wait=math.ceil(late))
        job = self._pool.submit(self._timed, work)
        with self._lock:
            self._unfinished += 1
        job.add_done_callback(self._finished)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job), self._seconds)
        except TimeoutError:
            raise Refusal(504, f"The work took longer than {self._seconds:g} s: send less, or later.") from None

    def expected_seconds(self) -> float:
        """How long a piece of work would take from now, by the mean of those before; 0 if it need not wait."""
        with self._lock:
            ahead = self._unfinished - self._threads + 1
            return 0.0 if ahead <= 0 or self._mean is None else self._mean * (1 + ahead / self._threads)

    def close(self) -> None:
        """Finish what runs and drop what waits."""
        self._pool.shutdown(cancel_futures=True)

    def _timed(self, work: Callable[[], _T]) -> _T:
        start = time.perf_counter()
        try:
            return work()
        finally:
            return_freed_memory()
            seconds = time.perf_counter() - start
            with self._lock:
                self._mean = seconds if self._mean is None else self._mean + _NEWEST * (seconds - self._mean)

    def _finished(self, _: Future[_T]) -> None:
        with self._lock:
            self._unfinished -= 1
