"""Refined outlines against averages written out pixel by pixel."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import refinement
from joem.refinement import refine


def picture_and_labels(seed, height, width, classes):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
    return pixels, torch.randint(0, classes, (height, width), generator=generator)


def slowly_averaged(mask, pixels):
    """The averages of the module's docstring, for a picture that is not reduced."""
    colours = pixels.double().numpy() / 255
    height, width = mask.shape
    around = [(d * y, d * x) for d in refinement.REACH for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x]

    def at(y, x):
        return min(max(y, 0), height - 1), min(max(x, 0), width - 1)

    weights = {}
    for y in range(height):
        for x in range(width):
            window = [(v, u) for v in range(y - 4, y + 5) for u in range(x - 4, x + 5)]
            inside = np.array([colours[:, v, u] for v, u in window if 0 <= v < height and 0 <= u < width])
            varies = inside.var(0).sum() + 1e-4
            apart = [((colours[:, y, x] - colours[(slice(None), *at(y + v, x + u))]) ** 2).sum() for v, u in around]
            raw = [math.exp(-each / (refinement.SIGMA * varies)) for each in apart]
            weights[y, x] = [each / sum(raw) for each in raw]
    q = mask.double().numpy()
    for _ in range(refinement.ROUNDS):
        q = np.array(
            [
                [
                    sum(w * q[at(y + v, x + u)] for w, (v, u) in zip(weights[y, x], around, strict=True))
                    for x in range(width)
                ]
                for y in range(height)
            ]
        )
    return q


@pytest.mark.parametrize("seed", range(3))
def test_labels_are_those_of_the_slow_averages(seed):
    pixels, labels = picture_and_labels(seed, 9, 12, classes=3)
    slow = np.stack([slowly_averaged(labels == label, pixels) for label in range(3)])
    top = np.sort(slow, axis=0)
    clear = torch.from_numpy(top[2] - top[1] > 1e-4)  # elsewhere two classes tie up to rounding
    assert clear.float().mean() > 0.9
    assert torch.equal(refine(labels, pixels)[clear], torch.from_numpy(slow.argmax(0))[clear])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.integers(1, 30), st.integers(1, 30), st.integers(1, 5))
def test_no_label_appears_and_the_shape_stays(seed, height, width, classes):
    pixels, labels = picture_and_labels(seed, height, width, classes)
    refined = refine(labels, pixels)
    assert refined.shape == labels.shape
    assert refined.dtype == labels.dtype
    assert set(refined.unique().tolist()) <= set(labels.unique().tolist())
    assert torch.equal(refined, refine(labels.clone(), pixels.clone()))


def test_one_label_stays():
    pixels, labels = picture_and_labels(0, 20, 30, classes=1)
    assert torch.equal(refine(labels, pixels), labels)


@pytest.mark.parametrize("factor", [1, 4])
def test_an_outline_moves_to_an_edge_near_by_in_pictures_of_any_size(factor):
    height, width, edge, outline = (factor * each for each in (refinement.SIDE, refinement.SIDE + 30, 60, 63))
    pixels = torch.zeros(3, height, width, dtype=torch.uint8)
    pixels[:, :, edge:] = 180
    labels = torch.zeros(height, width, dtype=torch.int64)
    labels[:, outline:] = 7
    off = [int((row != 7).sum()) - edge for row in refine(labels, pixels)]
    assert max(map(abs, off)) <= factor // 2  # half a pixel of the copy
