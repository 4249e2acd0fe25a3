import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem.errors import BadUsage
from joem.scores import Scores, confusion, scores, trade_off_area
from joem.vocabulary import VOID

a_few = settings(deadline=None, max_examples=60)
percents = st.integers(0, 100)


def random_pair(seed, shape, count):
    generator = np.random.default_rng(seed)
    truth, predicted = generator.integers(0, count, shape), generator.integers(0, count, shape)
    truth[generator.random(shape) < 0.2] = VOID
    return truth, predicted


def reference_iou(truth, predicted, label):
    """Intersection over union of two sets of pixels, in percent."""
    pixels = [(t, p) for t, p in zip(truth, predicted, strict=True) if t != VOID]
    true = {i for i, (t, _) in enumerate(pixels) if t == label}
    found = {i for i, (_, p) in enumerate(pixels) if p == label}
    return 100 * len(true & found) / len(true | found) if true | found else math.nan


def mean(values):
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else math.nan


@a_few
@given(
    st.integers(0, 10_000),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 5),
)
def test_confusion_counts_pixels(seed, shape, count):
    truth, predicted = random_pair(seed, shape, count)
    expected = torch.zeros(count, count, dtype=torch.int64)
    for t, p in zip(truth.flat, predicted.flat, strict=True):
        if t != VOID:
            expected[t, p] += 1
    assert torch.equal(confusion(truth, predicted, count), expected)
    assert torch.equal(confusion(torch.tensor(truth), torch.tensor(predicted), count), expected)
    by_image = sum(confusion(t, p, count) for t, p in zip(truth, predicted, strict=True))
    assert torch.equal(by_image, expected)


def test_confusion_takes_masks_as_files_hold_them(recwarn):
    truth, predicted = (
        np.array([[0, 200], [255, 200]], dtype=np.uint8),
        np.array([[0, 200], [7, 1]], dtype=np.uint8),
    )
    truth.setflags(write=False)
    counts = confusion(truth, predicted, 201)
    assert counts.dtype == torch.int64
    assert counts.nonzero().tolist() == [[0, 0], [200, 1], [200, 200]]
    assert not recwarn.list


def test_a_prediction_may_be_anything_where_the_truth_is_void():
    assert confusion(torch.tensor([255, 0]), torch.tensor([255, 0]), 2).tolist() == [[1, 0], [0, 0]]


def test_confusion_of_a_void_image_is_zero():
    assert confusion(torch.full((2, 2), VOID), torch.zeros(2, 2).long(), 3).tolist() == [[0] * 3] * 3


@a_few
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6), st.data())
def test_scores_are_the_definition(seed, pixels, count, data):
    truth, predicted = random_pair(seed, pixels, count)
    classes = st.sets(st.integers(0, count - 1))
    unseen = sorted(data.draw(classes))
    result = scores(confusion(truth, predicted, count), unseen)

    per_class = [reference_iou(truth, predicted, c) for c in range(count)]
    seen_mean = mean(iou for c, iou in enumerate(per_class) if c not in unseen)
    unseen_mean = mean(iou for c, iou in enumerate(per_class) if c in unseen)
    right = [t == p for t, p in zip(truth, predicted, strict=True) if t != VOID]
    both = seen_mean + unseen_mean
    expected = Scores(
        miou_seen=seen_mean,
        miou_unseen=unseen_mean,
        hiou=0 if both == 0 else 2 * seen_mean * unseen_mean / both,
        miou=mean(per_class),
        pixel_accuracy=100 * sum(right) / len(right) if right else math.nan,
        per_class=tuple(per_class),
    )
    for name, value in vars(expected).items():
        assert getattr(result, name) == pytest.approx(value, nan_ok=True), name


def test_scores_by_hand():
    counts = torch.tensor([[50, 10, 0], [0, 30, 10], [20, 0, 20]])
    result = scores(counts, unseen=[2])
    # 50 / (60 + 70 - 50), 30 / (40 + 40 - 30), 20 / (40 + 30 - 20)
    assert result.per_class == pytest.approx((62.5, 60, 40))
    assert result.miou_seen == pytest.approx(61.25)
    assert result.miou_unseen == pytest.approx(40)
    assert result.hiou == pytest.approx(2 * 61.25 * 40 / 101.25)
    assert result.miou == pytest.approx(162.5 / 3)
    assert result.pixel_accuracy == pytest.approx(100 * 100 / 140)
    assert str(result) == "seen 61.2 unseen 40.0 hIoU 48.4"


