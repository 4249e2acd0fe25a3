"""Regions, run lengths and polygons against slow loops; the forms of other tools, read back as they are defined."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from joem import Result
from joem.errors import BadUsage, JoemError
from joem.exchange import WRITERS, components, join, polygons, regions, run_lengths, simplified

MASKS = arrays.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def flooded(mask):
    """Which pixels are connected, by walking from pixel to pixel."""
    found, count = np.zeros(mask.shape, int), 0
    for seed in zip(*np.nonzero(mask), strict=True):
        if found[seed]:
            continue
        count += 1
        waiting = [seed]
        while waiting:
            y, x = waiting.pop()
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1] and mask[y, x] and not found[y, x]:
                found[y, x] = count
                waiting += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return found


@settings(deadline=None)
@given(MASKS)
def test_regions_are_those_of_a_walk(mask):
    found, expected = components(mask), flooded(mask)
    assert found.max(initial=0) == expected.max(initial=0)
    pairs = set(zip(found[mask].tolist(), expected[mask].tolist(), strict=True))
    assert len(pairs) == expected.max(initial=0)
    assert not found[~mask].any()


def decoded(told):
    """A mask from COCO's run lengths, which alternate between 0 and 1, column by column."""
    values = [value for number, count in enumerate(told["counts"]) for value in [number % 2] * count]
    height, width = told["size"]
    return np.array(values, bool).reshape(width, height).T


@given(MASKS)
def test_run_lengths_give_the_mask_back(mask):
    told = run_lengths(mask)
    assert told["size"] == list(mask.shape)
    assert np.array_equal(decoded(told), mask)


def distance_to_outline(point, corners):
    """From a point to the nearest side of a closed outline."""
    distances = []
    for start, stop in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        side = stop - start
        along = np.clip(np.dot(point - start, side) / max(np.dot(side, side), 1e-12), 0, 1)
        distances.append(np.linalg.norm(point - start - along * side))
    return min(distances)


@settings(deadline=None)
@given(MASKS, st.sampled_from([0.3, 1.0, 2.0]))
def test_a_simplified_outline_passes_every_point_within_the_tolerance(mask, tolerance):
    for outline in polygons(mask):
        ring = np.array(outline).reshape(-1, 2)
        assert np.array_equal(ring[0], ring[-1])
        corners = simplified(ring[:-1], tolerance)
        assert 3 <= len(corners) <= len(ring) - 1
        assert max(distance_to_outline(point, corners) for point in ring) <= tolerance + 1e-9


def test_a_rectangle_has_four_sides_near_its_own():
    mask = np.zeros((8, 10), bool)
    mask[2:6, 3:9] = True
    (outline,) = polygons(mask)
    points = np.array(outline).reshape(-1, 2)
    assert points.min(0).tolist() == pytest.approx([3.0, 2.0], abs=0.51)
    assert points.max(0).tolist() == pytest.approx([9.0, 6.0], abs=0.51)


def test_a_result_goes_to_coco_and_can_be_cut_out():
    labels = torch.zeros(6, 8, dtype=torch.int64)
    labels[1:3, 1:3], labels[4:6, 5:8] = 1, 1
    pixels = torch.randint(0, 256, (3, 6, 8), dtype=torch.uint8)
    result = Result(labels, ("background", "cow", "dog"), ("dog",), pixels, "background")
    found = result.to_coco("rle", "a.jpg")
    assert found["images"] == [{"id": 1, "width": 8, "height": 6, "file_name": "a.jpg"}]
    assert {"info", "licenses"} < set(found)
    assert [each["name"] for each in found["categories"]] == ["cow", "dog"]
    assert [(each["bbox"], each["area"]) for each in found["annotations"]] == [([1, 1, 2, 2], 4), ([5, 4, 3, 2], 6)]
    assert {each["category_id"] for each in found["annotations"]} == {2}
    assert all(len(each["segmentation"][0]) >= 6 for each in result.to_coco()["annotations"])
    cut = np.asarray(result.cut_out("cow"))
    assert np.array_equal(cut[..., 3] == 255, labels.numpy() == 1)
    assert np.array_equal(cut[..., :3], pixels.permute(1, 2, 0).numpy())
    with pytest.raises(BadUsage, match="Available options are: polygon, rle"):
        result.to_coco("png")


@pytest.fixture
def result():
    """Two cows, one with a hole, and a dog, on a background; the score grows from left to right."""
    labels = torch.zeros(20, 40, dtype=torch.int64)
    labels[2:12, 2:12], labels[5:8, 5:8] = 1, 0
    labels[2:12, 20:30], labels[14:18, 5:35] = 1, 2
    pixels = torch.randint(0, 256, (3, 20, 40), dtype=torch.uint8)
    score = (torch.arange(40) / 100).expand(20, 40)
    names = ("background", "cow", "a/b: dog")
    return Result(labels, names, names[2:], pixels, "background", lambda: [score / 2], score=lambda: [score])


