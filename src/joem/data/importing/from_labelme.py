"""labelme: a JSON file beside every picture."""

import base64
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joem.data.faults import Faults, FileFault
from joem.data.importing.annotated import (
    MISSING,
    NO_AREA,
    NOT_ANNOTATED,
    Entry,
    Labels,
    PictureFiles,
    Source,
    Wanted,
    all_drawn,
    broken_told,
    existing,
    files_in,
    read_content,
    split_of_folder,
    unreadable_told,
    without_suffix,
)
from joem.data.importing.class_table import read_table
from joem.data.importing.drawing import Region, Size, ellipse, paint, polygon
from joem.errors import JoemError
from joem.io import read_json
from joem.picture_files import SUFFIXES

_NO_AREA = {"point", "points", "line", "linestrip"}


def read(source: str, wanted: Wanted) -> Source:
    """A folder of JSON files, or one of them; later shapes lie on top, as labelme draws them."""
    root = existing(source)
    files = [root] if root.is_file() else files_in(root, {".json"})
    if not files:
        raise JoemError(f"{root} holds no JSON files: give the folder in which labelme saved them.")
    if not any(map(_may_be_of_labelme, files)):
        raise JoemError(
            f"{root} holds no file of labelme, only {len(files)} JSON files of another kind, such as {files[0].name}: "
            "give the folder in which labelme saved them, or another format, such as coco."
        )
    folder = root.parent if root.is_file() else root
    pictures = PictureFiles(Path(wanted.images) if wanted.images else folder)
    faults, notes = Faults(), Faults()
    read_files: dict[Path, Mapping[str, Any]] = {}
    for path in files:
        try:
            with unreadable_told(), broken_told(path.name):
                read_files[path] = _content(path)
        except FileFault as fault:
            faults.add(fault)
    used = {str(shape["label"]) for content in read_files.values() for shape in content["shapes"]}
    names = list(read_table(wanted.names).names) if wanted.names else sorted(used)
    entries = []
    for path, content in read_files.items():
        name = path.relative_to(folder).as_posix()
        for shape in content["shapes"]:
            if _kind(shape) in _NO_AREA:
                notes.add(FileFault.of(NO_AREA, f"{_kind(shape)} in {name}"))
        try:
            with broken_told(name):
                entries.append(_entry(path, name, content, pictures, names))
        except FileFault as fault:
            faults.add(fault)
    _note_others(pictures, entries, notes)
    return Source(names, entries, "background", faults=faults, notes=notes)


def _may_be_of_labelme(path: Path) -> bool:
    """Whether a file has shapes; one that cannot be read is told with the others."""
    try:
        content = read_json(path)
    except JoemError:
        return True
    return isinstance(content, Mapping) and "shapes" in content


def _content(path: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_json(path)
    for shape in content["shapes"]:
        _ = str(shape["label"])
    return content


def _kind(shape: Mapping[str, Any]) -> str:
    return str(shape.get("shape_type") or "polygon")


def _entry(path: Path, name: str, content: Mapping[str, Any], pictures: PictureFiles, names: Sequence[str]) -> Entry:
    image: Any
    try:
        image = _find(path, content, pictures)
    except FileFault:
        if not content.get("imageData"):
            raise FileFault.of(MISSING, f"{content.get('imagePath')} of {name}") from None
        image = partial(_embedded, content["imageData"], name)
    height, width = content.get("imageHeight"), content.get("imageWidth")
    size = (int(height), int(width)) if height and width else None
    shapes = [shape for shape in content["shapes"] if _kind(shape) not in _NO_AREA]
    draw = partial(_draw, shapes=shapes, names=names, name=name)
    return Entry(without_suffix(name), image, draw, size, split_of_folder(Path(name).parent))


def _embedded(text: str, name: str) -> bytes:
    with broken_told(name):
        return base64.b64decode(text)


def _find(path: Path, content: Mapping[str, Any], pictures: PictureFiles) -> Path:
    """The picture beside the file, else one of that name in the folder of pictures."""
    file = str(content["imagePath"]).replace("\\", "/").rpartition("/")[2]
    beside = path.parent / file
    return beside if beside.is_file() and beside.suffix.lower() in SUFFIXES else pictures.find(content["imagePath"])


def _draw(size: Size, *, shapes: Sequence[Mapping[str, Any]], names: Sequence[str], name: str) -> Labels:
    numbered = enumerate(shapes, 1)
    drawn = all_drawn((f"{name}, shape {number}", partial(_shape, shape, names, size)) for number, shape in numbered)
    return paint(size, drawn)


def _shape(shape: Mapping[str, Any], names: Sequence[str], size: Size) -> tuple[int, list[Region]]:
    if shape["label"] not in names:
        raise ValueError(f"{shape['label']!r} is not among the names given")
    return names.index(shape["label"]), [_region(shape, size)]


def _region(shape: Mapping[str, Any], size: Size) -> Region:
    kind, points = _kind(shape), shape["points"]
    if kind in {"polygon", "oriented_rectangle"}:
        return polygon(points, size)
    (x0, y0), (x1, y1) = points
    if kind == "rectangle":
        return polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], size)
    if kind == "circle":  # its middle and a point on it
        radius = math.dist((x0, y0), (x1, y1))
        return ellipse(x0, y0, radius, radius, 0, size)
    if kind == "mask":  # a PNG file, and the corners of where it belongs
        mask = _mask(base64.b64decode(shape["mask"]))
        top, left = round(y0), round(x0)
        inside = mask[: max(0, size[0] - top), : max(0, size[1] - left)].astype(bool)
        if min(top, left) < 0 or inside.ndim != 2:
            raise ValueError("its mask is outside of the picture, or no mask")
        return Region(top, left, inside)
    raise ValueError(f"shapes of the kind {kind!r} are not known")


def _mask(content: bytes) -> NDArray[Any]:
    try:
        return np.asarray(read_content(content, "its mask"))
    except FileFault as error:
        raise ValueError(error.item) from None


def _note_others(pictures: PictureFiles, entries: Sequence[Entry], notes: Faults) -> None:
    taken = {entry.image for entry in entries}
    for path, name in pictures.names.items():
        if path not in taken:
            notes.add(FileFault.of(NOT_ANNOTATED, name))
