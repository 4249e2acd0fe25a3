"""L_ce against its equation."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from slow_losses import a_few, batches, random_labels, reference_cross_entropy, seeds, sides

from joem.errors import BadUsage
from joem.losses import VARIANTS, seen_cross_entropy
from joem.vocabulary import VOID


@a_few
@given(batches, sides, sides, sides, sides, st.integers(1, 5), seeds, st.sampled_from(VARIANTS))
def test_cross_entropy_is_the_equation(batch, height, width, rows, columns, classes, seed, variant):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, classes, height, width, generator=generator, dtype=torch.float64)
    labels = random_labels(generator, batch, (rows, columns), classes)  # with pixels of unseen classes
    seen = [c for c in range(classes) if c == 0 or torch.rand(1, generator=generator) < 0.6]
    loss = seen_cross_entropy(logits, labels, seen, variant=variant)
    assert loss.item() == pytest.approx(reference_cross_entropy(logits, labels, seen, variant), abs=1e-12)


def test_official_cross_entropy_is_torch_s_own_at_full_resolution():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, 6, 7, generator=generator)
    labels = random_labels(generator, 2, (24, 28), 3)
    full = F.interpolate(logits, size=(24, 28), mode="bilinear", align_corners=True)
    expected = F.cross_entropy(full, labels, ignore_index=255)
    torch.testing.assert_close(seen_cross_entropy(logits, labels, range(3), variant="official"), expected)


@pytest.mark.parametrize(("variant", "expected"), [("paper", math.log(2)), ("official", math.log(5))])
def test_unseen_classes_are_in_the_softmax_of_the_official_variant_only(variant, expected):
    loss = seen_cross_entropy(torch.zeros(1, 5, 2, 2), torch.tensor([[[0, 3], [3, 255]]]), [0, 3], variant=variant)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pixels_of_unseen_classes_do_not_count(variant):
    logits = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    labels = torch.zeros(1, 4, 4).long()
    labels[0, 2:] = 2
    loss = seen_cross_entropy(logits, labels, [0, 1], variant=variant)
    assert loss == seen_cross_entropy(logits, labels.masked_fill(labels == 2, VOID), [0, 1], variant=variant)
    loss.backward()
    assert logits.grad[:, :, :2].any()
    assert not logits.grad[:, :, 2:].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_cross_entropy_gradient(variant):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 4, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = random_labels(generator, 2, (5, 5), 4)
    assert torch.autograd.gradcheck(lambda x: seen_cross_entropy(x, labels, [0, 2, 3], variant=variant), logits)


def test_seen_may_be_indices_or_booleans_of_any_kind():
    logits = torch.randn(1, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    labels = torch.tensor([[[0, 2], [0, 255]]])
    expected = seen_cross_entropy(logits, labels, [2, 0])
    for seen in (
        (0, 2),
        np.array([0, 2]),
        torch.tensor([0, 2]),
        [True, False, True],
        np.array([1, 0, 1], dtype=bool),
    ):
        assert seen_cross_entropy(logits, labels, seen) == expected


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([3], "Class 3 does not exist: class indices go from 0 to 2"),
        ([-1], "Class -1 does not exist"),
        ([True, False], "one boolean per class, 3, got 2"),
        ([], "seen is empty"),
        ([False] * 3, "seen is empty"),
    ],
)
def test_cross_entropy_says_what_is_wrong_with_seen(seen, message):
    with pytest.raises(BadUsage, match=message):
        seen_cross_entropy(torch.zeros(1, 3, 2, 2), torch.zeros(1, 2, 2).long(), seen)


def test_cross_entropy_says_what_is_wrong_with_labels():
    with pytest.raises(BadUsage, match="labels hold 3, expected 0 to 2"):
        seen_cross_entropy(torch.zeros(1, 3, 2, 2), torch.full((1, 2, 2), 3), [0])
