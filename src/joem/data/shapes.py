"""The shapes and patterns of generated pictures, as functions of coordinates in a thing's own axes."""

from collections.abc import Callable
from math import cos, hypot, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

# Shapes: about the distance to the edge, negative inside, for a thing of outer radius 1 with y pointing down.


def _circle(x: Array, y: Array) -> Array:
    return np.hypot(x, y) - 0.92


def _square(x: Array, y: Array) -> Array:
    return np.maximum(np.abs(x), np.abs(y)) - 0.7


def _triangle(x: Array, y: Array) -> Array:
    return np.maximum(y, sqrt(3) / 2 * np.abs(x) - y / 2) - 0.5


def _star(x: Array, y: Array) -> Array:
    # Fold the plane into one tenth of a star, whose edge is the line from a tip to an inner corner.
    angle = np.abs((np.arctan2(x, -y) + pi / 5) % (2 * pi / 5) - pi / 5)
    radius = np.hypot(x, y)
    inner = 0.45
    run, rise = inner * cos(pi / 5) - 1, inner * sin(pi / 5)
    edge: Array = (rise * (radius * np.cos(angle) - 1) - run * radius * np.sin(angle)) / hypot(run, rise)
    return edge


def _heart(x: Array, y: Array) -> Array:
    # A square standing on its corner, and a disc on each of its upper sides.
    half = 0.52
    down = y - 0.13
    square: Array = (np.abs(x) + np.abs(down)) / sqrt(2) - half
    discs: Array = np.hypot(np.abs(x) - half / sqrt(2), down + half / sqrt(2)) - half
    return np.minimum(square, discs)


def _cross(x: Array, y: Array) -> Array:
    x, y = np.abs(x), np.abs(y)
    return np.maximum(np.maximum(x, y) - 0.92, np.minimum(x, y) - 0.28)


def _ring(x: Array, y: Array) -> Array:
    return np.abs(np.hypot(x, y) - 0.7) - 0.22


def _diamond(x: Array, y: Array) -> Array:
    return (np.abs(x) / 0.6 + np.abs(y) - 1) * 0.5


def _crescent(x: Array, y: Array) -> Array:
    bite: Array = np.hypot(x - 0.42, y) - 0.78
    return np.maximum(np.hypot(x, y) - 0.95, -bite)


SHAPES: dict[str, tuple[Callable[[Array, Array], Array], float]] = {
    # The largest angle keeps a square from becoming a diamond, and hearts upright.
    "circle": (_circle, pi),
    "square": (_square, 0.3),
    "triangle": (_triangle, 0.3),
    "star": (_star, 0.3),
    "heart": (_heart, 0.4),
    "cross": (_cross, 0.3),
    "ring": (_ring, pi),
    "diamond": (_diamond, 0.3),
    "crescent": (_crescent, pi),
}
"""Every shape with the largest angle that it is turned by."""

# Patterns: how much of the second tone, 0..1, in the thing's own axes.


def _striped(rng: np.random.Generator, x: Array, y: Array) -> Array:
    angle = rng.uniform(0, pi)
    return _soft(np.sin((cos(angle) * x + sin(angle) * y) * 11 + rng.uniform(0, 2 * pi)) - 0.2)


def _dotted(rng: np.random.Generator, x: Array, y: Array) -> Array:
    return _soft(np.sin(x * 9 + rng.uniform(0, 2 * pi)) * np.sin(y * 9 + rng.uniform(0, 2 * pi)) - 0.25)


def _checkered(rng: np.random.Generator, x: Array, y: Array) -> Array:
    return _soft(np.sin(x * 8 + rng.uniform(0, 2 * pi)) * np.sin(y * 8 + rng.uniform(0, 2 * pi)) * 3)


def _soft(wave: Array) -> Array:
    """1 where the wave is positive and 0 where it is negative, with a narrow ramp between."""
    return (0.5 + 3 * wave).clip(0, 1)


PATTERNS: dict[str, Callable[[np.random.Generator, Array, Array], Array]] = {
    "striped": _striped,
    "dotted": _dotted,
    "checkered": _checkered,
}
"""Every pattern."""
