"""Labels in the forms that other tools take: COCO, CVAT, Label Studio, supervision.

Every form has one entry per connected region of a class; the background has none.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from joem.errors import JoemError
from joem.io import atomic_file, atomic_folder, read_json, write_text

if TYPE_CHECKING:  # it stands below, and calls what is here
    from joem.result import Result

Mask = NDArray[np.bool_]


class Region(NamedTuple):
    """Connected pixels of one class."""

    label: int
    """Index of the class."""
    mask: Mask
    """Where it is, (H,W)."""
    box: tuple[int, int, int, int]
    """Left, top, right and bottom; the last two are the first column and row beyond it."""


def regions(result: "Result") -> Iterator[Region]:
    """The connected regions of a result, class by class, without the background."""
    labels = result.labels.numpy()
    for label in np.flatnonzero(np.bincount(labels.ravel())).tolist():
        if result.names[label] in result.unasked:
            continue
        numbers = components(labels == label)
        for number in range(1, int(numbers.max(initial=0)) + 1):
            mask = numbers == number
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            yield Region(label, mask, (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1))


def components(mask: Mask) -> NDArray[np.int64]:
    """The connected regions of a mask (H,W), numbered from 1; pixels that touch by a corner are connected.

    >>> components(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]], bool)).tolist()
    [[1, 0, 1], [0, 1, 0], [0, 0, 0], [2, 2, 0]]
    """
    parents = [0]
    found = np.zeros(mask.shape, np.int64)

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    above: list[tuple[int, int, int]] = []  # start, stop and number of the runs in the row above
    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
        here = []
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            touching = [number for left, right, number in above if left <= stop and right >= start]
            number = min(map(root, touching), default=len(parents))
            if not touching:
                parents.append(number)
            for other in touching:
                parents[root(other)] = number
            found[y, start:stop] = number
            here.append((start, stop, number))
        above = here
    roots = np.array([root(number) for number in range(len(parents))])
    return np.unique(roots, return_inverse=True)[1][found]


def run_lengths(mask: Mask) -> dict[str, Any]:
    """COCO's uncompressed run lengths: zeros and ones in turn, column by column, zeros first.

    >>> run_lengths(np.array([[0, 1], [1, 1]], bool))
    {'size': [2, 2], 'counts': [1, 3]}
    """
    flat = mask.T.reshape(-1)
    edges = np.flatnonzero(np.diff(flat.astype(np.int8))) + 1
    counts = np.diff(np.concatenate(([0], edges, [flat.size]))).tolist()
    return {"size": list(mask.shape), "counts": [0, *counts] if flat.size and flat[0] else counts}


def polygons(mask: Mask) -> list[list[float]]:
    """The outer outlines of a mask as [x1, y1, x2, y2, ...], half a pixel inside its edges; holes are left out."""
    from contourpy import contour_generator

    padded = np.pad(mask, 1).astype(np.float64)
    outlines, offsets = cast(Any, contour_generator(z=padded, fill_type="OuterOffset").filled(0.5, np.inf))
    rings = (points[each[0] : each[1]] for points, each in zip(outlines, offsets, strict=True))
    return [(ring - 0.5).reshape(-1).tolist() for ring in rings]


def simplified(ring: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """A closed outline (N,2) with fewer corners, none of its points further than `tolerance` away (Douglas-Peucker).

    >>> square = np.array([[0, 0], [1, 0.1], [2, 0], [2, 2], [0, 2]], float)
    >>> simplified(square, 0.5).tolist()
    [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]
    """
    closed = np.concatenate([ring, ring[:1]])
    farthest = int(np.linalg.norm(ring - ring[0], axis=1).argmax())
    kept, waiting = {0, farthest}, [(0, farthest), (farthest, len(ring))]
    while waiting:
        start, stop = waiting.pop()
        chord, points = closed[stop] - closed[start], closed[start + 1 : stop] - closed[start]
        along = (points @ chord / max(chord @ chord, 1e-12)).clip(0, 1)
        off = np.linalg.norm(points - along[:, None] * chord, axis=1)
        if off.max(initial=0) > tolerance:
            corner = start + 1 + int(off.argmax())
            kept.add(corner)
            waiting += [(start, corner), (corner, stop)]
    return ring[sorted(kept)] if len(kept) > 2 else ring


def coco(
    result: "Result", form: Literal["polygon", "rle"], file_name: str | None, scored: bool = False
) -> dict[str, Any]:
    """A COCO data set of one picture; `scored` adds the mean score of every region."""
    height, width = result.compact.shape
    image = {"id": 1, "width": width, "height": height, **({"file_name": file_name} if file_name else {})}
    score = _scores(result) if scored else None
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": region.label + 1,
            "bbox": [left, top, right - left, bottom - top],
            "area": int(region.mask.sum()),
            "segmentation": run_lengths(region.mask) if form == "rle" else polygons(region.mask),
            "iscrowd": int(form == "rle"),
            **({"score": score(region.mask)} if score else {}),
        }
        for number, region in enumerate(regions(result), 1)
        for left, top, right, bottom in [region.box]
    ]
    categories = [
        {"id": index + 1, "name": name, "supercategory": ""}
        for index, name in enumerate(result.names)
        if name not in result.unasked
    ]
    about = {"info": {"description": "segmented by joem"}, "licenses": []}
    return {**about, "images": [image], "categories": categories, "annotations": annotations}


def label_studio(result: "Result", file_name: str, from_name: str, to_name: str) -> dict[str, Any]:
    """A Label Studio task with polygons, in percent of the picture's sides, as its prediction."""
    height, width = result.compact.shape
    score = _scores(result)
    shared = {
        "from_name": from_name,
        "to_name": to_name,
        "type": "polygonlabels",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
    }
    drawn: list[dict[str, Any]] = []
    for region in regions(result):
        for outline in polygons(region.mask):
            ring = np.array(outline).reshape(-1, 2)[:-1]  # the last point is the first
            points = simplified(ring, tolerance=1.0) * (100 / width, 100 / height)
            value = {"points": points.round(3).tolist(), "closed": True, "polygonlabels": [result.names[region.label]]}
            told = {"score": score(region.mask)} if score else {}
            drawn.append({"id": f"region-{len(drawn) + 1}", **shared, "value": value, **told})
    whole = {"score": score(np.ones((height, width), bool))} if score else {}
    return {"data": {"image": file_name}, "predictions": [{"model_version": "joem", **whole, "result": drawn}]}


