"""Run the service until it is told to stop."""

import math
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from joem.errors import BadUsage, JoemError
from joem.segmenter import Segmenter
from joem.web import gallery
from joem.web.app import create_app
from joem.web.limits import Limits

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    segmenter: Segmenter,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token: str | None = None,
    sample_folder: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the API and the page; returns after SIGINT or SIGTERM, when requests under way are answered.

    Args:
        segmenter: the model.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        limits: bounds of what a request may cost.
        token: the bearer token that calls must carry, as in `create_app`.
        sample_folder: pictures for the page to offer; those of the package if None.
        allowed_hosts: names that requests may be sent to besides host, localhost and IP addresses.
        announce: is given the address once it is listened on; prints it for people if None.
    """
    limits = limits or Limits()
    if sample_folder is None:
        pictures = gallery.for_model(segmenter)
    else:
        pictures = gallery.from_folder(sample_folder, limits.pixels)
    app = create_app(segmenter, limits, token, pictures, (host, *allowed_hosts))
    with _listen(host, port, limits.seconds) as listener:
        shown = f"[{host}]" if ":" in host else host
        (announce or _print)(f"http://{shown}:{listener.getsockname()[1]}")
        if host not in _LOOPBACK and token is None and announce is None:
            print("Anyone who can reach this address can use it: give --token-file to ask for a token.", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn stops in good order, then raises the signal again; nothing is left to do then.
            signal.signal(number, lambda *_: None)
        config = uvicorn.Config(
            app,
            log_level="warning",
            limit_concurrency=limits.connections + 1,  # uvicorn counts the connection that it refuses
            timeout_graceful_shutdown=int(limits.seconds) + 1,
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _print(address: str) -> None:
    print(f"joem is at {address}  (Ctrl-C stops it)", flush=True)


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise JoemError(f"Cannot read the token file {path}: {error}.") from None
    if not token:
        raise BadUsage(f"The token file {path} is empty: write a long random text into it.")
    return token


def _listen(host: str, port: int, seconds: float) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise JoemError(f"Cannot listen on {host}, port {port}: {error}. Give another --host or --port.") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; a closed connection lives on until its client reads the rest
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(seconds * 1000))
    return listener
