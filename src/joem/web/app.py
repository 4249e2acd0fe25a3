"""The REST API and the page."""

import io
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response
from fastapi.responses import FileResponse
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from PIL import Image
from prometheus_client import CONTENT_TYPE_LATEST

from joem import __version__
from joem.decision import RULES, parameters
from joem.result import Explanation, Result
from joem.segmenter import Segmenter
from joem.web import failures, schemas, wire
from joem.web.access import Access, client_of
from joem.web.decoding import MEDIA_TYPES
from joem.web.failures import Refusal
from joem.web.gallery import SamplePicture
from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.middleware import Admission, RequestBounds
from joem.web.service import Service
from joem.web.work import Workers

_PAGE = str(files("joem.web") / "page")
_T = TypeVar("_T")


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
    workers, admission = Workers(limits), Admission(limits)

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
        responses=failures.responses(421),
    )
    access = Access(hosts, token)
    app.add_middleware(RequestBounds, access=access, admission=admission, limits=limits, metrics=metrics)
    failures.install(app)
    # For the description only: `Access` checks the token before a body is read.
    guarded = [Depends(HTTPBearer(auto_error=False))] if token else []
    common = failures.responses(401) if token else {}
    routers = (
        _scene_routes(service, workers),
        _label_routes(service, workers),
        _model_routes(segmenter, limits, samples),
        _figures(metrics, service, admission),
    )
    for router in routers:
        app.include_router(router, dependencies=guarded, responses=common)
    app.include_router(_open_routes())
    app.mount("/page", StaticFiles(directory=_PAGE))
    return app


def _open_routes() -> APIRouter:
    """What needs no token."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Answers as long as the service lives, whatever it is working on."""
        return {"status": "ok"}

    @router.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(f"{_PAGE}/index.html")

    return router


_BINARY = {"type": "string", "format": "binary"}
_PICTURE = {
    "requestBody": {
        "required": True,
        "description": "the picture file itself",
        "content": {kind: {"schema": _BINARY} for kind in MEDIA_TYPES.values()},
    }
}
_Key = Annotated[str, Path(description="the key that POST /api/scenes answered")]


_BUSY = (429, 503, 504)
_REFUSALS = failures.responses(400, 404, 408, 413, 422, *_BUSY)


