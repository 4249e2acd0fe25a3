"""The boundary F-score of benchmarks/refinement.py against loops over pixels."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("skimage")
FILE = Path(__file__).parents[1] / "benchmarks" / "refinement.py"
SPECIFICATION = importlib.util.spec_from_file_location("refinement_benchmark", FILE)
benchmark = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(benchmark)

SHAPES = st.shared(st.tuples(st.integers(2, 8), st.integers(2, 8)), key="shape")
LABELS = arrays.arrays(np.int64, SHAPES, elements=st.integers(0, 2))


def slow_outline(labels, label):
    """Pixels of a label with another label above, below, left or right of them."""
    height, width = labels.shape
    return [
        (y, x)
        for y in range(height)
        for x in range(width)
        if labels[y, x] == label
        and any(
            0 <= v < height and 0 <= u < width and labels[v, u] != label
            for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1))
        )
    ]


def share_near(points, others, distance):
    met = [any(math.dist(point, other) <= distance for other in others) for point in points]
    return sum(met) / len(met) if met else 0.0


def slow_score(truth, predicted, tolerance):
    distance, found = tolerance * math.hypot(*truth.shape), []
    for label in range(3):
        true, told = slow_outline(truth, label), slow_outline(predicted, label)
        if true or told:
            precision, recall = share_near(told, true, distance), share_near(true, told, distance)
            found.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return 100 * sum(found) / len(found) if found else math.nan


@settings(deadline=None)
@given(LABELS, LABELS, st.sampled_from([0.0075, 0.11, 0.3]))
def test_the_score_is_that_of_its_definition(truth, predicted, tolerance):
    expected = slow_score(truth, predicted, tolerance)
    assert benchmark.boundary_f(truth, predicted, tolerance) == pytest.approx(expected, nan_ok=True)


def test_void_pixels_take_the_nearest_label():
    labels = np.array([[1, 255, 255, 255, 255, 2], [255] * 6])
    assert benchmark.filled(labels).tolist() == [[1, 1, 1, 2, 2, 2]] * 2
