"""What the routes call: pictures in, scenes, rankings and labels out."""

import hmac
import secrets
from dataclasses import replace

from joem import bands, decision
from joem.examples import Examples
from joem.scene import Scene
from joem.segmenter import Segmenter
from joem.semantics import alternatives
from joem.vocabulary import colours
from joem.web import wire
from joem.web.cache import SceneCache
from joem.web.decoding import read_mask, read_picture
from joem.web.failures import Refusal
from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.models import Models
from joem.web.png import palette_png
from joem.web.schemas import ExampleRequest, NamesRequest, RankingRequest, SizedRequest
from joem.web.shared_pictures import SentPicture, SharedPictures


class Service:
    """Models with the scenes they encoded last. Everything here may be called from several threads.

    Args:
        models: the models.
        limits: bounds of what a request may cost.
        metrics: where scenes are counted.
        shared: the pictures that this and other processes of the service were sent; None if it is the only one.
    """

    def __init__(self, models: Models, limits: Limits, metrics: Metrics, shared: SharedPictures | None = None) -> None:
        self._models = models
        self.scenes = SceneCache(limits.cache_bytes, limits.classes)
        self._limits = limits
        self._metrics = metrics
        self._shared = shared
        self._secret = secrets.token_bytes(32) if shared is None else shared.secret

    def key(self, body: bytes, client: str, model: str | None = None) -> str:
        """The key of a picture file: the same file from the same client for the same model is the same scene.

        Nobody can compute the key of somebody else's scene, nor learn by sending a file whether somebody else did.
        """
        name = self._models.default.name if model is None else model
        digest = hmac.new(self._secret, f"{client}\0{name}\0".encode(), "sha256")
        digest.update(body)
        return digest.hexdigest()

    def encode(self, body: bytes, key: str, model: str | None = None) -> Scene:
        """Decode a picture file and encode it by a model, unless another request has done so while this one waited."""
        scene = self.kept(key)
        if scene is None:
            scene = self._encode(body, key, model)
            if self._shared is not None:
                self._shared.put(key, SentPicture(body, model))
        return scene

    def _encode(self, body: bytes, key: str, model: str | None) -> Scene:
        segmenter = self._models.get(model).segmenter
        scene = segmenter.encode(read_picture(body, self._limits.pixels))
        self.scenes.put(key, scene)
        self._metrics.scenes.labels("encoded").inc()
        return scene

    def kept(self, key: str) -> Scene | None:
        """The scene of a picture that was sent before, if there still is one."""
        scene = self.scenes.get(key)
        if scene is not None:
            self._metrics.scenes.labels("kept").inc()
        return scene

    def is_quick(self, key: str) -> bool:
        """Whether `find` answers at once."""
        return self._shared is None or self.scenes.get(key) is not None

    def find(self, key: str) -> Scene:
        """A scene by its key; one that another process encoded, or that was let go, is encoded again."""
        scene = self.scenes.get(key)
        sent = self._shared.get(key) if scene is None and self._shared is not None else None
        if sent is not None:
            return self._encode(sent.body, key, sent.model)
        if scene is None:
            raise Refusal(404, "This scene is not kept (any more): send the picture again to POST /api/scenes.")
        return scene

    def names(self, scene: Scene, sent: NamesRequest) -> tuple[str, ...]:
        """The class names that a request asks for, those of the model if it has none; those of examples too."""
        listed = scene.segmenter.vocabulary.names if sent.names is None else sent.names
        wanted = tuple(dict.fromkeys(name.strip() for name in (*listed, *sent.examples, *sent.points)))
        for name in wanted:
            if len(name) > self._limits.name_length:
                start = f"{name[:20]!r}..."
                raise Refusal(422, f"names: {start} is longer than the {self._limits.name_length} characters allowed.")
        count = sum(len(alternatives(name)) for name in wanted)
        count += sum(map(len, sent.points.values())) + sum(map(len, sent.examples.values()))
        if count > self._limits.classes:
            allowed = f"{self._limits.classes} are allowed: send fewer."
            raise Refusal(422, f"names: {count} class names, alternatives and examples, {allowed}")
        return wanted

    def taught(self, key: str, sent: NamesRequest) -> Scene:
        """A scene that knows the classes of a request's examples, on whatever pictures they are."""
        scene = self.find(key)
        if not sent.examples:
            return scene
        own = scene.segmenter
        shown = [self._example(name, each, own) for name, listed in sent.examples.items() for each in listed]
        return replace(scene, segmenter=own.knowing(*shown))

    def _example(self, name: str, sent: ExampleRequest, segmenter: Segmenter) -> Examples:
        scene = self.find(sent.scene)
        if scene.segmenter is not segmenter:
            raise Refusal(422, "examples: the scene of an example was encoded by another model: send it for this one.")
        if sent.mask is not None:
            return scene.example(name, read_mask(sent.mask, self._limits.pixels))
        return scene.example(name, sent.points or ())

    def ranking(self, scene: Scene, names: tuple[str, ...], sent: RankingRequest) -> bytes:
        """The ranking of every pixel and where it turns under a rule, the model's own if None; packed."""
        classes, ranking = scene.ranked(names, sent.background, points=sent.points)
        chosen = decision.get(sent.rule or scene.segmenter.model.recipe.decision.rule)
        taken = (ranking.seen, ranking.unseen) if sent.scores else ()
        scores = [scene.scores_of(classes, ranking, labels) for labels in taken]
        return wire.pack(ranking, chosen, classes, scene.segmenter.vocabulary.background, scores)

    def sized_mask(self, scene: Scene, names: tuple[str, ...], sent: SizedRequest) -> bytes:
        """A palette PNG of another size than the scene's, decided for every one of its pixels."""
        assert sent.size is not None
        height, width = sent.size
        if height * width > self._limits.mask_pixels:
            allowed = f"{self._limits.mask_pixels:,} are allowed: ask for less, or start with --limits.mask_pixels."
            raise Refusal(413, f"A mask of {width} x {height} has {width * height:,} pixels, {allowed}")
        options = sent.options()
        if options.pop("refine"):
            raise Refusal(422, "refine: outlines are refined at the picture's own size: leave width and height out.")
        found = bands.segment(scene, sent.size, names, sent.rule, **options)
        return palette_png(sent.size, colours(found.names, found.rest), found.rows)