def _scene_routes(service: Service, workers: Workers) -> APIRouter:
    """Pictures in; rankings and explanations out."""
    router = APIRouter(prefix="/api/scenes", tags=["scenes"])
    RuleRequest = Annotated[schemas.RuleRequest, Depends(_body_as(schemas.rule_request()))]

    @router.post("", openapi_extra=_PICTURE, responses=failures.responses(400, 408, 413, 415, 422, *_BUSY))
    async def encode(request: Request) -> schemas.SceneInfo:
        """Encode a picture. The same file again costs nothing as long as the scene is kept."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in MEDIA_TYPES.values():
            known = ", ".join(MEDIA_TYPES.values())
            raise Refusal(415, f"The content type is {kind[:80]!r}: send the picture itself as one of {known}.")
        body = await request.body()
        key = service.key(body, client_of(request.scope))
        scene = service.kept(key)
        if scene is None:
            scene = await workers.run(partial(service.encode, body, key))
        height, width = scene.pixels.shape[1:]
        return schemas.SceneInfo(scene=key, width=width, height=height)

    @router.post("/{key}/ranking", response_class=Response, responses=_content(wire.MEDIA_TYPE) | _REFUSALS)
    async def ranking(key: _Key, sent: RuleRequest) -> Response:
        """What decides every pixel by any value of a rule, to do so elsewhere; docs/serve.md has the form."""
        service.find(key)
        names = service.names(sent)
        content = await workers.run(lambda: service.ranking(service.taught(key, sent), names, sent))
        return Response(content, media_type=wire.MEDIA_TYPE)

    @router.post("/{key}/explain", responses=_REFUSALS)
    async def explain(key: _Key, pixel: schemas.PixelRequest) -> schemas.ExplanationInfo:
        """The two classes nearest to a pixel, and what wins under each rule."""
        service.find(key)
        names = service.names(pixel)

        def work() -> Explanation:
            scene = service.taught(key, pixel)
            return scene.explain(pixel.x, pixel.y, names, background=pixel.background, points=pixel.points)

        found = await workers.run(work)
        return schemas.ExplanationInfo(**found.to_dict())

    return router


def _label_routes(service: Service, workers: Workers) -> APIRouter:
    """Labels of pictures that were sent, in several forms."""
    router = APIRouter(prefix="/api/scenes/{key}", tags=["scenes"])
    DecisionRequest = Annotated[schemas.DecisionRequest, Depends(_body_as(schemas.decision_request()))]

    async def segment(key: str, sent: schemas.DecisionRequest, show: Callable[[Result], _T]) -> _T:
        service.find(key)  # one that is not kept is told at once
        names = service.names(sent)
        return await workers.run(lambda: show(service.taught(key, sent).segment(names, sent.rule, **sent.options())))

    @router.post("/segment", responses=_REFUSALS)
    async def areas(key: _Key, sent: DecisionRequest) -> schemas.Segmentation:
        """Which names were found, and how much of the picture each covers."""
        return await segment(key, sent, lambda result: schemas.Segmentation(**result.to_dict(), colours=result.colours))

    @router.post("/mask", response_class=Response, responses=_content("image/png") | _REFUSALS)
    async def mask(key: _Key, sent: DecisionRequest) -> Response:
        """The labels as a palette PNG: the value of a pixel is the index of its name."""
        return await segment(key, sent, lambda result: _png(result.mask()))

    @router.post("/overlay", response_class=Response, responses=_content("image/png") | _REFUSALS)
    async def overlay(key: _Key, sent: DecisionRequest) -> Response:
        """The picture tinted by class, with a legend."""
        return await segment(key, sent, lambda result: _png(result.overlay()))

    return router


def _body_as(kind: type[_T]) -> Callable[..., _T]:
    """A dependency that reads the body of a request as a class made at run time."""

    def read(sent: _T) -> _T:
        return sent

    read.__annotations__["sent"] = kind
    return read


def _model_routes(segmenter: Segmenter, limits: Limits, samples: Sequence[SamplePicture]) -> APIRouter:
    """What there is to work with."""
    router = APIRouter(prefix="/api", tags=["model"])
    vocabulary, own = segmenter.vocabulary, segmenter.model.recipe.decision
    rules = [schemas.RuleInfo.model_validate(rule) for rule in RULES.values()]
    values = {name: own.values.get(name, parameter.neutral) for name, parameter in parameters().items()}

    @router.get("/model")
    async def model() -> schemas.ModelInfo:
        """The model's classes, its way to decide and the others there are, and the limits of the service."""
        return schemas.ModelInfo(
            version=__version__,
            names=list(vocabulary.names),
            trained=list(vocabulary.seen),
            background=vocabulary.background,
            rules=rules,
            decision=schemas.DecisionInfo(rule=own.rule, values=values),
            limits=asdict(limits),
        )

    @router.get("/samples")
    async def list_samples() -> list[schemas.SampleInfo]:
        """Pictures to start with."""
        return [
            schemas.SampleInfo(title=one.title, url=f"/api/samples/{index}", names=one.names)
            for index, one in enumerate(samples)
        ]

    answers = _content(*MEDIA_TYPES.values()) | failures.responses(404, 422)

    @router.get("/samples/{index}", response_class=Response, responses=answers)
    async def sample(index: Annotated[int, Path(ge=0)]) -> Response:
        """A sample's picture file."""
        if index >= len(samples):
            raise Refusal(404, f"There are {len(samples)} samples, counted from 0.")
        return Response(samples[index].content, media_type=samples[index].media_type)

    return router


def _figures(metrics: Metrics, service: Service, admission: Admission) -> APIRouter:
    router = APIRouter()
    metrics.watch("joem_cache_bytes", "Memory of the encoded pictures kept", lambda: service.scenes.bytes)
    metrics.watch("joem_cache_scenes", "Encoded pictures kept", lambda: len(service.scenes))
    metrics.watch("joem_requests", "Requests with a body under way", lambda: admission.count)

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
