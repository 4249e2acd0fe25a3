"""What every request passes through: a door, a bound on its body, security headers, and a clock."""

import asyncio
import time
from collections import Counter

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.problems import Problem, Refusal, answer

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Door:
    """Lets so many requests in that their bodies, and the work they wait for, stay bounded."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: Counter[str] = Counter()

    @property
    def inside(self) -> int:
        """How many requests are under way."""
        return self._inside.total()

    def enter(self, client: str) -> None:
        """Let a request of this address in, or refuse it."""
        if self._inside[client] >= self._limits.per_client:
            raise Refusal(429, f"{self._inside[client]} requests from this address are under way: wait for them.")
        if self.inside >= self._limits.queue:
            raise Refusal(503, f"{self.inside} requests are under way: try again in a moment.")
        self._inside[client] += 1

    def leave(self, client: str) -> None:
        """One of this address is answered."""
        self._inside[client] -= 1
        self._inside += Counter()  # drops addresses with none left


class Guard:
    """ASGI middleware; the errors it raises while a body is read are answered by the app inside."""

    def __init__(self, app: ASGIApp, door: Door, limits: Limits, metrics: Metrics) -> None:
        self._app, self._door, self._limits, self._metrics = app, door, limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            if scope["method"] == "POST":
                await self._through_the_door(scope, receive, send_with_headers)
            else:  # costs next to nothing: health and figures are told however busy the service is
                await self._app(scope, self._bounded(receive), send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" else "other"  # a made-up one must not become a label
            self._metrics.seconds.labels(route, method, status).observe(time.perf_counter() - start)

    async def _through_the_door(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("",))[0]
        try:
            self._door.enter(client)
        except Refusal as refusal:
            response = answer(refusal.status_code, Problem(message=refusal.detail), {"Retry-After": "1"})
            await response(scope, receive, send)
            return
        try:
            await self._app(scope, self._bounded(receive), send)
        finally:
            self._door.leave(client)

    def _bounded(self, receive: Receive) -> Receive:
        """`receive`, but a body that is too large or too slow is refused."""
        left = self._limits.bytes
        end = asyncio.get_running_loop().time() + self._limits.seconds
        complete = False

        async def bounded() -> Message:
            nonlocal left, complete
            if complete:  # what comes now is the client going away, for which there is no deadline
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                raise Refusal(408, f"The body did not arrive within {self._limits.seconds:g} s.") from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refusal(413, f"The body has more than the {self._limits.bytes:,} bytes allowed: send less.")
            complete = not message.get("more_body", False)
            return message

        return bounded
