"""What every request passes through: a check of its headers, admission, bounds on its body and answer, and a clock."""

import asyncio
import time
from collections import Counter

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from joem.web.access import Access, client_of, group_of
from joem.web.failures import Failure, Refusal, answer, refused
from joem.web.limits import Limits
from joem.web.metrics import Metrics

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PIECE = 256 * 1024
_FILES = ("/api/scenes", "/api/pictures")  # where a body is a picture file


class Admission:
    """Lets so many requests in that their bodies, and the work they wait for, stay bounded."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many requests are under way."""
        return self._under_way.total()

    def enter(self, client: str) -> None:
        """Let a request of this client in, or refuse it."""
        own = self._under_way[client]
        if own >= self._limits.per_client:
            raise Refusal(429, f"{own} requests from this address are under way: wait for them.", wait=1)
        if self.count >= self._limits.queue:
            raise Refusal(503, f"{self.count} requests are under way: try again in a moment.", wait=1)
        self._under_way[client] += 1

    def leave(self, client: str) -> None:
        """One of this client is answered."""
        self._under_way[client] -= 1
        self._under_way += Counter()  # drops addresses with none left


class BoundedSend:
    """`send`, with security headers, in pieces; a client that does not take a piece in time gets nothing more.

    A request that is being answered stays admitted: what waits for slow readers is bounded with the requests.
    """

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self._given_up = False
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).update(_HEADERS)
            await self._in_time(message)
            return
        body = message.get("body", b"")
        for start in range(0, len(body), _PIECE):
            await self._in_time({**message, "body": body[start : start + _PIECE], "more_body": True})
        # The server waits for the client before it sends, not after: an empty message waits for the last piece.
        await self._in_time({**message, "body": b""})

    async def _in_time(self, message: Message) -> None:
        if self._given_up:  # the server closes the connection when an answer stays incomplete
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            self._given_up = True


class RequestBounds:
    """ASGI middleware; the errors it raises while a body is read are answered by the app inside."""

    def __init__(self, app: ASGIApp, access: Access, admission: Admission, limits: Limits, metrics: Metrics) -> None:
        self._app, self._access, self._admission = app, access, admission
        self._limits, self._metrics = limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, out = time.perf_counter(), BoundedSend(send, self._limits.seconds)
        try:
            await self._checked(scope, receive, out)
        except Exception as error:
            if out.status is None:
                message = f"The service failed ({type(error).__name__}); its log says more."
                await answer(500, Failure(message=message))(scope, receive, out)
            raise
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" else "other"  # a made-up one must not become a label
            self._metrics.seconds.labels(route, method, out.status or 500).observe(time.perf_counter() - start)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._access.check(scope)
            if scope["method"] == "POST":
                await self._admitted(scope, receive, send)
            else:  # costs next to nothing: health and figures are told however busy the service is
                await self._app(scope, self._bounded(scope, receive), send)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = group_of(client_of(scope))
        self._admission.enter(client)
        try:
            await self._app(scope, self._bounded(scope, receive), send)
        finally:
            self._admission.leave(client)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """`receive`, but a body that is too large or too slow is refused."""
        left = allowed = self._limits.bytes if scope["path"] in _FILES else self._limits.json_bytes
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
                raise Refusal(413, f"The body has more than the {allowed:,} bytes allowed: send less.")
            complete = not message.get("more_body", False)
            return message

        return bounded
