"""Encoded pictures, kept as long as they fit."""

from collections import OrderedDict
from threading import Lock

from joem.scene import Scene


class SceneCache:
    """The scenes used last, by their keys.

    Args:
        limit: bytes to stay within; the newest scene is kept even if it alone is larger, so that it can be used.
        prototypes: how many a scene can hold at most, those of the names that it was last asked for.
    """

    def __init__(self, limit: int, prototypes: int) -> None:
        self._limit, self._prototypes = limit, prototypes
        self._scenes: OrderedDict[str, Scene] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._scenes)

    def get(self, key: str) -> Scene | None:
        """The scene, which is now the one used last."""
        with self._lock:
            if key in self._scenes:
                self._scenes.move_to_end(key)
            return self._scenes.get(key)

    def put(self, key: str, scene: Scene) -> None:
        """Keep a scene, and let go of those used longest ago."""
        with self._lock:
            self._remove(key)
            self._scenes[key] = scene
            self.bytes += bytes_of(scene, self._prototypes)
            while self.bytes > self._limit and len(self._scenes) > 1:
                self._remove(next(iter(self._scenes)))

    def _remove(self, key: str) -> None:
        scene = self._scenes.pop(key, None)
        if scene is not None:
            self.bytes -= bytes_of(scene, self._prototypes)


def bytes_of(scene: Scene, prototypes: int) -> int:
    """The most memory that a scene can come to hold: what it has from the start, and what its last ranking leaves."""
    height, width = scene.size
    kept = sum(tensor.untyped_storage().nbytes() for tensor in (scene.features, scene.pixels))
    by_names = prototypes * scene.features.shape[1] * scene.features.element_size()
    # A pixel's norm (4 bytes), and its ranking: two labels (8 each) and three distances (4 each).
    return kept + by_names + height * width * (4 + 28)
