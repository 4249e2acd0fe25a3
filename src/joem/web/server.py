"""Run the service until it is told to stop."""

import functools
import math
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from joem.errors import BadUsage, JoemError
from joem.segmenter import Segmenter
from joem.web import gallery
from joem.web.access import check_token
from joem.web.app import create_app
from joem.web.connections import BoundedConnection, Connections
from joem.web.gallery import SamplePicture
from joem.web.limits import Limits
from joem.web.models import ServedModel
from joem.web.shared_pictures import SharedPictures

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    segmenter: Segmenter,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token: str | None = None,
    sample_folder: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    announce: Callable[[str], None] | None = None,
    name: str = "default",
    others: Mapping[str, Path] | None = None,
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
        trusted_proxies: addresses or networks of proxies, whose word on who asks (X-Forwarded-For) is taken.
        announce: is given the address once it is listened on; prints it for people if None.
        name: what the model is called.
        others: folders or files of further models to choose from, by name.
    """
    limits = limits or Limits()
    app = build_app(segmenter, host, limits, token, sample_folder, allowed_hosts, name, others)
    config = configure(app, limits, trusted_proxies)
    with listen(host, port, limits.seconds) as listener:
        tell(address_of(host, listener.getsockname()[1]), host, token, announce)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn stops in good order, then raises the signal again; nothing is left to do then.
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listener])


def build_app(
    segmenter: Segmenter,
    host: str,
    limits: Limits,
    token: str | None = None,
    sample_folder: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    name: str = "default",
    others: Mapping[str, Path] | None = None,
    shared: SharedPictures | None = None,
) -> FastAPI:
    """The app that `serve` serves; `shared` as in `create_app`."""
    pictures = _samples(segmenter, sample_folder, limits)
    further = {each: functools.partial(_load, each, path, limits) for each, path in (others or {}).items()}
    return create_app(segmenter, limits, token, pictures, (host, *allowed_hosts), name, further, shared)


def address_of(host: str, port: int) -> str:
    """The address of what listens there.

    >>> address_of("::1", 8000)
    'http://[::1]:8000'
    """
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def tell(address: str, host: str, token: str | None, announce: Callable[[str], None] | None) -> None:
    """Announce the address; people are told too who else can use it."""
    (announce or _print)(address)
    if host not in _LOOPBACK and token is None and announce is None:
        print("Anyone who can reach this address can use it: give --token-file to ask for a token.", flush=True)


def _samples(segmenter: Segmenter, folder: Path | None, limits: Limits) -> list[SamplePicture]:
    return gallery.for_model(segmenter) if folder is None else gallery.from_folder(folder, limits.pixels)


def _load(name: str, path: Path, limits: Limits) -> ServedModel:
    segmenter = Segmenter.load(path)
    return ServedModel(name, segmenter, _samples(segmenter, gallery.own_samples(path), limits))


def configure(app: ASGIApp, limits: Limits, trusted_proxies: Sequence[str] = ()) -> uvicorn.Config:
    """How uvicorn is to run the app, with bounded connections.

    Args:
        app: what `create_app` gives.
        limits: bounds of what connections may cost.
        trusted_proxies: as in `serve`.
    """
    return uvicorn.Config(
        app,
        http=functools.partial(BoundedConnection, Connections(limits, trusted_proxies), limits),  # type: ignore[arg-type]
        ws="none",
        log_level="warning",
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=int(limits.seconds) + 1,
        server_header=False,
    )


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
    return check_token(token)


def listen(host: str, port: int, seconds: float) -> socket.socket:
    """A socket that listens, whose connections wait so long for clients that do not take what is sent."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise JoemError(f"Cannot listen on {host}, port {port}: {error}. Give another --host or --port.") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; a closed connection lives on until its client reads the rest
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(seconds * 1000))
    return listener
