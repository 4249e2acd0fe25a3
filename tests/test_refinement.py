"""Refined outlines against the guided filter written out window by window."""

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


def slowly_filtered(mask, pixels):
    """The guided filter as it is defined: a ridge regression in every window, then a mean over windows."""
    guide, (height, width) = pixels.double().numpy() / 255, mask.shape

    def window(y, x):
        reach = refinement.RADIUS
        rows, columns = range(y - reach, y + reach + 1), range(x - reach, x + reach + 1)
        return [(v, u) for v in rows for u in columns if 0 <= v < height and 0 <= u < width]

    fits = {}
    for y in range(height):
        for x in range(width):
            colours = np.array([guide[:, v, u] for v, u in window(y, x)])
            targets = np.array([float(mask[v, u]) for v, u in window(y, x)])
            centred = colours - colours.mean(0)
            penalty = len(targets) * refinement.EPSILON * np.eye(3)  # ε times the window's size: a mean, not a sum
            slope = np.linalg.solve(centred.T @ centred + penalty, centred.T @ (targets - targets.mean()))
            fits[y, x] = slope, targets.mean() - slope @ colours.mean(0)
    filtered = np.zeros(mask.shape)
    for y in range(height):
        for x in range(width):
            values = [fits[place][0] @ guide[:, y, x] + fits[place][1] for place in window(y, x)]
            filtered[y, x] = np.mean(values)
    return filtered


@pytest.mark.parametrize("seed", range(3))
def test_labels_are_those_of_the_slow_filter(seed):
    pixels, labels = picture_and_labels(seed, 9, 12, classes=3)
    slow = np.stack([slowly_filtered(labels == label, pixels) for label in range(3)])
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


def edge_and_outline(height, width, edge, outline):
    """A picture with an edge at one column and labels with an outline at another."""
    pixels = torch.zeros(3, height, width, dtype=torch.uint8)
    pixels[:, :, edge:] = 180
    labels = torch.zeros(height, width, dtype=torch.int64)
    labels[:, outline:] = 7
    return pixels, labels


@pytest.mark.parametrize("factor", [1, 4])
def test_an_outline_moves_to_an_edge_near_by_in_pictures_of_any_size(factor):
    side = refinement.SIDE
    pixels, labels = edge_and_outline(factor * side, factor * (side + 30), factor * 60, factor * 63)
    assert torch.equal(refine(labels, pixels), edge_and_outline(*pixels.shape[1:], 0, factor * 60)[1])


def test_without_an_edge_an_outline_stays():
    _, labels = edge_and_outline(100, 120, 0, 63)
    assert torch.equal(refine(labels, torch.full((3, 100, 120), 90, dtype=torch.uint8)), labels)


def test_one_label_needs_no_work():
    labels = torch.full((4, 5), 3)
    assert refine(labels, torch.zeros(3, 4, 5, dtype=torch.uint8)) is labels
