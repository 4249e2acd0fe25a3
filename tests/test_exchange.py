"""Regions, run lengths and polygons against slow loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from joem import Result
from joem.errors import BadUsage
from joem.exchange import components, polygons, run_lengths

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


@given(MASKS)
def test_run_lengths_give_the_mask_back(mask):
    told = run_lengths(mask)
    values = [value for number, count in enumerate(told["counts"]) for value in [number % 2] * count]
    assert told["size"] == list(mask.shape)
    assert np.array_equal(np.array(values, bool).reshape(mask.shape[::-1]).T, mask)


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
    assert [each["name"] for each in found["categories"]] == ["cow", "dog"]
    assert [(each["bbox"], each["area"]) for each in found["annotations"]] == [([1, 1, 2, 2], 4), ([5, 4, 3, 2], 6)]
    assert {each["category_id"] for each in found["annotations"]} == {2}
    assert all(len(each["segmentation"][0]) >= 6 for each in result.to_coco()["annotations"])
    cut = np.asarray(result.cut_out("cow"))
    assert np.array_equal(cut[..., 3] == 255, labels.numpy() == 1)
    assert np.array_equal(cut[..., :3], pixels.permute(1, 2, 0).numpy())
    with pytest.raises(BadUsage, match="Available options are: polygon, rle"):
        result.to_coco("png")
