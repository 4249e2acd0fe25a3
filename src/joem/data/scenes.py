"""Generated pictures of coloured shapes: a zero-shot problem that needs no download.

A class is a phrase of real words, an optional pattern, an optional colour and a shape: "red circle", "striped
green star". Held-out classes recombine words that training classes use, so their word vectors tell how they
look.
"""

import colorsys
from collections.abc import Iterable
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joem.data.dataset import Sample
from joem.data.shapes import PATTERNS, SHAPES, Array
from joem.errors import BadUsage, choose
from joem.vocabulary import Colour, Vocabulary

BACKGROUND = "background"

COLOURS = {
    "red": (0.86, 0.08, 0.10),
    "green": (0.10, 0.62, 0.18),
    "blue": (0.10, 0.25, 0.88),
    "yellow": (0.97, 0.87, 0.10),
    "purple": (0.52, 0.12, 0.72),
    "orange": (0.98, 0.50, 0.04),
    "pink": (0.99, 0.58, 0.76),
    "brown": (0.42, 0.23, 0.09),
    "white": (0.97, 0.97, 0.97),
    "black": (0.05, 0.05, 0.05),
}
"""RGB in 0..1 of every colour word."""


def tint(name: str) -> Colour | None:
    """The colour, 0 to 255, of the first colour word in a name, so that no tint contradicts it; None without one.

    >>> tint("striped red circle"), tint("circle")
    ((219, 20, 26), None)
    """
    red, green, blue = next((COLOURS[word] for word in name.split() if word in COLOURS), (-1.0, 0.0, 0.0))
    return None if red < 0 else (round(255 * red), round(255 * green), round(255 * blue))


_DEFAULT_COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
_DEFAULT_SHAPES = ("circle", "triangle", "cross", "ring")
_PATTERNED = (
    "striped red circle",
    "striped green ring",
    "striped blue cross",
    "striped yellow triangle",
    "striped purple circle",
    "striped orange ring",
)

CLASSES = (*(f"{colour} {shape}" for colour in _DEFAULT_COLOURS for shape in _DEFAULT_SHAPES), *_PATTERNED)
"""The default classes, without the background."""

UNSEEN = (
    "red triangle",
    "red cross",
    "green circle",
    "green triangle",
    "blue circle",
    "blue ring",
    "yellow cross",
    "yellow ring",
    "purple triangle",
    "orange circle",
    "striped blue cross",
    "striped purple circle",
)
"""The default classes without training masks; each of their words is in several seen classes."""

NEW_CLASS = "striped blue circle"
"""A class outside the vocabulary, made of seen words: add its name to a trained model."""

SPLITS = ("train", "val", "demo")
"""train draws seen classes only, val draws all, and every picture of demo shows NEW_CLASS as well."""


def vocabulary() -> Vocabulary:
    """The default classes with the default ones held out.

    >>> v = vocabulary()
    >>> len(v), len(v.unseen), v.names[:3]
    (31, 12, ('background', 'red circle', 'red triangle'))
    """
    return Vocabulary((BACKGROUND, *CLASSES), unseen=UNSEEN, background=BACKGROUND)


def open_split(
    split: str, count: int = 100, *, size: int = 128, seed: int = 0, unseen: Iterable[str] = UNSEEN
) -> "Scenes":
    """The generated pictures of a split; no two splits share a picture.

    Args:
        split: train (without the unseen classes), val (all classes), or demo (NEW_CLASS in every picture).
        count: how many pictures.
        size: side of a picture in pixels.
        seed: another seed, other pictures.
        unseen: the default classes that training pictures do not show.

    >>> open_split("demo", 3).names[-1]
    'striped blue circle'
    """
    own_seed = len(SPLITS) * seed + SPLITS.index(choose("split of scenes", split, SPLITS))
    if split == "demo":
        return Scenes(count, size, own_seed, classes=(*CLASSES, NEW_CLASS), include=NEW_CLASS)
    only = vocabulary().with_unseen(unseen).seen if split == "train" else None
    return Scenes(count, size, own_seed, only=only)


