import numpy as np
import torch
from small_data import CLEAN, COW, COWS, EMPTY, Masks

from joem import data
from joem.vocabulary import VOID


def test_class_pixels_equals_counting_one_by_one():
    rng = np.random.default_rng(0)
    masks = [rng.choice([0, 1, 2, VOID], (3, 5)).tolist() for _ in range(6)] + [[[VOID]]]
    counted = torch.zeros(7, 3, dtype=torch.int64)
    for i, mask in enumerate(masks):
        for label in (label for row in mask for label in row if label != VOID):
            counted[i, label] += 1
    dataset = Masks(masks)
    assert torch.equal(data.class_pixels(dataset), counted)
    assert torch.equal(data.class_presence(dataset), counted > 0)


def test_masks_are_read_once():
    dataset = Masks([CLEAN, COWS])
    first = data.class_pixels(dataset)
    dataset.labels = None  # a second scan would fail
    assert data.class_pixels(dataset) is first


def test_describe_counts_images_and_pixels_of_each_class():
    rows = data.describe(Masks([CLEAN, COWS, EMPTY]), COW)
    assert rows == [("background", False, 3, 5), ("dog", False, 2, 3), ("cow", True, 1, 2)]
    assert not any(row.unseen for row in data.describe(Masks([CLEAN, COWS, EMPTY])))
