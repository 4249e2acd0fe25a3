"""The REST API and the page."""

import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from PIL import Image
from prometheus_client import CONTENT_TYPE_LATEST

from joem import __version__, exchange
from joem.result import Explanation, Result
from joem.scene import Scene
from joem.segmenter import Segmenter
from joem.web import failures, schemas, wire
from joem.web.access import Access, client_of
from joem.web.decoding import MEDIA_TYPES
from joem.web.failures import Refusal
from joem.web.gallery import SamplePicture, as_png
from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.middleware import Admission, RequestBounds
from joem.web.models import Models, ServedModel, model_info
from joem.web.service import Service
from joem.web.shared_pictures import SharedPictures
from joem.web.work import Workers

_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_T = TypeVar("_T")


def create_app(
    segmenter: Segmenter,
    limits: Limits | None = None,
    token: str | None = None,
    samples: Sequence[SamplePicture] = (),
    hosts: Sequence[str] = (),
    name: str = "default",
    others: Mapping[str, Callable[[], ServedModel]] | None = None,
    shared: SharedPictures | None = None,
) -> FastAPI:
    """The service on a model.

    Args:
        segmenter: the model.
        limits: bounds of what a request may cost; the default ones if None.
        token: the bearer token that every call must carry, but for /health, /openapi.json and the page's own files.
        samples: pictures that the page offers.
        hosts: names that requests may be sent to besides localhost and IP addresses.
        name: what the model is called.
        others: further models to choose from, by name; each is loaded when it is first asked for.
        shared: what this process shares with others that serve the same models; None if it is the only one.
    """
    limits = limits or Limits()
    metrics = Metrics()
    models = Models(ServedModel(name, segmenter, samples), others or {})
    service = Service(models, limits, metrics, shared)
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
        _picture_routes(workers, limits),
        _model_routes(models, workers, limits),
        _figures(metrics, service, admission),
    )
    for router in routers:
        app.include_router(router, dependencies=guarded, responses=common)
    app.include_router(_open_routes())
    return app


def _open_routes() -> APIRouter:
    """What needs no token."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Answers as long as the service lives, whatever it is working on."""
        return {"status": "ok"}

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return await page_file("index.html")

    # From memory: the page has many small files, and threads to read each would take longer than all the rest.
    content = {file.name: file.read_bytes() for file in files("joem.web").joinpath("page").iterdir() if file.is_file()}

    @router.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in content:
            raise Refusal(404, "The page has no such file.")
        return Response(content[name], media_type=_KINDS.get(name.rpartition(".")[2]))

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
_ModelName = Annotated[
    str | None, Query(max_length=255, description="a name that GET /api/models answered; the default one if absent")
]


_BUSY = (429, 503, 504)
_REFUSALS = failures.responses(400, 404, 408, 413, 422, *_BUSY)


def _scene_routes(service: Service, workers: Workers) -> APIRouter:
    """Pictures in; rankings and explanations out."""
    router = APIRouter(prefix="/api/scenes", tags=["scenes"])
    RankingRequest = Annotated[schemas.RankingRequest, _body(schemas.RankingRequest)]

    @router.post("", openapi_extra=_PICTURE, responses=failures.responses(400, 404, 408, 413, 415, 422, *_BUSY))
    async def encode(request: Request, model: _ModelName = None) -> schemas.SceneInfo:
        """Encode a picture by a model. The same file again costs nothing as long as the scene is kept."""
        body = await _picture_file(request)
        key = service.key(body, client_of(request.scope), model)
        scene = service.kept(key)
        if scene is None:
            scene = await workers.run(partial(service.encode, body, key, model))
        height, width = scene.pixels.shape[1:]
        return schemas.SceneInfo(scene=key, width=width, height=height)

    @router.post("/{key}/ranking", response_class=Response, responses=_content(wire.MEDIA_TYPE) | _REFUSALS)
    async def ranking(key: _Key, sent: RankingRequest) -> Response:
        """What decides every pixel by any value of a rule, to do so elsewhere; docs/serve.md has the form."""
        names = service.names(await _found(service, workers, key), sent)
        content = await workers.run(lambda: service.ranking(service.taught(key, sent), names, sent))
        return Response(content, media_type=wire.MEDIA_TYPE)

    @router.post("/{key}/explain", responses=_REFUSALS)
    async def explain(key: _Key, pixel: schemas.PixelRequest) -> schemas.ExplanationInfo:
        """The two classes nearest to a pixel, and what wins under each rule."""
        names = service.names(await _found(service, workers, key), pixel)

        def work() -> Explanation:
            scene = service.taught(key, pixel)
            return scene.explain(pixel.x, pixel.y, names, background=pixel.background, points=pixel.points)

        found = await workers.run(work)
        return schemas.ExplanationInfo(**found.to_dict())

    return router