class Scenes:
    """Generated pictures, each the same for the same (seed, index), with labels exact to the pixel.

    Args:
        count: how many pictures.
        size: side of a picture in pixels.
        seed: another seed, other pictures; give training and test sets different ones.
        classes: phrases `[pattern] [colour] shape`; label i + 1 is `classes[i]`, label 0 is the background.
        only: the classes that may be drawn (all if None), e.g. the seen ones for a training set.
        include: a class that every picture shows.

    >>> scenes = Scenes(2, size=64)
    >>> sample = scenes[0]
    >>> sample.image.shape, sample.labels.shape, sample.name
    (torch.Size([3, 64, 64]), torch.Size([64, 64]), 'scene-0-0000')
    """

    background = BACKGROUND

    def __init__(
        self,
        count: int,
        size: int = 128,
        seed: int = 0,
        *,
        classes: Iterable[str] = CLASSES,
        only: Iterable[str] | None = None,
        include: str | None = None,
    ) -> None:
        if count < 1 or size < 32 or seed < 0:
            got = f"got count={count}, size={size}, seed={seed}"
            raise BadUsage(f"Scenes need count >= 1, size >= 32 and seed >= 0, {got}.")
        self.names = Vocabulary((BACKGROUND, *classes), background=BACKGROUND).names
        self.count, self.size, self.seed = count, size, seed
        self._looks = {label: _parse(name) for label, name in enumerate(self.names) if label > 0}
        self._drawn = self._labels_of(self.names if only is None else only)
        self._included = self._labels_of([] if include is None else [include])
        if not self._drawn:
            raise BadUsage("Scenes have nothing to draw: give at least one class besides the background.")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        objects, labels = self._layout(index)
        rng = np.random.default_rng((self.seed, index, 1))
        picture = _background(rng, self.size)
        for thing in objects:
            _paint(rng, picture, thing)
        picture += rng.normal(0.0, 0.012, picture.shape[:2]).astype(np.float32)[..., None]
        pixels = (picture.clip(0, 1) * 255 + 0.5).astype(np.uint8)
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        return Sample(image, torch.from_numpy(labels), self.name(index))

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, without painting it."""
        return torch.from_numpy(self._layout(index)[1])

    def name(self, index: int) -> str:
        """What the picture is called."""
        return f"scene-{self.seed}-{index:04d}"

    def version(self, index: int) -> str:
        """The same for all: pictures are what the settings make them."""
        return ""

    def _labels_of(self, names: Iterable[str]) -> list[int]:
        labels = [self.names.index(choose("class", name, self.names)) for name in names]
        return [label for label in labels if label > 0]

    def _layout(self, index: int) -> tuple[list["_Object"], NDArray[np.int64]]:
        """Where everything lies; its own random stream, so that labels do not depend on the painting."""
        if not 0 <= index < self.count:
            raise IndexError(f"Picture {index} of {self.count}.")
        rng = np.random.default_rng((self.seed, index, 0))
        sides = np.sort(rng.uniform(0.36, 0.56, rng.integers(2, 5)) * self.size)[::-1]
        free = len(sides) - len(self._included)
        chosen = [*self._included, *rng.choice(self._drawn, free, replace=len(self._drawn) < free)]
        labels = np.zeros((self.size, self.size), np.int64)
        owner = np.full(labels.shape, -1)
        objects: list[_Object] = []
        # Large ones first: what comes later lies in front, and a small one in front hides little.
        for label, side in zip(chosen, sides, strict=True):
            thing = _fit_in(rng, self._looks[label], side, owner, objects)
            if thing is not None:
                owner[thing.window][thing.inside] = len(objects)
                labels[thing.window][thing.inside] = label
                objects.append(thing)
        return objects, labels


@dataclass(frozen=True)
class _Look:
    """A class phrase taken apart."""

    shape: str
    colour: str | None
    pattern: str | None


def _parse(phrase: str) -> _Look:
    *adjectives, shape = phrase.split()
    choose(f"shape in {phrase!r}", shape, SHAPES)
    pattern = adjectives.pop(0) if adjectives and adjectives[0] in PATTERNS else None
    colour = choose(f"colour in {phrase!r}", adjectives.pop(0), COLOURS) if adjectives else None
    if adjectives:
        raise BadUsage(f"A class of Scenes is '[pattern] [colour] shape', got {phrase!r}.")
    return _Look(shape, colour, pattern)


@dataclass(frozen=True)
class _Object:
    """One thing in a picture, seen through the window of pixels that it can touch."""

    look: _Look
    window: tuple[slice, slice]
    x: Array
    """Across, in the thing's own axes: 1 is its outer radius."""
    y: Array
    """Down, in the thing's own axes."""
    distance: Array
    """Pixels to its edge, negative inside."""

    @property
    def inside(self) -> NDArray[np.bool_]:
        return self.distance < 0


