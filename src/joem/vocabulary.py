"""Class names and their roles: one small frozen type that everything passes around."""

import colorsys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from joem.errors import BadUsage, choose

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

Classes: TypeAlias = Union["Sequence[int]", "Sequence[bool]", "Tensor", "NDArray[np.integer[Any]]", "NDArray[np.bool_]"]
"""Some of K classes: their indices, or K booleans."""

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

OTHER = "other"
"""The name of pixels that none of the names fits."""

VOID = 255
"""The label of pixels that nobody labelled; it never counts in a loss or a score."""

# Okabe and Ito's eight colours, told apart by colour-blind people, then generated ones.
_FIRST_COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)


@dataclass(frozen=True)
class Vocabulary:
    """The classes of a problem in index order, and which of them have no masks.

    Args:
        names: class names; the position of a name is its label.
        unseen: the names without training masks.
        background: the name of the background class, if there is one.
        taught: the names without masks that another network taught in training, the last ones; they are seen.

    >>> v = Vocabulary(("background", "horse", "cow"), unseen=("cow",), background="background")
    >>> v.seen, v.unseen_indices
    (('background', 'horse'), (2,))
    """

    names: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    background: str | None = None
    taught: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _as_names("names", self.names))
        object.__setattr__(self, "unseen", _as_names("unseen", self.unseen))
        if not self.names:
            raise BadUsage("A vocabulary needs at least one class name, got none.")
        for name in self.unseen:
            choose("unseen class", name, self.names)
        if self.background is not None:
            choose("background class", self.background, self.names)
        object.__setattr__(self, "taught", _as_names("taught", self.taught))
        if self.taught and self.names[-len(self.taught) :] != self.taught:
            raise BadUsage(f"Taught names come last, in their order: got {self.names} with {self.taught}.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def seen(self) -> tuple[str, ...]:
        """Names of the classes with training masks, in index order."""
        return tuple(name for name in self.names if name not in self._unseen_set)

    @cached_property
    def seen_indices(self) -> tuple[int, ...]:
        """Labels of the seen classes."""
        return tuple(i for i, name in enumerate(self.names) if name not in self._unseen_set)

    @cached_property
    def unseen_indices(self) -> tuple[int, ...]:
        """Labels of the unseen classes."""
        return tuple(i for i, name in enumerate(self.names) if name in self._unseen_set)

    @cached_property
    def _unseen_set(self) -> frozenset[str]:
        return frozenset(self.unseen)

    def index(self, name: str) -> int:
        """Label of a name."""
        return self.names.index(choose("class", name, self.names))

    def with_unseen(self, unseen: Iterable[str]) -> "Vocabulary":
        """The same classes with other ones held out."""
        return Vocabulary(self.names, tuple(unseen), self.background, self.taught)

    def with_taught(self, taught: Iterable[str]) -> "Vocabulary":
        """These classes with others behind them that another network teaches.

        >>> Vocabulary(("cow",)).with_taught(["grass"]).names
        ('cow', 'grass')
        """
        more = tuple(taught)
        return Vocabulary((*self.names, *more), self.unseen, self.background, (*self.taught, *more))

    def without_taught(self) -> "Vocabulary":
        """The classes that masks can show."""
        return self.first(len(self) - len(self.taught))

    def without_background(self) -> "Vocabulary":
        """The same classes but for the background, which is no class in the SPNet setting.

        >>> Vocabulary(("background", "cow"), background="background").without_background().names
        ('cow',)
        """
        return Vocabulary(tuple(name for name in self.names if name != self.background), self.unseen, None, self.taught)

    def first(self, count: int) -> "Vocabulary":
        """The first so many classes.

        >>> Vocabulary(("cow", "bus", "cat"), unseen=("bus", "cat")).first(2).unseen
        ('bus',)
        """
        names = self.names[:count]
        background = self.background if self.background in names else None
        unseen, taught = (tuple(name for name in each if name in names) for each in (self.unseen, self.taught))
        return Vocabulary(names, unseen, background, taught)

    @cached_property
    def starred(self) -> tuple[str, ...]:
        """The names for people, with a star after those of unseen classes.

        >>> Vocabulary(("horse", "cow"), unseen=("cow",)).starred
        ('horse', 'cow *')
        """
        return tuple(starred(name, name in self._unseen_set) for name in self.names)

    @cached_property
    def colours(self) -> tuple[Colour, ...]:
        """One RGB colour per class; the background is dark grey."""
        return colours(self.names, self.background)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        found = {"names": list(self.names), "unseen": list(self.unseen), "background": self.background}
        return found | ({"taught": list(self.taught)} if self.taught else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Vocabulary":
        """The inverse of `to_dict`."""
        return cls(tuple(data["names"]), tuple(data["unseen"]), data["background"], tuple(data.get("taught", ())))


def starred(name: str, unseen: bool) -> str:
    """The name of a class, with a star if nobody labelled it."""
    return f"{name} *" if unseen else name


def class_mask(classes: "Classes", count: int) -> "Tensor":
    """The same set of classes as `count` booleans, from indices or from booleans.

    >>> class_mask([0, 2], 3)
    tensor([ True, False,  True])
    """
    import torch

    try:
        given = torch.as_tensor(classes if isinstance(classes, torch.Tensor) else list(classes)).cpu()
    except (TypeError, ValueError, RuntimeError):
        given = torch.empty(1)  # neither indices nor booleans
    mask = torch.zeros(count, dtype=torch.bool)
    if given.numel() == 0:
        return mask
    if given.dim() != 1 or given.is_floating_point():
        raise BadUsage(f"Expected a list of class indices or one boolean per class, {count}, got {classes}.")
    if given.dtype == torch.bool:
        if len(given) != count:
            raise BadUsage(f"Expected one boolean per class, {count}, got {len(given)}.")
        return given
    for index in given.tolist():
        if index not in range(count):
            raise BadUsage(f"Class {index} does not exist: class indices go from 0 to {count - 1}.")
        mask[index] = True
    return mask


def colours(names: Iterable[str], background: str | None = None) -> tuple[Colour, ...]:
    """One RGB colour per name, distinct between neighbours and readable for colour-blind people first.

    >>> colours(["background", "cow"], background="background")
    ((60, 60, 60), (230, 159, 0))
    """
    result: list[Colour] = []
    used = 0
    for name in names:
        if name in {background, OTHER}:
            result.append((60, 60, 60) if name == background else (150, 150, 150))
            continue
        if used < len(_FIRST_COLOURS):
            result.append(_FIRST_COLOURS[used])
        else:  # the golden ratio spreads hues evenly however many there are
            hue = (used * 0.618034) % 1.0
            red, green, blue = colorsys.hsv_to_rgb(hue, (0.9, 0.55, 0.75)[used % 3], (0.95, 0.8, 0.6)[used // 3 % 3])
            result.append((round(red * 255), round(green * 255), round(blue * 255)))
        used += 1
    return tuple(result)


def _as_names(field: str, value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise BadUsage(f"{field} must be a sequence of class names, got the single text {value!r}: use [{value!r}].")
    names = tuple(value)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise BadUsage(f"Every class name in {field} must be a non-empty text, got {name!r}.")
        # Control characters, and what is left of bytes that are not UTF-8.
        if not name.isprintable() and any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
            raise BadUsage(f"Every class name in {field} must be one line of readable text, got {name!r}.")
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise BadUsage(f"Class names in {field} must differ, these repeat: {', '.join(repeated)}.")
    return names
