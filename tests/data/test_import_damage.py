"""Whatever is wrong in annotations is told; nothing ends in a traceback or leaves a half-written folder."""

import copy
import random

import numpy as np
import pytest
from annotated_sources import (
    SQUARE,
    coco,
    coco_image,
    cvat,
    cvat_image,
    cvat_points,
    labelme,
    labelme_mask,
    ring,
    save_picture,
    write_json,
)

from joem import data
from joem.errors import JoemError

COCO = coco(
    [coco_image(1, "a.png"), coco_image(2, "b.png")],
    [
        {"image_id": 1, "category_id": 1, "segmentation": [ring(SQUARE)]},
        {"image_id": 2, "category_id": 7, "segmentation": {"size": [6, 8], "counts": [8, 40]}},
    ],
)
PANOPTIC = coco(
    [coco_image(1, "a.png")],
    [{"image_id": 1, "file_name": "a.png", "segments_info": [{"id": 10 + 256 * 20 + 65536 * 30, "category_id": 1}]}],
)
LABELME = labelme(
    [
        {"label": "cow", "points": [list(point) for point in SQUARE]},
        {"label": "dog", "points": [[1, 1], [2, 2]], "shape_type": "rectangle"},
        {"label": "hen", "points": [[1, 1], [2, 2]], "shape_type": "circle"},
        {"label": "fox", **labelme_mask(np.ones((2, 2), bool), 1, 1)},
    ],
    "a.png",
)
CVAT = cvat(
    cvat_image(
        "a.png",
        f'<polygon label="cow" points="{cvat_points(SQUARE)}" z_order="1"/>'
        '<mask label="dog" rle="1,3" left="0" top="0" width="2" height="2"/>'
        '<box label="cow" xtl="1" ytl="1" xbr="3" ybr="3" rotation="3"/>'
        '<ellipse label="cow" cx="2" cy="2" rx="1" ry="1"/>',
    )
)
VALUES = [
    None,
    -1,
    0,
    10**30,
    1e300,
    float("nan"),
    True,
    "",
    "x",
    "b.png",
    [],
    [1],
    [[]],
    [[1, 2]],
    {},
    {"size": [6, 8]},
]
PIECES = ["", "<", ">", '"', "-", "9999999999", "nan", ";", ",", "x", "e9", "&x;"]


def places(value, place=()):
    """Where every part of a JSON value is."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*place, key)
        yield from places(part, (*place, key))


def damaged(value, chance):
    """A copy with one to three parts replaced or taken out."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        *way, last = chance.choice([*places(value)])
        inner = value
        for key in way:
            inner = inner[key]
        if chance.random() < 0.3:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(chance.choice(VALUES))
    return value


def damaged_text(text, chance):
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text))
        text = text[:start] + chance.choice(PIECES) + text[start + chance.randint(0, 3) :]
    return text


def write_coco(folder, chance):
    return write_json(folder / "s.json", damaged(COCO, chance))


def write_panoptic(folder, chance):
    save_picture(folder / "s" / "a.png")
    return write_json(folder / "s.json", damaged(PANOPTIC, chance))


def write_labelme(folder, chance):
    return write_json(folder / "a.json", damaged(LABELME, chance))


def write_cvat(folder, chance):
    (folder / "annotations.xml").write_text(damaged_text(CVAT, chance))
    return folder


@pytest.mark.parametrize(
    ("kind", "write"),
    [("coco", write_coco), ("coco", write_panoptic), ("labelme", write_labelme), ("cvat", write_cvat)],
    ids=["instances", "panoptic", "labelme", "cvat"],
)
def test_damaged_annotations_are_told(tmp_path, kind, write):
    outcomes = set()
    for seed in range(40):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        save_picture(folder / "a.png")
        save_picture(folder / "b.png")
        source = write(folder, chance)
        try:
            data.import_masks(kind, source, folder / "out", skip_broken=seed % 2 == 0)
            data.check_folder(folder / "out")
            outcomes.add("imported")
        except JoemError:
            outcomes.add("told")
            assert not (folder / "out").exists()
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert outcomes == {"imported", "told"}
