"""Small sources in the true formats of labelling tools and benchmarks: pictures 8 wide and 6 high."""

import base64
import io
import json

import numpy as np
from PIL import Image

from joem import data

WIDTH, HEIGHT = 8, 6
SQUARE = [(1, 1), (5, 1), (5, 5), (1, 5)]
"""Columns and rows 1 to 4."""
PIXELS = [(3, 3), (7, 3), (7, 6), (3, 6)]
"""Columns 3 to 6, rows 3 to 5."""
ON_ITS_SIDE = 6
"""The EXIF orientation of a picture to be turned clockwise."""


def save_picture(path, colour=(10, 20, 30), size=(WIDTH, HEIGHT), orientation=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGB", size, colour)
    exif = picture.getexif()
    if orientation:
        exif[0x0112] = orientation
    picture.save(path, exif=exif)
    return path


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def expected(*shapes, rest=0, size=(HEIGHT, WIDTH)):
    """Labels of boxes (label, columns, rows), later ones on top, as lists."""
    labels = np.full(size, rest)
    for label, columns, rows in shapes:
        labels[rows[0] : rows[1], columns[0] : columns[1]] = label
    return labels.tolist()


def found(folder, split=None):
    """The labels of every picture in a folder, by name, after all of it was checked."""
    pictures = data.check_folder(folder, split)
    return {pictures.name(index): pictures.labels(index).tolist() for index in range(len(pictures))}


def coco(images, annotations, categories=((1, "cow"), (7, "dog"))):
    return {
        "info": {"version": "1.0"},
        "images": images,
        "annotations": [{"id": number, "iscrowd": 0, **each} for number, each in enumerate(annotations, 1)],
        "categories": [{"id": number, "name": name, "supercategory": "animal"} for number, name in categories],
    }


def coco_image(number, name, **more):
    return {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT, **more}


def ring(points):
    return [float(number) for point in points for number in point]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def labelme(shapes, name, **more):
    return {
        "version": "5.4.1",
        "flags": {},
        "shapes": [{"group_id": None, "flags": {}, "shape_type": "polygon", **shape} for shape in shapes],
        "imagePath": name,
        "imageData": None,
        "imageHeight": HEIGHT,
        "imageWidth": WIDTH,
        **more,
    }


def labelme_mask(array, left, top):
    """What labelme 5.3 and later write for a brush mask: the corners of its box, the last inside, and a PNG file."""
    height, width = array.shape
    points = [[left, top], [left + width - 1, top + height - 1]]
    return {"shape_type": "mask", "points": points, "mask": base64.b64encode(png(array)).decode()}


def cvat(images, labels=("cow", "dog")):
    described = "".join(f"<label><name>{name}</name><color>#102030</color><attributes/></label>" for name in labels)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version><meta><task><id>1</id>'
        f"<name>t</name><labels>{described}</labels></task></meta>{images}</annotations>"
    )


def cvat_image(name, shapes="", more=""):
    return f'<image id="0" name="{name}" width="{WIDTH}" height="{HEIGHT}" {more}>{shapes}</image>'


def cvat_points(points):
    return ";".join(f"{x:.2f},{y:.2f}" for x, y in points)
