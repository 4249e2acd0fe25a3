"""Heavy work in threads of its own, so that the service answers while it computes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from joem.web.limits import Limits
from joem.web.problems import Refusal

_T = TypeVar("_T")
_LATER = {"Retry-After": "1"}


class Workers:
    """A few threads and a bounded queue before them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="joem")
        self._jobs: Counter[str] = Counter()

    @property
    def jobs(self) -> int:
        """How many jobs run or wait."""
        return self._jobs.total()

    async def run(self, client: str, work: Callable[[], _T]) -> _T:
        """Do the work in a thread; call this from the event loop only.

        A thread cannot be stopped: work that takes too long keeps its thread, and its place in the queue, until it
        is done, although the client was told before. Work that still waits is dropped.
        """
        if self._jobs[client] >= self._limits.per_client:
            raise Refusal(429, f"{self._jobs[client]} requests from this address are under way: wait for them.", _LATER)
        if self.jobs >= self._limits.queue:
            raise Refusal(503, f"{self.jobs} requests are under way already: try again in a moment.", _LATER)
        loop = asyncio.get_running_loop()
        self._jobs[client] += 1
        job = self._pool.submit(work)

        def leave(_: "Future[_T]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._leave, client)

        job.add_done_callback(leave)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job), self._limits.seconds)
        except TimeoutError:
            raise Refusal(504, f"The work took longer than {self._limits.seconds:g} s: send less, or later.") from None

    def close(self) -> None:
        """Finish what runs and drop what waits."""
        self._pool.shutdown(cancel_futures=True)

    def _leave(self, client: str) -> None:
        self._jobs[client] -= 1
        if not self._jobs[client]:
            del self._jobs[client]
