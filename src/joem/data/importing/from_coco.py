"""COCO's JSON: instances with polygons or run lengths, and panoptic maps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joem.data.faults import Fault, Faults, FileFault
from joem.data.files import open_image
from joem.data.importing.annotated import (
    BROKEN,
    Entry,
    Labels,
    PictureFiles,
    Source,
    Wanted,
    all_drawn,
    broken_told,
    existing,
    files_in,
    split_of_file,
    split_of_folder,
    without_suffix,
)
from joem.data.importing.drawing import UNLABELLED, Region, Size, coco_counts, paint, polygon, run_lengths
from joem.errors import JoemError
from joem.io import read_json

STRAY = Fault(
    "annotation of a picture that is not listed",
    "annotations of pictures that are not listed",
    "List the pictures under images, or delete such annotations.",
)
NO_MASK_FILE = Fault(
    "panoptic map that is not there",
    "panoptic maps that are not there",
    "Say with --masks DIR where the PNG files of the panoptic maps are.",
)

_PARTS = ("images", "annotations", "categories")

Drawing = Callable[[Size], Labels]


def read(source: str, wanted: Wanted) -> Source:
    """A JSON file, or a folder that holds one for each split; smaller objects lie on top of larger ones."""
    root = existing(source)
    files = _files(root)
    contents = [_content(path) for path in files]
    names, numbers = _categories(contents, files)
    pictures = PictureFiles(Path(wanted.images) if wanted.images else root if root.is_dir() else root.parent)
    faults: Faults = Faults()
    entries: list[Entry] = []
    panoptic = any("segments_info" in each for each in contents[0]["annotations"] if isinstance(each, dict))
    for path, content in zip(files, contents, strict=True):
        split = (split_of_file(path.name) or split_of_folder(path.parent) or path.stem) if len(files) > 1 else None
        masks = Path(wanted.masks) if wanted.masks else path.with_suffix("")
        images = _listed(content, path, faults)
        by_picture = _by_picture(content, images, path, faults)
        for number, image in images.items():
            try:
                with broken_told(f"{path.name}, picture {number}"):
                    drawn = by_picture.get(number, [])
                    draw = partial(_draw_map, folder=masks) if panoptic else _draw
                    entries.append(_entry(image, pictures, partial(draw, annotations=drawn, numbers=numbers), split))
            except FileFault as fault:
                faults.add(fault)
    return Source(names, entries, "void" if panoptic else "background", faults=faults)


def _files(root: Path) -> list[Path]:
    """The JSON files to read: in a folder, COCO's instances_*.json if it has such files."""
    if root.is_file():
        return [root]
    found = files_in(root, {".json"})
    files = [path for path in found if path.name.startswith("instances_")] or found
    if not files:
        raise JoemError(f"{root} holds no JSON files: give the file or the folder with COCO's annotations.")
    return files


def _content(path: Path) -> Mapping[str, Any]:
    content = read_json(path)
    lists = content if isinstance(content, dict) else {}
    missing = [part for part in _PARTS if not isinstance(lists.get(part), list)]
    if missing:
        raise JoemError(f"{path} is not in COCO's format: it has no list {' and no list '.join(missing)}.")
    return lists