def _label_routes(service: Service, workers: Workers) -> APIRouter:
    """Labels of pictures that were sent, in several forms."""
    router = APIRouter(prefix="/api/scenes/{key}", tags=["scenes"])
    DecisionRequest = Annotated[schemas.DecisionRequest, _body(schemas.DecisionRequest)]
    SizedRequest = Annotated[schemas.SizedRequest, _body(schemas.SizedRequest)]
    CocoRequest = Annotated[schemas.CocoRequest, _body(schemas.CocoRequest)]

    async def segment(key: str, sent: schemas.DecisionRequest, show: Callable[[Result], _T]) -> _T:
        names = service.names(await _found(service, workers, key), sent)  # one that is not kept is told at once
        return await workers.run(lambda: show(service.taught(key, sent).segment(names, sent.rule, **sent.options())))

    @router.post("/segment", responses=_REFUSALS)
    async def areas(key: _Key, sent: DecisionRequest) -> schemas.Segmentation:
        """Which names were found, and how much of the picture each covers."""
        return await segment(key, sent, lambda result: schemas.Segmentation(**result.to_dict(), colours=result.colours))

    @router.post("/mask", response_class=Response, responses=_content("image/png") | _REFUSALS)
    async def mask(key: _Key, sent: SizedRequest) -> Response:
        """The labels as a palette PNG: the value of a pixel is the index of its name.

        With width and height, as large as the photo that the picture was reduced from: decided anew for every pixel.
        """
        if sent.size is None:
            return await segment(key, sent, lambda result: _png(result.mask()))
        names = service.names(await _found(service, workers, key), sent)
        content = await workers.run(lambda: service.sized_mask(service.taught(key, sent), names, sent))
        return Response(content, media_type="image/png")

    @router.post("/coco", responses=_REFUSALS)
    async def coco(key: _Key, sent: CocoRequest) -> dict[str, Any]:
        """A COCO data set with a polygon for every connected region, on a picture of the width and height given."""
        size = sent.size
        made = await segment(key, sent, lambda result: result.to_coco(file_name=sent.file_name))
        return made if size is None else exchange.resized(made, size)

    @router.post("/overlay", response_class=Response, responses=_content("image/png") | _REFUSALS)
    async def overlay(key: _Key, sent: DecisionRequest) -> Response:
        """The picture tinted by class, with a legend."""
        return await segment(key, sent, lambda result: _png(result.overlay()))

    return router


async def _found(service: Service, workers: Workers, key: str) -> Scene:
    """A scene by its key, in a thread where it is to be encoded again."""
    return service.find(key) if service.is_quick(key) else await workers.run(partial(service.find, key))


async def _picture_file(request: Request) -> bytes:
    """The body, if its header says that it is a picture file."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in MEDIA_TYPES.values():
        known = ", ".join(MEDIA_TYPES.values())
        raise Refusal(415, f"The content type is {kind[:80]!r}: send the picture itself as one of {known}.")
    return await request.body()


def _body(kind: type[schemas.RuleRequest]) -> Any:
    """A dependency that reads the body of a request as this kind with the rules there are."""

    def read(sent: schemas.RuleRequest) -> schemas.RuleRequest:
        return sent

    read.__annotations__["sent"] = schemas.with_rules(kind)
    return Depends(read)


def _picture_routes(workers: Workers, limits: Limits) -> APIRouter:
    """Pictures for browsers that cannot read them themselves."""
    router = APIRouter(prefix="/api/pictures", tags=["pictures"])
    answers = _content("image/png") | failures.responses(400, 408, 413, 415, *_BUSY)

    @router.post("", openapi_extra=_PICTURE, response_class=Response, responses=answers)
    async def convert(request: Request) -> Response:
        """A picture file, such as TIFF, as a PNG file of 8 bits per channel, turned upright."""
        body = await _picture_file(request)
        content = await workers.run(lambda: as_png(body, limits.pixels))
        return Response(content, media_type="image/png")

    return router


def _model_routes(models: Models, workers: Workers, limits: Limits) -> APIRouter:
    """What there is to work with."""
    router = APIRouter(prefix="/api", tags=["model"])

    async def get(name: str | None) -> ServedModel:
        return models.get(name) if models.is_ready(name) else await workers.run(lambda: models.get(name))

    @router.get("/models")
    async def list_models() -> list[schemas.ModelChoice]:
        """The models to choose from."""
        default = models.default.name
        return [schemas.ModelChoice(name=name, is_default=name == default) for name in models.names]

    @router.get("/model", responses=failures.responses(404, 422, 503, 504))
    async def model(model: _ModelName = None) -> schemas.ModelInfo:
        """The model's classes, its way to decide and the others there are, and the limits of the service."""
        return model_info(await get(model), limits)

    @router.get("/samples", responses=failures.responses(404, 422, 503, 504))
    async def list_samples(model: _ModelName = None) -> list[schemas.SampleInfo]:
        """Pictures to start with."""
        query = "" if model is None else f"?model={quote(model)}"
        return [
            schemas.SampleInfo(
                title=one.title,
                url=f"/api/samples/{index}{query}",
                names=one.names,
                about=one.about,
                points={name: list(points) for name, points in (one.points or {}).items()},
            )
            for index, one in enumerate((await get(model)).samples)
        ]

    answers = _content(*MEDIA_TYPES.values()) | failures.responses(404, 422, 503, 504)

    @router.get("/samples/{index}", response_class=Response, responses=answers)
    async def sample(index: Annotated[int, Path(ge=0)], model: _ModelName = None) -> Response:
        """A sample's picture file."""
        samples = (await get(model)).samples
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