def test_scores_are_not_a_mean_over_images():
    # Class 1 fills one image, where it is always missed, and one pixel of another, where it is found.
    truth = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]])
    predicted = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]])
    per_image = mean(scores(confusion(truth[i], predicted[i], 2), [1]).miou_unseen for i in range(2))
    assert per_image == 50
    assert scores(confusion(truth, predicted, 2), [1]).miou_unseen == 20


def test_a_class_that_is_nowhere_is_left_out_but_a_missed_one_is_zero():
    counts = torch.tensor([[8, 0, 0], [0, 0, 0], [2, 0, 0]])
    result = scores(counts, unseen=[2])
    assert math.isnan(result.per_class[1])
    assert result.miou_seen == pytest.approx(80)
    assert result.miou_unseen == result.hiou == 0


@pytest.mark.parametrize(("unseen", "missing"), [([], "miou_unseen"), ([0, 1], "miou_seen")])
def test_without_one_kind_of_class_its_mean_and_the_harmonic_mean_are_nan(unseen, missing):
    result = scores(torch.eye(2).long(), unseen)
    assert math.isnan(getattr(result, missing))
    assert math.isnan(result.hiou)
    assert result.miou == 100


def test_unseen_may_be_booleans_and_the_matrix_an_array():
    counts = np.array([[3, 1], [1, 2]])
    assert scores(counts, [False, True]) == scores(torch.tensor(counts), (1,)) == scores(counts, np.array([1]))


def test_to_dict_is_json_without_nan():
    data = scores(torch.tensor([[1, 1], [0, 0]]), unseen=[]).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        "miou_seen": 25.0,
        "miou_unseen": None,
        "hiou": None,
        "miou": 25.0,
        "pixel_accuracy": 50.0,
        "per_class": [50.0, 0.0],
    }


@pytest.mark.parametrize(
    ("truth", "predicted", "message"),
    [
        ([0, 2], [0, 0], "truth holds the label 2, expected 0 to 1"),
        ([0, 0], [0, 2], "predicted holds the label 2, expected 0 to 1"),
        ([0, 0], [0, 255], "predicted holds the label 255"),
        ([0, 0], [-1, 0], "predicted holds the label -1"),
        ([0, 0], [0], r"same shape, got \(2,\) and \(1,\): resize the prediction"),
    ],
)
def test_confusion_says_what_is_wrong(truth, predicted, message):
    with pytest.raises(BadUsage, match=message):
        confusion(np.array(truth), np.array(predicted), 2)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 3), {"unseen": []}, r"must be square, got \(2, 3\)"),
        ((2, 2), {"unseen": [2]}, "Class 2 does not exist"),
        ((2, 2), {"unseen": [True]}, "one boolean per class, 2, got 1"),
    ],
)
def test_scores_say_what_is_wrong(shape, options, message):
    with pytest.raises(BadUsage, match=message):
        scores(torch.zeros(shape), **options)


@pytest.mark.parametrize(
    ("seen", "unseen", "area"),
    [
        ([60], [20], 12),  # one setting: its rectangle
        ([100], [100], 100),
        ([60, 50], [10, 20], (50 * 20 + 10 * 15) / 100),
        ([50, 60, 55], [20, 10, 9], (50 * 20 + 10 * 15) / 100),  # the third is beaten
        ([50, 50, 50], [20, 10, 20], 10),  # equal in one score, or in both
        ([70, 0], [0, 30], 70 * 30 / 2 / 100),
    ],
)
def test_trade_off_area_by_hand(seen, unseen, area):
    assert trade_off_area(seen, unseen) == pytest.approx(area)


@a_few
@given(st.lists(st.tuples(percents, percents), min_size=1, max_size=8))
def test_trade_off_area_is_the_integral_of_the_front(points):
    front = sorted({p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)})
    grid = np.arange(0.005, front[-1][0], 0.01)  # the curve is 0 right of the front
    heights = np.interp(grid, *zip(*front, strict=True))  # level left of it
    area = trade_off_area(*zip(*points, strict=True))
    assert area == pytest.approx(heights.sum() * 0.01 / 100, abs=1e-6)


@pytest.mark.parametrize(
    ("seen", "unseen", "message"),
    [
        ([], [], "at least one, got 0 and 0"),
        ([1], [1, 2], "got 1 and 2"),
        ([1, math.nan], [1, 2], "got nan"),
    ],
)
def test_trade_off_area_says_what_is_wrong(seen, unseen, message):
    with pytest.raises(BadUsage, match=message):
        trade_off_area(seen, unseen)
