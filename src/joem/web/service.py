"""What the routes call: pictures in, scenes, rankings and labels out."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from joem import decision
from joem.decision import Ranking
from joem.segmenter import Scene, Segmenter
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

    def names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The class names that a request asks for, those of the model if None."""
        wanted = self.segmenter.vocabulary.names if names is None else tuple(name.strip() for name in names)
        if len(wanted) > self._limits.classes:
            raise Refusal(422, f"names: {len(wanted)} class names, {self._limits.classes} are allowed: send fewer.")
        for name in wanted:
            if len(name) > self._limits.name_length:
                start = f"{name[:20]!r}..."
                raise Refusal(422, f"names: {start} is longer than the {self._limits.name_length} characters allowed.")
        return wanted

    def ranking(self, scene: Scene, names: tuple[str, ...]) -> bytes:
        """The ranking of every pixel, packed."""
        classes = _classes(self.segmenter, names)
        ranking = _ranking(scene, classes)
        return wire.pack(ranking, classes.names, classes.unseen, self.segmenter.vocabulary.background)

    def explain(self, scene: Scene, names: tuple[str, ...], x: int, y: int) -> dict[str, Any]:
        """The two classes nearest to a pixel, the ratio of their distances, and what wins under each rule."""
        height, width = scene.pixels.shape[1:]
        if x >= width or y >= height:
            raise Refusal(422, f"The picture has {width} x {height} pixels, there is none at x={x}, y={y}.")
        return _explain(scene, _classes(self.segmenter, names), x, y)


def key_of(body: bytes) -> str:
    """The key of a picture file: the same file is the same scene."""
    return hashlib.sha256(body).hexdigest()


def _classes(segmenter: Segmenter, names: tuple[str, ...]) -> Vocabulary:
    trained = set(segmenter.vocabulary.seen)
    return Vocabulary(names, tuple(name for name in names if name not in trained))


def _ranking(scene: Scene, classes: Vocabulary) -> Ranking:
    prototypes = scene.segmenter.model.prototypes(classes.names)
    return decision.rank(scene.features, prototypes, classes.unseen_indices, size=scene.pixels.shape[1:])


def _explain(scene: Scene, classes: Vocabulary, x: int, y: int) -> dict[str, Any]:
    height, width = scene.pixels.shape[1:]
    model = scene.segmenter.model
    # The middle of the pixel where grid_sample has the picture from -1 to 1.
    place = scene.features.new_tensor([[[[(2 * x + 1) / width - 1, (2 * y + 1) / height - 1]]]])
    vector = F.grid_sample(scene.features, place, padding_mode="border", align_corners=False)
    prototypes = model.prototypes(classes.names)
    distances = decision.distances(vector, prototypes).flatten().tolist()
    near = [
        {"name": name, "distance": distance, "trained": name not in classes.unseen}
        for name, distance in sorted(zip(classes.names, distances, strict=True), key=lambda pair: pair[1])[:2]
    ]
    first, second = near[0], near[1] if len(near) > 1 else None
    ranking, own = decision.rank(vector, prototypes, classes.unseen_indices), model.recipe.decision
    winners = {
        rule: classes.names[int(decision.decide(ranking, rule, gamma=own.gamma, sigma=own.sigma, squared=own.squared))]
        for rule in decision.RULES
    }
    ratio = first["distance"] / second["distance"] if second and second["distance"] else None
    return {"x": x, "y": y, "first": first, "second": second, "ratio": ratio, "winners": winners}
