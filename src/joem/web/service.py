"""What the routes call: pictures in, scenes, rankings and labels out."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from joem import decision
from joem.segmenter import Result, Scene, Segmenter
from joem.vocabulary import Vocabulary
from joem.web import wire
from joem.web.cache import SceneCache
from joem.web.limits import Limits
from joem.web.metrics import Metrics
from joem.web.pictures import read_picture
from joem.web.problems import Refusal


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

    def names(self, names: Sequence[str] | None) -> Vocabulary:
        """The classes that a request asks for, those of the model if None; classes without masks are unseen."""
        own = self.segmenter.vocabulary
        wanted = own.names if names is None else tuple(name.strip() for name in names)
        if len(wanted) > self._limits.classes:
            raise Refusal(422, f"names: {len(wanted)} class names, {self._limits.classes} are allowed: send fewer.")
        for name in wanted:
            if len(name) > self._limits.name_length:
                start = f"{name[:20]!r}..."
                raise Refusal(422, f"names: {start} is longer than the {self._limits.name_length} characters allowed.")
        trained = set(own.seen)
        return Vocabulary(wanted, tuple(name for name in wanted if name not in trained))

    def ranking(self, scene: Scene, classes: Vocabulary) -> bytes:
        """The ranking of every pixel, packed."""
        own = self.segmenter.vocabulary
        return wire.pack(_ranking(scene, classes), classes.names, classes.unseen, own.background)

    def explain(self, scene: Scene, classes: Vocabulary, x: int, y: int) -> list[dict[str, Any]]:
        """The classes of one pixel with their distances, nearest first."""
        height, width = scene.pixels.shape[1:]
        if x >= width or y >= height:
            raise Refusal(422, f"The picture has {width} x {height} pixels, there is none at x={x}, y={y}.")
        found = zip(classes.names, _distances(scene, classes, x, y).tolist(), strict=True)
        unseen = set(classes.unseen)
        ordered = sorted(found, key=lambda pair: pair[1])
        return [{"name": name, "distance": distance, "unseen": name in unseen} for name, distance in ordered]

    def segment(self, scene: Scene, classes: Vocabulary, wish: dict[str, Any]) -> Result:
        """The labels by a rule; `wish` holds rule, sigma and gamma."""
        return scene.segment(classes.names, **wish)


def key_of(body: bytes) -> str:
    """The key of a picture file: the same file is the same scene."""
    return hashlib.sha256(body).hexdigest()


def _ranking(scene: Scene, classes: Vocabulary) -> decision.Ranking:
    prototypes = scene.segmenter.model.prototypes(classes.names)
    return decision.rank(scene.features, prototypes, classes.unseen_indices, size=scene.pixels.shape[1:])


def _distances(scene: Scene, classes: Vocabulary, x: int, y: int) -> torch.Tensor:
    """Distances (K,) of one pixel."""
    height, width = scene.pixels.shape[1:]
    # The middle of the pixel where grid_sample has the picture from -1 to 1.
    place = torch.tensor([[[[(2 * x + 1) / width - 1, (2 * y + 1) / height - 1]]]])
    vector = F.grid_sample(scene.features, place.to(scene.features), padding_mode="border", align_corners=False)
    return decision.distances(vector, scene.segmenter.model.prototypes(classes.names)).flatten()
