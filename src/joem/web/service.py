"""What the routes call: pictures in, scenes, rankings and labels out."""

import hashlib
from collections.abc import Sequence

from joem import decision
from joem.segmenter import Scene, Segmenter
from joem.semantics import alternatives
from joem.web import wire
from joem.web.cache import SceneCache
from joem.web.decoding import read_picture
from joem.web.failures import Refusal
from joem.web.limits import Limits
from joem.web.metrics import Metrics


class Service:
    """A segmenter with the scenes it encoded last. Everything here may be called from several threads."""

    def __init__(self, segmenter: Segmenter, limits: Limits, metrics: Metrics) -> None:
        self.segmenter = segmenter
        self.scenes = SceneCache(limits.cache_bytes)
        self._limits = limits
        self._metrics = metrics

    def encode(self, body: bytes, key: str) -> Scene:
        """Decode and encode a picture file, unless another request has done so while this one waited."""
        scene = self.kept(key)
        if scene is None:
            scene = self.segmenter.encode(read_picture(body, self._limits.pixels))
            self.scenes.put(key, scene)
            self._metrics.scenes.labels("encoded").inc()
        return scene

    def kept(self, key: str) -> Scene | None:
        """The scene of a picture that was sent before, if there still is one."""
        scene = self.scenes.get(key)
        if scene is not None:
            self._metrics.scenes.labels("kept").inc()
        return scene

    def find(self, key: str) -> Scene:
        """A scene by its key."""
        scene = self.scenes.get(key)
        if scene is None:
            raise Refusal(404, "This scene is not kept (any more): send the picture again to POST /api/scenes.")
        return scene

    def names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The class names that a request asks for, those of the model if None."""
        wanted = self.segmenter.vocabulary.names if names is None else tuple(name.strip() for name in names)
        for name in wanted:
            if len(name) > self._limits.name_length:
                start = f"{name[:20]!r}..."
                raise Refusal(422, f"names: {start} is longer than the {self._limits.name_length} characters allowed.")
        count = sum(len(alternatives(name)) for name in wanted)
        if count > self._limits.classes:
            message = f"names: {count} class names and alternatives, {self._limits.classes} are allowed: send fewer."
            raise Refusal(422, message)
        return wanted

    def ranking(self, scene: Scene, names: tuple[str, ...], background: bool, rule: str | None) -> bytes:
        """The ranking of every pixel and where it turns under a rule, the model's own if None; packed."""
        classes, ranking = scene.ranked(names, background)
        chosen = decision.get(rule or self.segmenter.model.recipe.decision.rule)
        return wire.pack(ranking, chosen, classes, self.segmenter.vocabulary.background)


def key_of(body: bytes) -> str:
    """The key of a picture file: the same file is the same scene."""
    return hashlib.sha256(body).hexdigest()
