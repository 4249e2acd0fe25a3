"""The same service as several processes on a Ray cluster. Needs `pip install "joem[ray]"`.

Any replica may get any request: Ray Serve sends it to the one with the least to do. A replica that is asked about a
scene of another one finds the picture in an actor that all of them share, and encodes it itself.
"""

import secrets
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from joem import cluster
from joem.errors import JoemError
from joem.segmenter import Segmenter
from joem.web import server
from joem.web.limits import Limits
from joem.web.scale import Scale
from joem.web.shared_pictures import PictureStore, SentPicture

_SECONDS = 10.0  # to wait for the shared pictures; without an answer they count as gone


class RemotePictures:
    """The pictures that an actor keeps for all replicas."""

    def __init__(self, actor: Any, secret: bytes) -> None:
        self._actor, self.secret = actor, secret

    def put(self, key: str, picture: SentPicture) -> None:
        """Keep a picture, before anybody is told its key."""
        import ray

        with suppress(ray.exceptions.RayError):  # it is answered for as long as this replica lives
            ray.get(self._actor.put.remote(key, picture), timeout=_SECONDS)

    def get(self, key: str) -> SentPicture | None:
        """The picture; None too where the actor was lost with all it had."""
        import ray

        try:
            found: SentPicture | None = ray.get(self._actor.get.remote(key), timeout=_SECONDS)
        except ray.exceptions.RayError:
            return None
        return found


def deploy(
    load: Callable[[], Segmenter],
    scale: Scale,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token: str | None = None,
    sample_folder: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    name: str = "default",
    others: Mapping[str, Path] | None = None,
) -> str:
    """Start the replicas and give their address; they run until this process ends or Ray Serve is shut down.

    Args: see `server.serve`, but for
        load: gives the model; called by every replica.
        scale: how many replicas there are.
    """
    cluster.join_cluster()
    import ray
    from ray import serve

    bounds = limits or Limits()
    with server.listen(host, port, bounds.seconds) as listener:  # Ray would tell of a taken port in its logs only
        port = listener.getsockname()[1]
    store = ray.remote(PictureStore).options(num_cpus=0, max_restarts=-1).remote(bounds.cache_bytes)
    shared = RemotePictures(store, secrets.token_bytes(32))

    def build() -> FastAPI:
        return server.build_app(load(), host, bounds, token, sample_folder, allowed_hosts, name, others, shared)

    serve.start(http_options={"host": host, "port": port, "request_timeout_s": bounds.seconds + 1})
    under_way = bounds.queue + 1  # those beyond its limits the app refuses itself, with a reason
    deployment = serve.deployment(serve.ingress(build)()).options(
        name="joem", max_ongoing_requests=under_way, **scale.options()
    )
    try:
        serve.run(deployment.bind(), name="joem", route_prefix="/")
    except RuntimeError as error:
        raise JoemError(f"The replicas did not start: {error}") from None
    return server.address_of(host, port)


def serve(
    load: Callable[[], Segmenter],
    scale: Scale,
    host: str,
    announce: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """`deploy`, and wait for SIGINT or SIGTERM; then the replicas are stopped."""
    import ray
    from ray import serve as ray_serve

    stopped = threading.Event()
    address = deploy(load, scale, host, **options)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server.tell(address, host, options.get("token"), announce)
    stopped.wait()
    ray_serve.shutdown()
    ray.shutdown()
