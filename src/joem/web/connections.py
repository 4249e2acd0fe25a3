"""Connections: how many there may be, and how long they may take to say what they want."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from joem.errors import BadUsage
from joem.web.access import group_of
from joem.web.failures import Failure, Refusal, answer, refused
from joem.web.limits import Limits
from joem.web.middleware import BoundedSend


class Connections:
    """Counts the open connections of a service.

    Args:
        limits: how many there may be.
        proxies: addresses and networks whose connections are those of many people.
    """

    def __init__(self, limits: Limits, proxies: Sequence[str] = ()) -> None:
        self._proxies = parse_proxies(proxies)
        self._most = limits.connections
        self._most_of_one = min(limits.connections_per_client, max(1, limits.connections // 2))
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> None:
        """Count a connection from this address, or refuse it."""
        client, count = group_of(address), self._open.total()
        if self._open[client] >= self._most_of_one and not self._is_proxy(address):
            raise Refusal(429, f"{self._open[client]} connections from this address are open: close some.", wait=1)
        if count >= self._most:
            raise Refusal(503, f"{count} connections are open: try again in a moment.", wait=1)
        self._open[client] += 1

    def leave(self, address: str) -> None:
        """A connection that was counted is closed."""
        self._open[group_of(address)] -= 1
        self._open += Counter()  # drops addresses with none left

    def _is_proxy(self, address: str) -> bool:
        return bool(address) and any(ipaddress.ip_address(address) in network for network in self._proxies)


def parse_proxies(proxies: Sequence[str]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Addresses and networks from text."""
    try:
        return tuple(ipaddress.ip_network(each, strict=False) for each in proxies)
    except ValueError as error:
        raise BadUsage(f"Trusted proxies are IP addresses or networks such as 10.0.0.0/8: {error}.") from None


class BoundedConnection(H11Protocol):
    """uvicorn's connection, counted, and closed when the headers of a request do not come in time.

    A connection too many is let go with an answer to its request, as long as there are not as many of them as of
    others; beyond that it is dropped.

    Args:
        counted: the open connections.
        limits: bounds of the service.
        options: what uvicorn gives its protocol.
    """

    def __init__(self, counted: Connections, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self.app = self._within_bounds
        self._counted, self._limits = counted, limits
        self._is_counted = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and wait for a request."""
        super().connection_made(transport)
        with suppress(Refusal):  # told when there is a request to answer
            self._enter()
        if not self._is_counted and len(self.connections) > 2 * self._limits.connections:
            transport.abort()
            return
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._stop_waiting()
        if self._is_counted:
            self._counted.leave(self._address)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what has come; once that is a request's headers, its body and its work have other deadlines."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request; what is left of this one's body must come in that time too."""
        self._wait_for_headers()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Tell of bytes that are not HTTP."""
        self._end_with(answer(400, Failure(message=msg)))

    async def _within_bounds(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._enter()
        except Refusal as refusal:
            await refused(refusal)(scope, receive, BoundedSend(send, self._limits.seconds))
        else:
            await self.config.loaded_app(scope, receive, send)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _enter(self) -> None:
        if not self._is_counted and not self.transport.is_closing():
            self._counted.enter(self._address)
            self._is_counted = True

    def _wait_for_headers(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self._limits.header_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        begun, _ = self.conn.trailing_data
        if begun and self.conn.our_state is h11.IDLE:
            message = f"The headers did not arrive within {self._limits.header_seconds:g} s."
            self._end_with(answer(408, Failure(message=message)))
        else:  # nothing was asked
            self.transport.close()

    def _end_with(self, response: Response) -> None:
        """Answer without a request, and close."""
        status = HTTPStatus(response.status_code)
        headers = [*response.raw_headers, (b"connection", b"close")]
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b": ".join(header) for header in headers)]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()