def _fit_in(
    rng: np.random.Generator, look: _Look, side: float, owner: NDArray[np.int64], objects: list[_Object]
) -> _Object | None:
    """Find a position where the new thing leaves three quarters of every other one visible, or give up."""
    areas = np.array([thing.inside.sum() for thing in objects])
    for _ in range(30):
        thing = _pose(rng, look, side / 2, len(owner))
        after = owner.copy()
        after[thing.window][thing.inside] = len(objects)
        visible = np.bincount(after[after >= 0], minlength=len(objects))[: len(objects)]
        if (visible >= 0.75 * areas).all():
            return thing
    return None


def _pose(rng: np.random.Generator, look: _Look, radius: float, size: int) -> _Object:
    """A thing of this look at a random position and angle, wholly inside the picture."""
    shape, largest_angle = SHAPES[look.shape]
    angle = rng.uniform(-largest_angle, largest_angle)
    (rows, down), (columns, across) = (_span(rng.uniform(radius, size - radius), radius, size) for _ in range(2))
    x = cos(angle) * across + sin(angle) * down[:, None]
    y = cos(angle) * down[:, None] - sin(angle) * across
    return _Object(look, (rows, columns), x, y, shape(x, y) * radius)


def _span(centre: float, radius: float, size: int) -> tuple[slice, Array]:
    """The pixels within `radius` of `centre` along one axis, and where they lie, from -1 to 1."""
    span = slice(int(centre - radius), min(int(centre + radius) + 1, size))
    return span, ((np.arange(span.start, span.stop) + 0.5 - centre) / radius).astype(np.float32)


def _paint(rng: np.random.Generator, picture: Array, thing: _Object) -> None:
    """Paint a thing over the picture, with soft edges, shading and a slightly different tone each time."""
    tone = _tone(rng, thing.look.colour or str(rng.choice(list(COLOURS))))
    coverage = (0.5 - thing.distance).clip(0, 1)[..., None]
    paint = np.broadcast_to(tone, (*coverage.shape[:2], 3))
    if thing.look.pattern is not None:
        light = tone @ np.array([0.3, 0.6, 0.1], np.float32) > 0.55
        other = np.float32(0.12 if light else 0.95)
        amount = PATTERNS[thing.look.pattern](rng, thing.x, thing.y)[..., None]
        paint = paint * (1 - amount) + other * amount
    angle = rng.uniform(0, 2 * pi)
    rim = (1 + thing.distance / 2).clip(0, 1)  # tells two things of one colour apart where they overlap
    shading = (1 + 0.12 * (cos(angle) * thing.x + sin(angle) * thing.y)) * (1 - 0.3 * rim)
    under = picture[thing.window]
    picture[thing.window] = under * (1 - coverage) + paint * shading[..., None] * coverage


def _tone(rng: np.random.Generator, colour: str) -> Array:
    hue, saturation, value = colorsys.rgb_to_hsv(*COLOURS[colour])
    hue = (hue + rng.normal(0, 0.008)) % 1
    return np.array(
        colorsys.hsv_to_rgb(hue, saturation * rng.uniform(0.85, 1), value * rng.uniform(0.88, 1)), np.float32
    )


def _background(rng: np.random.Generator, size: int) -> Array:
    """A dull texture of two greyish tones: a gradient, clouds or faint stripes, with some grain."""
    tones = [
        colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0.05, 0.25), value)
        for value in rng.uniform(0.35, 0.75) + np.array([-0.1, 0.1])
    ]
    across = np.linspace(-1, 1, size, dtype=np.float32)
    angle = rng.uniform(0, 2 * pi)
    ramp = cos(angle) * across + sin(angle) * across[:, None]
    textures: tuple[Array, ...] = (
        0.5 + 0.4 * ramp,
        _clouds(rng, size, cells=4),
        0.5 + 0.3 * np.sin(ramp * rng.uniform(8, 30)),
    )
    mix = 0.7 * textures[rng.integers(3)] + 0.3 * _clouds(rng, size, cells=size // 6)
    mix = mix.clip(0, 1)[..., None].astype(np.float32)
    dark, bright = np.array(tones, np.float32)
    picture: Array = dark * (1 - mix) + bright * mix
    return picture


def _clouds(rng: np.random.Generator, size: int, cells: int) -> Array:
    """Value noise in 0..1: random numbers on a coarse grid, interpolated bilinearly."""
    position = np.linspace(0, cells - 1, size, dtype=np.float32)
    weights = (1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32))).clip(0, None)
    clouds: Array = weights @ rng.random((cells, cells), np.float32) @ weights.T
    return clouds
