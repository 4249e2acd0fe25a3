"""The REST API and the page."""

import hmac
import io
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response
from fastapi.responses import FileResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles
from PIL import Image
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from joem import __version__
from joem.segmenter import Result, Segmenter
from joem.web import problems, wire
from joem.web.guard import Door, Guard
from joem.web.limits import MOST_CLASSES, Limits
from joem.web.metrics import Metrics
from joem.web.pictures import MEDIA_TYPES
from joem.web.problems import Refusal
from joem.web.samples import SamplePicture
from joem.web.service import Service, key_of
from joem.web.work import Workers

_PAGE = str(files("joem.web") / "page")
_T = TypeVar("_T")


class Names(BaseModel):
    """Which classes."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MOST_CLASSES,
        fail_fast=True,
        description="class names, trained or new; those of the model if absent",
    )

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, sent: Any) -> Any:
        # Each unknown key would be an error of its own.
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_keys", f"{len(sent)} keys, there are only {known}")
        return sent


class Pixel(Names):
    """Which pixel, among which classes."""

    x: int = Field(ge=0, description="column, from 0 at the left")
    y: int = Field(ge=0, description="row, from 0 at the top")


class Wish(Names):
    """Which classes, decided how."""

    rule: Literal["nn", "cs", "ac", "ratio"] | None = Field(None, description="the model's if absent")
    sigma: float | None = Field(None, gt=0, le=1, description="of ac and ratio; the model's if absent")
    gamma: float | None = Field(None, ge=0, le=1e6, description="of cs; the model's if absent")

    def settings(self) -> dict[str, Any]:
        """What `Scene.segment` takes besides the names."""
        return self.model_dump(exclude={"names"})


class SceneInfo(BaseModel):
    """An encoded picture."""

    scene: str = Field(description="its key in further calls: the SHA-256 of the file")
    width: int
    height: int


class Segmentation(BaseModel):
    """Labels in short."""

    width: int
    height: int
    names: list[str]
    unseen: list[str] = Field(description="names without training masks")
    colours: Sequence[Annotated[Sequence[int], Field(min_length=3, max_length=3)]] = Field(
        description="RGB of each name, as in the mask and the overlay"
    )
    areas: dict[str, float] = Field(description="the share of the picture that each name covers")
    confidences: dict[str, float | None] = Field(description="1 - d / d', the mean over the pixels of each name")


class Neighbour(BaseModel):
    """A class near a pixel."""

    name: str
    distance: float
    trained: bool


class Explanation(BaseModel):
    """Why a pixel takes its class."""

    x: int
    y: int
    first: Neighbour = Field(description="the nearest class")
    second: Neighbour | None
    ratio: float | None = Field(description="distance of the first by that of the second, which ac compares with sigma")
    winners: dict[str, str] = Field(description="what wins under each rule, with the model's sigma and gamma")


class Decision(BaseModel):
    """How the model decides unless told otherwise."""

    rule: str
    sigma: float
    gamma: float
    squared: bool = Field(description="sigma is compared with the ratio of squared distances")


class ModelInfo(BaseModel):
    """What the model knows."""

    version: str
    names: list[str]
    trained: list[str] = Field(description="names with training masks")
    background: str | None
    decision: Decision
    limits: dict[str, float]


class SampleInfo(BaseModel):
    """A picture to start with."""

    title: str
    url: str
    names: tuple[str, ...] | None = Field(description="classes to show it with, if it has some of its own")


def create_app(
    segmenter: Segmenter,
    limits: Limits | None = None,
    token: str | None = None,
    samples: Sequence[SamplePicture] = (),
    hosts: Sequence[str] = (),
) -> FastAPI:
    """The service on a model.

    Args:
        segmenter: the model.
        limits: bounds of what a request may cost; the default ones if None.
        token: the bearer token that every call must carry, but for /health, /openapi.json and the page's own files.
        samples: pictures that the page offers.
        hosts: names that requests may be sent to besides localhost and IP addresses.
    """
    limits = limits or Limits()
    metrics = Metrics()
    service = Service(segmenter, limits, metrics)
    workers = Workers(limits)
    door = Door(limits)
    metrics.watch("joem_cache_bytes", "Memory of the encoded pictures kept", lambda: service.scenes.bytes)
    metrics.watch("joem_cache_scenes", "Encoded pictures kept", lambda: len(service.scenes))
    metrics.watch("joem_requests", "Requests with a body under way", lambda: door.inside)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()

    app = FastAPI(
        title="joem",
        version=__version__,
        description=__doc__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=problems.responses(421),
    )
    app.add_middleware(Guard, door=door, limits=limits, metrics=metrics, hosts=hosts)
    problems.install(app)
    guarded = [Depends(_token_check(token))] if token else []
    common = problems.responses(401) if token else {}
    app.include_router(_scene_routes(service, workers), dependencies=guarded, responses=common)
    app.include_router(_model_routes(segmenter, limits, samples), dependencies=guarded, responses=common)
    app.include_router(_figures(metrics), dependencies=guarded, responses=common)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Answers as long as the service lives, whatever it is working on."""
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(f"{_PAGE}/index.html")

    app.mount("/page", StaticFiles(directory=_PAGE))
    return app


