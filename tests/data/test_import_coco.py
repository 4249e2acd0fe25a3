"""COCO's JSON."""

import numpy as np
import pytest
from annotated_sources import (
    HEIGHT,
    ON_ITS_SIDE,
    PIXELS,
    SQUARE,
    WIDTH,
    coco,
    coco_image,
    expected,
    found,
    ring,
    save_picture,
    write_json,
)
from PIL import Image
from small_data import failure
from test_drawing import compressed

from joem import data, exchange
from joem.errors import BadUsage

COW, DOG = 1, 7


def polygons(number, category, *rings, **more):
    return {"image_id": number, "category_id": category, "segmentation": [ring(each) for each in rings], **more}


def runs(number, mask, text=False):
    told = exchange.run_lengths(np.array(mask, bool))
    counts = compressed(told["counts"]) if text else told["counts"]
    segmentation = {"size": told["size"], "counts": counts}
    return {"image_id": number, "category_id": COW, "segmentation": segmentation, "iscrowd": 1}


def box_mask():
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[2:4, 3:6] = True
    return mask


def test_smaller_objects_lie_on_larger_ones_whatever_their_order(tmp_path):
    save_picture(tmp_path / "a.jpg")
    small = polygons(1, DOG, [(2, 2), (4, 2), (4, 4), (2, 4)])
    source = coco([coco_image(1, "a.jpg")], [small, polygons(1, COW, SQUARE)])
    told = data.import_masks("coco", write_json(tmp_path / "s.json", source), tmp_path / "out")
    assert (told.names, told.images, told.splits) == (("background", "cow", "dog"), 1, {})
    assert found(tmp_path / "out") == {"a": expected((1, (1, 5), (1, 5)), (2, (2, 4), (2, 4)))}
    assert data.Folder(tmp_path / "out").background == "background"
    assert (tmp_path / "out" / "images" / "a.jpg").read_bytes() == (tmp_path / "a.jpg").read_bytes()


def test_an_object_of_several_parts(tmp_path):
    save_picture(tmp_path / "a.png")
    parts = polygons(1, COW, [(0, 0), (2, 0), (2, 1), (0, 1)], [(6, 4), (8, 4), (8, 6), (6, 6)])
    path = write_json(tmp_path / "s.json", coco([coco_image(1, "a.png")], [parts]))
    data.import_masks("coco", path, tmp_path / "out")
    assert found(tmp_path / "out") == {"a": expected((1, (0, 2), (0, 1)), (1, (6, 8), (4, 6)))}


@pytest.mark.parametrize("text", [True, False], ids=["compressed", "uncompressed"])
def test_crowds_as_run_lengths(tmp_path, text):
    save_picture(tmp_path / "a.png")
    path = write_json(tmp_path / "s.json", coco([coco_image(1, "a.png")], [runs(1, box_mask(), text)]))
    data.import_masks("coco", path, tmp_path / "out")
    assert found(tmp_path / "out") == {"a": expected((1, (3, 6), (2, 4)))}


def test_a_folder_of_lists_has_splits_and_pictures_may_be_anywhere_in_it(tmp_path):
    source = tmp_path / "coco"
    for split, name in (("train", "1.jpg"), ("val", "2.jpg")):
        save_picture(source / f"{split}2017" / name)
        annotations = coco([coco_image(1, name)], [polygons(1, COW, SQUARE)])
        write_json(source / "annotations" / f"instances_{split}2017.json", annotations)
    write_json(source / "annotations" / "captions_val2017.json", {"images": []})
    told = data.import_masks("coco", source, tmp_path / "out")
    assert told.splits == {"train": 1, "val": 1}
    assert list(found(tmp_path / "out", "val")) == ["2"]
    told = data.import_masks("coco", source, tmp_path / "only", split="val")
    assert (told.images, told.splits) == (1, {"val": 1})
    message = failure(data.import_masks, "coco", source, tmp_path / "x", val=0.5, kind=BadUsage)
    assert "its own splits (train, val): leave --val out, or take one of them with --split" in message


def test_results_that_joem_writes_come_back(tmp_path):
    """Polygons of other tools: the outlines of every class are drawn where they were."""
    labels = np.array(expected((1, (1, 4), (1, 4)), (2, (4, 7), (2, 6))))
    save_picture(tmp_path / "a.png")
    drawn = [
        {"image_id": 1, "category_id": category, "segmentation": exchange.polygons(labels == label)}
        for label, category in ((1, COW), (2, DOG))
    ]
    data.import_masks("coco", write_json(tmp_path / "s.json", coco([coco_image(1, "a.png")], drawn)), tmp_path / "out")
    assert found(tmp_path / "out")["a"] == labels.tolist()