def test_cvat_gets_exact_masks_with_their_scores(result):
    found = result.to_cvat("a.jpg")
    names = {each["id"]: each["name"] for each in found["categories"]}
    back = np.zeros((20, 40), int)
    for each in found["annotations"]:
        mask = decoded(each["segmentation"])
        back[mask] = result.names.index(names[each["category_id"]])
        assert each["score"] == pytest.approx(float(result.scores().numpy()[mask].mean()), abs=1e-4)
    assert np.array_equal(back, result.labels.numpy())
    assert found["images"][0]["file_name"] == "a.jpg"


def test_without_calibration_a_region_is_scored_by_its_confidence(result):
    scored = [each["score"] for each in result.to_cvat("a.jpg")["annotations"]]
    uncalibrated = [each["score"] for each in replace(result, score=None).to_cvat("a.jpg")["annotations"]]
    assert uncalibrated == pytest.approx([each / 2 for each in scored], abs=1e-4)
    neither = replace(result, score=None, certainty=None).to_cvat("a.jpg")["annotations"]
    assert all("score" not in each for each in neither)


def test_pixels_taken_back_for_their_score_are_in_no_annotation(result):
    assert [region.label for region in regions(result.at_least(0.5))] == []
    assert [region.box for region in regions(result.at_least(0.2))] == [(20, 2, 30, 12), (20, 14, 35, 18)]
    assert [each["name"] for each in result.at_least(0.2).to_coco()["categories"]] == ["cow", "a/b: dog"]


def test_label_studio_gets_polygons_in_percent(result):
    task = result.to_label_studio("/data/a.jpg", from_name="kinds")
    (prediction,) = task["predictions"]
    assert task["data"] == {"image": "/data/a.jpg"}
    assert prediction["score"] == pytest.approx(0.195)
    shapes = prediction["result"]
    assert [shape["value"]["polygonlabels"] for shape in shapes] == [["cow"], ["cow"], ["a/b: dog"]]
    assert len({shape["id"] for shape in shapes}) == 3
    for shape, region in zip(shapes, regions(result), strict=True):
        assert (shape["from_name"], shape["to_name"], shape["type"]) == ("kinds", "image", "polygonlabels")
        assert (shape["original_width"], shape["original_height"]) == (40, 20)
        corners = np.array(shape["value"]["points"]) * (0.40, 0.20)
        box = [*corners.min(0), *corners.max(0)]
        assert box == pytest.approx(region.box, abs=1.01)
        assert len(corners) <= 8


def test_supervision_gets_one_detection_for_each_region(result):
    supervision = pytest.importorskip("supervision")
    found = result.to_supervision()
    assert isinstance(found, supervision.Detections)
    assert found.xyxy.tolist() == [[2, 2, 12, 12], [20, 2, 30, 12], [5, 14, 35, 18]]
    assert found.class_id.tolist() == [1, 1, 2]
    assert found.data["class_name"].tolist() == ["cow", "cow", "a/b: dog"]
    assert found.area.tolist() == [91, 100, 120]
    assert found.confidence[2] == pytest.approx(0.195, abs=1e-4)
    assert np.array_equal(found.mask.any(0), result.labels.numpy() > 0)
    nothing = Result(torch.zeros_like(result.labels), result.names, (), result.pixels, "background").to_supervision()
    assert len(nothing) == 0
    assert nothing.mask.shape == (0, 20, 40)


def test_without_supervision_the_error_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(JoemError, match=r'pip install "joem\[supervision\]"'):
        result.to_supervision()


def test_every_form_can_be_written(result, tmp_path):
    written = {kind: write(result, tmp_path, "a.jpg") for kind, write in WRITERS.items()}
    assert all(path.exists() and path.parent == tmp_path for path in written.values())
    read = {kind: json.loads(path.read_text()) for kind, path in written.items() if path.suffix == ".json"}
    assert read["coco"] == json.loads(json.dumps(result.to_coco(file_name="a.jpg")))
    assert read["cvat"] == result.to_cvat("a.jpg")
    assert read["label-studio"] == [result.to_label_studio("a.jpg")]
    assert np.array_equal(np.load(written["scores"])["scores"], result.scores().numpy())
    assert {path.name for path in written["cut-outs"].iterdir()} == {"1-cow.png", "2-a_b_ dog.png"}


def test_data_sets_of_several_pictures_are_joined(result, tmp_path):
    files = [WRITERS["cvat"](result, tmp_path / name, f"{name}.jpg") for name in ("a", "b")]
    whole = json.loads(join(files, tmp_path / "cvat.json").read_text())
    assert [(each["id"], each["file_name"]) for each in whole["images"]] == [(1, "a.jpg"), (2, "b.jpg")]
    assert [each["id"] for each in whole["annotations"]] == [1, 2, 3, 4, 5, 6]
    assert [each["image_id"] for each in whole["annotations"]] == [1, 1, 1, 2, 2, 2]
    assert whole["categories"] == result.to_cvat("a.jpg")["categories"]