def _categories(contents: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> tuple[list[str], dict[int, int]]:
    """The names of all categories, in the order of their numbers, and the position of every number's name."""
    found: dict[int, str] = {}
    for path, content in zip(files, contents, strict=True):
        for category in content["categories"]:
            with broken_told(f"the categories of {path.name}"):
                number, name = int(category["id"]), str(category["name"])
            if found.setdefault(number, name) != name:
                raise JoemError(f"Category {number} is {found[number]!r} in one file and {name!r} in {path}.")
    names = list(dict.fromkeys(found[number] for number in sorted(found)))
    return names, {number: names.index(name) for number, name in found.items()}


def _listed(content: Mapping[str, Any], path: Path, faults: Faults) -> dict[Any, Mapping[str, Any]]:
    images: dict[Any, Mapping[str, Any]] = {}
    for image in content["images"]:
        try:
            with broken_told(f"a picture in {path.name}"):
                if image["id"] in images:
                    raise ValueError(f"two pictures have the id {image['id']}")
                images[image["id"]] = image
        except FileFault as fault:
            faults.add(fault)
    return images


def _by_picture(
    content: Mapping[str, Any], images: Mapping[Any, Any], path: Path, faults: Faults
) -> dict[Any, list[Mapping[str, Any]]]:
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for annotation in content["annotations"]:
        try:
            with broken_told(f"an annotation in {path.name}"):
                if annotation["image_id"] not in images:
                    raise FileFault.of(STRAY, f"{annotation.get('id', '?')} of picture {annotation['image_id']}")
                found.setdefault(annotation["image_id"], []).append(annotation)
        except FileFault as fault:
            faults.add(fault)
    return found


def _entry(image: Mapping[str, Any], pictures: PictureFiles, draw: Drawing, split: str | None) -> Entry:
    file = str(image["file_name"])
    size = (int(image["height"]), int(image["width"])) if "height" in image and "width" in image else None
    return Entry(without_suffix(file), pictures.find(file), draw, size, split)


def _draw(size: Size, *, annotations: Sequence[Mapping[str, Any]], numbers: Mapping[int, int]) -> Labels:
    shapes = all_drawn(
        (f"annotation {each.get('id', '?')} of picture {each['image_id']}", partial(_shape, each, numbers, size))
        for each in annotations
    )
    return paint(size, sorted(shapes, key=lambda shape: -sum(region.area for region in shape[1])))


def _shape(annotation: Mapping[str, Any], numbers: Mapping[int, int], size: Size) -> tuple[int, list[Region]]:
    return _label(annotation, numbers), _regions(annotation.get("segmentation"), size)


def _label(described: Mapping[str, Any], numbers: Mapping[int, int]) -> int:
    number = described["category_id"]
    if number not in numbers:
        raise ValueError(f"category {number} is not listed")
    return numbers[number]


def _regions(segmentation: Any, size: Size) -> list[Region]:
    if isinstance(segmentation, list) and segmentation:
        return [polygon(np.reshape(ring, (-1, 2)).tolist(), size) for ring in segmentation]
    if not isinstance(segmentation, dict):
        raise ValueError("it has no outline, perhaps only a box")
    counts = segmentation["counts"]
    if tuple(segmentation["size"]) != size:
        raise ValueError(f"its run lengths are for {segmentation['size']}, the picture is {list(size)}")
    lengths = coco_counts(counts) if isinstance(counts, str) else counts
    return [Region(0, 0, run_lengths(lengths, size, "columns"))]


def _draw_map(
    size: Size, *, annotations: Sequence[Mapping[str, Any]], numbers: Mapping[int, int], folder: Path
) -> Labels:
    """The labels of a panoptic map: a PNG file in which a pixel's R + 256 G + 65536 B is the id of its segment."""
    if len(annotations) != 1:
        raise FileFault.of(BROKEN, f"a panoptic picture with {len(annotations)} annotations instead of one")
    (annotation,) = annotations
    item = f"picture {annotation['image_id']}"
    with broken_told(item):
        path = folder / Path(str(annotation["file_name"]).replace("\\", "/")).name
        if not path.is_file():
            raise FileFault.of(NO_MASK_FILE, str(path))
        table = {int(segment["id"]): _label(segment, numbers) for segment in annotation["segments_info"]}
        table.setdefault(0, UNLABELLED)
        pixels: NDArray[np.int64] = np.asarray(open_image(path).convert("RGB")).astype(np.int64)
        present, positions = np.unique(pixels @ np.array([1, 1 << 8, 1 << 16]), return_inverse=True)
        unknown = [int(segment) for segment in present if int(segment) not in table]
        if unknown:
            raise ValueError(f"{path.name} holds segment {unknown[0]}, which is not listed")
        labels = np.array([table[int(segment)] for segment in present], np.int64)
        return labels[positions.reshape(pixels.shape[:2])]