def test_panoptic_maps(tmp_path):
    save_picture(tmp_path / "a.jpg")
    ids = np.zeros((HEIGHT, WIDTH), np.int64)
    ids[:3], ids[4:, 2:] = 70_000, 5
    pixels = np.stack([ids % 256, ids // 256 % 256, ids // 65536], axis=2).astype(np.uint8)
    (tmp_path / "panoptic_val").mkdir()
    Image.fromarray(pixels).save(tmp_path / "panoptic_val" / "a.png")
    segments = [{"id": 70_000, "category_id": DOG, "iscrowd": 0}, {"id": 5, "category_id": COW, "iscrowd": 0}]
    source = coco([coco_image(1, "a.jpg")], [{"image_id": 1, "file_name": "a.png", "segments_info": segments}])
    path = write_json(tmp_path / "panoptic_val.json", source)
    data.import_masks("coco", path, tmp_path / "out")
    assert (tmp_path / "out" / "classes.txt").read_text() == "cow\ndog\n"
    assert found(tmp_path / "out")["a"] == expected((1, (0, 8), (0, 3)), (0, (2, 8), (4, 6)), rest=255)
    source["annotations"][0]["segments_info"] = segments[:1]
    write_json(path, source)
    assert "holds segment 5, which is not listed" in failure(data.import_masks, "coco", path, tmp_path / "x")
    (tmp_path / "panoptic_val" / "a.png").unlink()
    assert "1 panoptic map that is not there" in failure(data.import_masks, "coco", path, tmp_path / "x")


@pytest.mark.parametrize("shown", [True, False], ids=["annotated as shown", "annotated as stored"])
def test_pictures_on_their_side(tmp_path, shown):
    """A file 8 wide and 6 high that is shown 6 wide and 8 high; pixel (x, y) as stored is shown at (5 - y, x)."""
    save_picture(tmp_path / "a.jpg", orientation=ON_ITS_SIDE)
    corner = [(0, 0), (2, 0), (2, 1), (0, 1)] if not shown else [(5, 0), (6, 0), (6, 2), (5, 2)]
    size = {"width": 6, "height": 8} if shown else {}
    source = coco([coco_image(1, "a.jpg", **size)], [polygons(1, COW, corner)])
    told = data.import_masks("coco", write_json(tmp_path / "s.json", source), tmp_path / "out")
    assert found(tmp_path / "out") == {"a": expected((1, (5, 6), (0, 2)), size=(8, 6))}
    assert len(told.notes) == (0 if shown else 1)
    assert shown or "turned like its picture" in told.notes.lines()[0]


def test_all_faults_are_told_at_once_with_counts(tmp_path):
    images = [coco_image(number, f"{number}.png") for number in range(1, 12)] + [coco_image(12, "gone.png")]
    for number in range(1, 12):
        save_picture(tmp_path / f"{number}.png", size=(WIDTH, 7) if number <= 7 else (WIDTH, HEIGHT))
    (tmp_path / "11.png").write_bytes(b"no picture")
    annotations = [
        polygons(8, 99, SQUARE),
        polygons(8, COW, SQUARE[:2]),
        {"image_id": 9, "category_id": COW, "bbox": [0, 0, 1, 1], "segmentation": []},
        {"image_id": 9, "category_id": COW, "segmentation": {"size": [6, 8], "counts": [3, 3]}},
        {"image_id": 9, "segmentation": [ring(SQUARE)]},
        polygons(77, COW, SQUARE),
        polygons(10, COW, SQUARE),
    ]
    path = write_json(tmp_path / "s.json", coco(images, annotations))
    message = failure(data.import_masks, "coco", path, tmp_path / "out")
    assert message.startswith("The source has 15 faults:\n")
    assert "7 masks of another size than their pictures: 1 (8x6, picture 8x7), 2 (" in message
    assert " and 2 more. Export such a mask again" in message
    assert "5 pictures with broken annotations: annotation 1 of picture 8 (category 99 is not listed)" in message
    assert "1 picture that is not there: gone.png. Say with --images DIR" in message
    assert "1 annotation of a picture that is not listed: 6 of picture 77" in message
    assert "11 is no picture of a known format" in message
    assert not (tmp_path / "out").exists()
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []
    told = data.import_masks("coco", path, tmp_path / "out", skip_broken=True)
    assert found(tmp_path / "out") == {"10": expected((1, (1, 5), (1, 5)))}
    assert len(told.left_out) == 15
    every = told.left_out.to_dict()
    assert len(every["masks of another size than their pictures"]) == 7
    assert any("only a box" in item for item in every["pictures with broken annotations"])
    assert any("'category_id' is missing" in item for item in every["pictures with broken annotations"])
    assert any("add up to 8 x 6 pixels, got 6" in item for item in every["pictures with broken annotations"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "s.json is damaged"),
        ("[1]", "not in COCO's format: it has no list images and no list annotations"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1}]}', "'name' is missing"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "cow"}]}', "has no pictures"),
        ('{"images": [3], "annotations": [4], "categories": [{"id": 1, "name": "cow"}]}', "2 pictures with broken"),
        ('{"images": [], "annotations": [], "categories": []}', "has no pictures"),
    ],
)
def test_files_that_are_not_coco(tmp_path, content, message):
    (tmp_path / "s.json").write_text(content)
    assert message in failure(data.import_masks, "coco", tmp_path / "s.json", tmp_path / "out")


def test_a_source_that_is_not_there_and_an_unknown_format(tmp_path):
    assert "There is no" in failure(data.import_masks, "coco", tmp_path / "x.json", tmp_path / "o", kind=BadUsage)
    message = failure(data.import_masks, "yolo", tmp_path, tmp_path / "o", kind=BadUsage)
    assert "Unknown format 'yolo'. Available options are: coco, cityscapes, labelme" in message


def test_file_names_never_lead_out_of_the_folder_of_pictures(tmp_path):
    save_picture(tmp_path / "secret.png")
    save_picture(tmp_path / "in" / "a.png")
    for name in ("../secret.png", str(tmp_path / "secret.png")):
        path = write_json(tmp_path / "in" / "s.json", coco([coco_image(1, name)], []))
        assert "1 picture that is not there" in failure(data.import_masks, "coco", path, tmp_path / "out")
    windows = coco([coco_image(1, "C:\\photos\\a.png")], [polygons(1, COW, PIXELS)])
    data.import_masks("coco", write_json(tmp_path / "in" / "s.json", windows), tmp_path / "out")
    assert found(tmp_path / "out") == {"a": expected((1, (3, 7), (3, 6)))}
