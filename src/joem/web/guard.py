"""What every request passes through: a bound on its body, security headers, and a clock."""

import asyncio
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.problems import Refusal

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """ASGI middleware; the errors it raises while a body is read are answered by the app inside."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics

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
            await self._app(scope, self._bounded(receive), send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" else "other"  # a made-up one must not become a label
            self._metrics.seconds.labels(route, method, status).observe(time.perf_counter() - start)

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
