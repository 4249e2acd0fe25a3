"""Lists of classes with their numbers or colours, as tools and datasets write them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from joem.data.faults import NO_COLOURS, UNKNOWN_COLOUR, UNKNOWN_LABEL, UNREADABLE, FileFault
from joem.data.files import read_text
from joem.data.importing.annotated import Labels
from joem.data.importing.drawing import UNLABELLED
from joem.errors import JoemError
from joem.io import read_json
from joem.vocabulary import VOID, Colour

_NUMBER = r"\d{1,3}"
_RGB = rf"{_NUMBER}[\s,;]+{_NUMBER}[\s,;]+{_NUMBER}"
_LINES = [
    re.compile(rf"(?P<rgb>{_RGB})[\s,;:]+(?P<name>.+)"),  # 64 128 0 cow
    re.compile(rf"(?P<name>.+?)\s*[\s,;:]\s*(?P<rgb>{_RGB})(\s*:.*)?"),  # cow,64,128,0 and CVAT's cow:64,128,0::
    re.compile(r"(?P<name>.+?)[\s,;:]+#(?P<hex>[0-9a-fA-F]{6})"),  # cow #408000
]


@dataclass(frozen=True)
class ClassTable:
    """Classes, and which of them labels or colours in masks mean.

    Args:
        names: the classes.
        labels: the class of every label, an index into names.
        colours: the class of every colour.
    """

    names: tuple[str, ...]
    labels: dict[int, int]
    colours: dict[Colour, int]

    @classmethod
    def of_names(cls, names: Iterable[str]) -> "ClassTable":
        """Classes whose labels are their positions."""
        every = tuple(names)
        return cls(every, {index: index for index in range(len(every))}, {})

    def read_mask(self, mask: Image.Image, name: str, by_colour: bool) -> Labels:
        """The classes of the pixels of a mask.

        Args:
            mask: the mask.
            name: what to call it in a fault.
            by_colour: whether palette and grey masks, too, stand for the colours that they show.
        """
        if by_colour or mask.mode in {"RGB", "RGBA"}:
            pixels = np.asarray(mask.convert("RGB")).astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
            table = {(red << 16) + (green << 8) + blue: label for (red, green, blue), label in self.colours.items()}
            if not table:
                raise FileFault.of(NO_COLOURS, name)
            kind, form = UNKNOWN_COLOUR, "#{:06X}"
        elif mask.mode in {"1", "L", "LA", "P", "PA", "I", "I;16", "I;16B"}:
            pixels = np.asarray(mask.getchannel(0) if mask.mode.endswith("A") else mask).astype(np.int64)
            table = {VOID: UNLABELLED, **self.labels}
            kind, form = UNKNOWN_LABEL, "{}"
        else:
            raise FileFault.of(UNREADABLE, f"{name} (of the kind {mask.mode})")
        present, positions = np.unique(pixels, return_inverse=True)
        unknown = [form.format(int(value)) for value in present if int(value) not in table]
        if unknown:
            raise FileFault.of(kind, f"{name} ({' '.join(unknown[:3])}{' ...' if len(unknown) > 3 else ''})")
        translated: NDArray[np.int64] = np.array([table[int(value)] for value in present], np.int64)
        return translated[positions.reshape(pixels.shape)]


def read_table(given: str) -> ClassTable:
    """Classes from names with commas between them, or from a file.

    A file is JSON such as {"0": "wall"} or ["wall", "sky"], or has a class in each line: its name, or its name with a
    colour (name #RRGGBB, name r g b, r g b name, name,r,g,b, or name:r,g,b:: as in CVAT's labelmap.txt).
    """
    path = Path(given)
    if not path.is_file():
        if "," not in given:
            raise JoemError(f"There is no file {given}: give --names a file with the classes, or names with commas.")
        return ClassTable.of_names(name.strip() for name in given.split(",") if name.strip())
    return _from_json(path) if path.suffix.lower() == ".json" else _from_lines(path)


def _from_json(path: Path) -> ClassTable:
    found = read_json(path)
    if isinstance(found, dict) and isinstance(found.get("id2label"), dict):
        found = found["id2label"]
    if isinstance(found, list):
        found = dict(enumerate(found))
    try:
        numbered = {int(number): str(name) for number, name in found.items()}
    except (AttributeError, ValueError):
        raise JoemError(f'{path} must hold names by number, such as {{"0": "wall"}}, or a list of names.') from None
    names = tuple(dict.fromkeys(numbered.values()))
    return ClassTable(names, {number: names.index(name) for number, name in numbered.items()}, {})


def _from_lines(path: Path) -> ClassTable:
    lines = [line.strip() for line in read_text(path).splitlines()]
    lines = [line for line in lines if line and (not line.startswith("#"))]
    if lines and re.fullmatch(r"(name|label|class)\s*,\s*r(ed)?\s*,.*", lines[0], re.IGNORECASE):
        del lines[0]  # the heading of a CSV file
    names: list[str] = []
    colours: dict[Colour, int] = {}
    for line in lines:
        name, colour = _read_line(line, path)
        if colour in colours:
            raise JoemError(f"{path} gives the colour of {names[colours[colour]]!r} again: {line!r}.")
        if name not in names:
            names.append(name)
        if colour is not None:
            colours[colour] = names.index(name)
    if not names:
        raise JoemError(f"{path} lists no classes: it must have one in each line.")
    return ClassTable(tuple(names), {index: index for index in range(len(names))}, colours)


def _read_line(line: str, path: Path) -> tuple[str, Colour | None]:
    found = next((match for form in _LINES if (match := form.fullmatch(line))), None)
    if found is None:
        return line, None
    if "hex" in found.groupdict():
        red, green, blue = bytes.fromhex(found["hex"])
    else:
        red, green, blue = (int(part) for part in re.findall(_NUMBER, found["rgb"]))
    if max(red, green, blue) > 255:
        raise JoemError(f"A colour is three numbers from 0 to 255, got {line!r} in {path}.")
    return found["name"].strip(), (red, green, blue)
