"""Labels in the forms that other tools take: regions, run lengths and polygons, as COCO has them."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


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


def coco(
    labels: NDArray[np.int64],
    names: Sequence[str],
    background: str | None,
    form: Literal["polygon", "rle"],
    file_name: str | None,
) -> dict[str, Any]:
    """Labels (H,W) as a COCO data set of one picture: an annotation for every connected region but the background's."""
    height, width = labels.shape
    image = {"id": 1, "width": width, "height": height, **({"file_name": file_name} if file_name else {})}
    kept = [index for index, name in enumerate(names) if name != background]
    annotations: list[dict[str, Any]] = []
    for index in kept:
        regions = components(labels == index)
        for number in range(1, int(regions.max(initial=0)) + 1):
            region = regions == number
            rows, columns = np.flatnonzero(region.any(1)), np.flatnonzero(region.any(0))
            left, top = int(columns[0]), int(rows[0])
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": 1,
                    "category_id": index + 1,
                    "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
                    "area": int(region.sum()),
                    "segmentation": run_lengths(region) if form == "rle" else polygons(region),
                    "iscrowd": int(form == "rle"),
                }
            )
    categories = [{"id": index + 1, "name": names[index]} for index in kept]
    return {"images": [image], "categories": categories, "annotations": annotations}