def _token_check(token: str) -> Callable[..., None]:
    scheme = HTTPBearer(auto_error=False)

    def check(sent: Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)]) -> None:
        given = sent.credentials if sent else ""
        if not hmac.compare_digest(given.encode(), token.encode()):
            message = "Send the service's token in the header: Authorization: Bearer TOKEN."
            raise Refusal(401, message, {"WWW-Authenticate": "Bearer"})

    return check


_BINARY = {"type": "string", "format": "binary"}
_PICTURE = {
    "requestBody": {
        "required": True,
        "description": "the picture file itself",
        "content": {kind: {"schema": _BINARY} for kind in MEDIA_TYPES.values()},
    }
}
_Key = Annotated[str, Path(description="the key that POST /api/scenes answered")]


def _scene_routes(service: Service, workers: Workers) -> APIRouter:
    """Pictures in; rankings, labels and explanations out."""
    router = APIRouter(prefix="/api/scenes", tags=["scenes"])
    busy = (429, 503, 504)

    async def segment(key: str, wish: Wish, show: Callable[[Result], _T]) -> _T:
        scene, names = service.find(key), service.names(wish.names)
        return await workers.run(lambda: show(scene.segment(names, **wish.settings())))

    @router.post("", openapi_extra=_PICTURE, responses=problems.responses(400, 408, 413, 415, 422, *busy))
    async def encode(request: Request) -> SceneInfo:
        """Encode a picture. The same file again costs nothing as long as the scene is kept."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in MEDIA_TYPES.values():
            known = ", ".join(MEDIA_TYPES.values())
            raise Refusal(415, f"The content type is {kind[:80]!r}: send the picture itself as one of {known}.")
        body = await request.body()
        key = key_of(body)
        scene = service.kept(key)
        if scene is None:
            scene = await workers.run(partial(service.encode, body, key))
        height, width = scene.pixels.shape[1:]
        return SceneInfo(scene=key, width=width, height=height)

    failures = problems.responses(400, 404, 408, 413, 422, *busy)

    @router.post("/{key}/segment", responses=failures)
    async def areas(key: _Key, wish: Wish) -> Segmentation:
        """Which names were found, and how much of the picture each covers."""
        return await segment(key, wish, lambda result: Segmentation(**result.to_dict(), colours=result.colours))

    @router.post("/{key}/mask", response_class=Response, responses=_content("image/png") | failures)
    async def mask(key: _Key, wish: Wish) -> Response:
        """The labels as a palette PNG: the value of a pixel is the index of its name."""
        return await segment(key, wish, lambda result: _png(result.mask()))

    @router.post("/{key}/overlay", response_class=Response, responses=_content("image/png") | failures)
    async def overlay(key: _Key, wish: Wish) -> Response:
        """The picture tinted by class, with a legend."""
        return await segment(key, wish, lambda result: _png(result.overlay()))

    @router.post("/{key}/ranking", response_class=Response, responses=_content(wire.MEDIA_TYPE) | failures)
    async def ranking(key: _Key, wish: Names) -> Response:
        """What every rule needs of every pixel, so that labels can be decided elsewhere; docs/serve.md has the form."""
        scene, names = service.find(key), service.names(wish.names)
        content = await workers.run(partial(service.ranking, scene, names))
        return Response(content, media_type=wire.MEDIA_TYPE)

    @router.post("/{key}/explain", responses=failures)
    async def explain(key: _Key, pixel: Pixel) -> Explanation:
        """The two classes nearest to a pixel, and what wins under each rule."""
        scene, names = service.find(key), service.names(pixel.names)
        found = await workers.run(lambda: scene.explain(pixel.x, pixel.y, names))
        return Explanation(**found.to_dict())

    return router


def _model_routes(segmenter: Segmenter, limits: Limits, samples: Sequence[SamplePicture]) -> APIRouter:
    """What there is to work with."""
    router = APIRouter(prefix="/api", tags=["model"])
    vocabulary, own = segmenter.vocabulary, segmenter.model.recipe.decision

    @router.get("/model")
    async def model() -> ModelInfo:
        """The model's classes, its way to decide, and the limits of the service."""
        return ModelInfo(
            version=__version__,
            names=list(vocabulary.names),
            trained=list(vocabulary.seen),
            background=vocabulary.background,
            decision=Decision(rule=own.rule, sigma=own.sigma, gamma=own.gamma, squared=own.squared),
            limits=asdict(limits),
        )

    @router.get("/samples")
    async def list_samples() -> list[SampleInfo]:
        """Pictures to start with."""
        return [
            SampleInfo(title=one.title, url=f"/api/samples/{place}", names=one.names)
            for place, one in enumerate(samples)
        ]

    answers = _content(*MEDIA_TYPES.values()) | problems.responses(404, 422)

    @router.get("/samples/{place}", response_class=Response, responses=answers)
    async def sample(place: Annotated[int, Path(ge=0)]) -> Response:
        """A sample's picture file."""
        if place >= len(samples):
            raise Refusal(404, f"There are {len(samples)} samples, counted from 0.")
        return Response(samples[place].content, media_type=samples[place].media_type)

    return router


def _figures(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", response_class=Response, responses=_content("text/plain"))
    async def figures() -> Response:
        """Figures for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _png(picture: Image.Image) -> Response:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")


def _content(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of an answer that is not JSON."""
    return {200: {"content": {kind: {"schema": _BINARY} for kind in media_types}}}
