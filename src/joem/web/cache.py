"""Encoded pictures, kept as long as they fit."""

from collections import OrderedDict
from threading import Lock

from joem.segmenter import Scene


class SceneCache:
    """The scenes used last, by the hash of their picture's file.

    Args:
        limit: bytes to stay within; the newest scene is kept even if it alone is larger, so that it can be used.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
            self.bytes += _bytes(scene)
            while self.bytes > self._limit and len(self._scenes) > 1:
                self._remove(next(iter(self._scenes)))

    def _remove(self, key: str) -> None:
        scene = self._scenes.pop(key, None)
        if scene is not None:
            self.bytes -= _bytes(scene)


def _bytes(scene: Scene) -> int:
    # Beside a pixel's 3 bytes a scene keeps its norm (4) and its last ranking: two labels (8) and three distances (4).
    return scene.features.nbytes + scene.pixels.nbytes // 3 * (3 + 28 + 4)
