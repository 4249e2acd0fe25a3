"""Shapes against loops over pixels that are written from the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from joem import exchange
from joem.data.importing import drawing

SIZE = (7, 9)
numbers = st.one_of(st.integers(-3, 12), st.floats(-4, 13, width=32))
corners = st.lists(st.tuples(numbers, numbers), min_size=3, max_size=8)
masks = arrays(bool, st.tuples(st.integers(1, 7), st.integers(1, 7)))


def whole(region, size=SIZE):
    return drawing.paint(size, [(1, [region])]) == 1


def inside(x, y, points):
    """Even-odd: a ray from the point to the left crosses the outline an odd number of times."""
    odd = False
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) * (x1 - x0) / (y1 - y0) <= x:
            odd = not odd
    return odd


def by_pixels(test, size=SIZE):
    return np.array([[test(column + 0.5, row + 0.5) for column in range(size[1])] for row in range(size[0])])


@given(corners)
@settings(max_examples=200, deadline=None)
def test_a_polygon_holds_the_pixels_whose_centre_is_inside(points):
    # Shifted a little, by different amounts, so that no centre is on an edge.
    points = [(round(x * 4) / 4 + 1e-4 * math.pi, round(y * 4) / 4 + 1e-4 * math.sqrt(2)) for x, y in points]
    assert np.array_equal(whole(drawing.polygon(points, SIZE)), by_pixels(lambda x, y: inside(x, y, points)))


def test_neighbours_with_a_common_edge_share_no_pixel_and_leave_none_out():
    left = whole(drawing.polygon([(0, 0), (4.5, 0), (2.5, 7), (0, 7)], SIZE))
    right = whole(drawing.polygon([(4.5, 0), (9, 0), (9, 7), (2.5, 7)], SIZE))
    assert (left ^ right).all()


@given(masks)
@settings(max_examples=100, deadline=None)
def test_outlines_that_joem_writes_come_back(mask):
    filled = np.zeros(mask.shape, bool)
    for outline in exchange.polygons(mask):
        filled |= whole(drawing.polygon(np.reshape(outline, (-1, 2)), mask.shape), mask.shape)
    assert (filled | ~mask).all()  # all of it, and the holes that outlines leave out
    if (exchange.components(~np.pad(mask, 1)) <= 1).all():
        assert np.array_equal(filled, mask)


@given(masks)
@settings(max_examples=100, deadline=None)
def test_run_lengths_that_joem_writes_come_back(mask):
    told = exchange.run_lengths(mask)
    assert np.array_equal(drawing.run_lengths(told["counts"], tuple(told["size"]), "columns"), mask)
    by_rows = exchange.run_lengths(mask.T)["counts"]
    assert np.array_equal(drawing.run_lengths(by_rows, mask.shape, "rows"), mask)


def compressed(counts):
    """COCO's text for run lengths, written from the description of the format."""
    text = ""
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        while True:
            group, value = value & 31, value >> 5
            last = value == (-1 if group & 16 else 0)
            text += chr(48 + group + (0 if last else 32))
            if last:
                break
    return text


@given(st.lists(st.integers(0, 5000), max_size=12))
@settings(deadline=None)
def test_compressed_run_lengths(counts):
    assert drawing.coco_counts(compressed(counts)) == counts


@pytest.mark.parametrize("degrees", [0, 30, 90, 200.5])
def test_turned_boxes_and_ellipses(degrees):
    turn = math.radians(degrees)

    def along(x, y):
        """Where a point is, seen from the middle (4.1, 3.2) in the directions of the shape."""
        x, y = x - 4.1, y - 3.2
        return x * math.cos(turn) + y * math.sin(turn), y * math.cos(turn) - x * math.sin(turn)

    box = drawing.box(4.1 - 3.3, 3.2 - 1.2, 4.1 + 3.3, 3.2 + 1.2, degrees, SIZE)
    assert np.array_equal(whole(box), by_pixels(lambda x, y: abs(along(x, y)[0]) < 3.3 and abs(along(x, y)[1]) < 1.2))
    ellipse = drawing.ellipse(4.1, 3.2, 3.3, 1.2, degrees, SIZE)
    expected = by_pixels(lambda x, y: (along(x, y)[0] / 3.3) ** 2 + (along(x, y)[1] / 1.2) ** 2 <= 1)
    assert np.array_equal(whole(ellipse), expected)
    assert 0 < ellipse.area == expected.sum() < expected.size


def test_the_last_shape_lies_on_top_and_the_rest_is_nothing():
    square = drawing.polygon([(0, 0), (2, 0), (2, 2), (0, 2)], (3, 3))
    pixel = drawing.polygon([(1, 1), (2, 1), (2, 2), (1, 2)], (3, 3))
    labels = drawing.paint((3, 3), [(4, [square]), (5, [pixel])])
    nothing = drawing.NOTHING
    assert labels.tolist() == [[4, 4, nothing], [4, 5, nothing], [nothing] * 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drawing.polygon([(0, 0), (1, 1)], SIZE), "three or more corners"),
        (lambda: drawing.polygon([(0, 0), (1, math.nan), (2, 2)], SIZE), "no number"),
        (lambda: drawing.polygon([(0, 0), (1, 1e300), (2, 2)], SIZE), "far outside"),
        (lambda: drawing.ellipse(1, 1, 0, 2, 0, SIZE), "two radii above zero"),
        (lambda: drawing.ellipse(1, 1, math.nan, 2, 0, SIZE), "two radii above zero"),
        (lambda: drawing.run_lengths([3, 3], (2, 2), "rows"), "add up to 2 x 2 pixels, got 6"),
        (lambda: drawing.run_lengths([6, -2], (2, 2), "rows"), "add up to"),
        (lambda: drawing.coco_counts("0 "), "character ' '"),
        (lambda: drawing.coco_counts("0o"), "middle of a number"),
    ],
)
def test_broken_shapes_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