def detections(result: "Result") -> Any:
    """The regions as `supervision.Detections`."""
    try:
        import supervision
    except ImportError:
        raise JoemError('supervision is not installed: run pip install "joem[supervision]".') from None
    found, score = list(regions(result)), _scores(result)
    masks = [region.mask for region in found]
    return supervision.Detections(
        xyxy=np.array([region.box for region in found], np.float32).reshape(-1, 4),
        mask=np.stack(masks) if masks else np.zeros((0, *result.compact.shape), bool),
        confidence=np.array([score(mask) for mask in masks], np.float32) if score else None,
        class_id=np.array([region.label for region in found], int),
        data={"class_name": np.array([result.names[region.label] for region in found], str)},
    )


def _scores(result: "Result") -> Callable[[Mask], float] | None:
    """Gives the mean score where a mask is, or the mean confidence without calibration; None where neither is known."""
    values = result.score or result.certainty
    if values is None:
        return None
    known = np.concatenate([band.numpy() for band in values()])
    return lambda mask: round(float(known[mask].mean()), 4)


def _write(path: Path, value: Any) -> Path:
    write_text(path, json.dumps(value) + "\n")  # in one line: a line for every corner would be hard to read, too
    return path


def _cut_outs(result: "Result", folder: Path, file_name: str) -> Path:
    """A PNG picture for every name that occurs, in a folder; each begins with its label in mask.png."""
    path, present = folder / "cut-outs", np.flatnonzero(np.bincount(result.labels.flatten())).tolist()
    with atomic_folder(path) as draft:
        for label in present:
            if (name := result.names[label]) not in result.unasked:
                safe = "".join(letter if letter.isalnum() or letter in " -_" else "_" for letter in name)
                result.cut_out(name).save(draft / f"{label}-{safe}.png")
    return path


def _pixel_scores(result: "Result", folder: Path, name: str) -> Path:
    """Every pixel's score and label, and the names of the labels, as arrays."""
    path = folder / "scores.npz"
    with atomic_file(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, scores=result.scores().numpy(), labels=result.labels.numpy(), names=result.names)
    return path


WRITERS: dict[str, Callable[["Result", Path, str], Path]] = {
    "coco": lambda result, folder, name: _write(folder / "coco.json", result.to_coco(file_name=name)),
    "label-studio": lambda result, folder, name: _write(folder / "label-studio.json", [result.to_label_studio(name)]),
    "cvat": lambda result, folder, name: _write(folder / "cvat.json", result.to_cvat(name)),
    "cut-outs": _cut_outs,
    "scores": _pixel_scores,
}
"""What writes a result into the folder of its picture, given the picture's file name; gives the file or folder."""


def resized(dataset: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """A COCO data set of one picture, with polygons, as one of the picture at another size, (H,W)."""
    image = {**dataset["images"][0], "height": size[0], "width": size[1]}
    across, down = size[1] / dataset["images"][0]["width"], size[0] / dataset["images"][0]["height"]

    def scaled(values: list[float]) -> list[float]:
        return [round(value * (down if index % 2 else across), 2) for index, value in enumerate(values)]

    annotations = [
        {
            **each,
            "bbox": scaled(each["bbox"]),
            "area": each["area"] * across * down,
            "segmentation": [scaled(ring) for ring in each["segmentation"]],
        }
        for each in dataset["annotations"]
    ]
    return {**dataset, "images": [image], "annotations": annotations}


def join(files: Iterable[Path], path: Path) -> Path:
    """Write COCO data sets of the same classes, such as those of `WRITERS`, as one, which CVAT takes in one upload."""
    whole: dict[str, Any] = {}
    for number, one in enumerate(map(read_json, files), 1):
        whole = whole or {**one, "images": [], "annotations": []}
        whole["images"] += [{**image, "id": number} for image in one["images"]]
        count = len(whole["annotations"])
        for each in one["annotations"]:
            whole["annotations"].append({**each, "id": count + each["id"], "image_id": number})
    return _write(path, whole)
