"""Heavy work in threads of its own, so that the service answers while it computes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from joem.web.failures import Refusal
from joem.web.limits import Limits

_T = TypeVar("_T")


class Workers:
    """A few threads; how much can wait for them is bounded by how many requests are let in."""

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.seconds
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="joem")

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do the work in a thread.

        A thread cannot be stopped: work that takes too long keeps its thread until it is done, although the client
        was told before. Work that still waits then is dropped.
        """
        job = asyncio.wrap_future(self._pool.submit(work))
        try:
            return await asyncio.wait_for(job, self._seconds)
        except TimeoutError:
            raise Refusal(504, f"The work took longer than {self._seconds:g} s: send less, or later.") from None

    def close(self) -> None:
        """Finish what runs and drop what waits."""
        self._pool.shutdown(cancel_futures=True)
