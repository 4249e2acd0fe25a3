"""L_sc against its equation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slow_losses import a_few, reference_consistency, seeds
from torch import nn

from joem.errors import BadUsage
from joem.losses import VARIANTS, semantic_consistency


@a_few
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.floats(0.1, 7), st.floats(0.1, 7), seeds)
def test_consistency_is_the_equation(classes, words, channels, tau_s, tau_mu, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(classes, words, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(classes, channels, generator=generator, dtype=torch.float64)
    expected = reference_consistency(vectors, prototypes, tau_s, tau_mu)
    assert semantic_consistency(vectors, prototypes, tau_s, tau_mu).item() == pytest.approx(expected, abs=1e-10)


def test_many_near_classes_far_from_the_origin_keep_their_relations():
    # From 26 rows on, torch.cdist left to itself uses a matrix product that gives mostly 0 here.
    points = 1000 + torch.arange(30).reshape(30, 1) / 128
    expected = reference_consistency(points, 2 * points, 5, 1)
    assert semantic_consistency(points, 2 * points).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("per_pair", [False, True])
def test_official_consistency_is_torch_s_kl_divergence_without_the_background(per_pair):
    generator = torch.Generator().manual_seed(13)
    vectors, prototypes = torch.randn(5, 3, generator=generator), torch.randn(5, 2, generator=generator)

    def distances(points):
        points = points[[0, 1, 3, 4]]
        return (points[:, None] - points).square().sum(dim=2).sqrt()

    expected = nn.KLDivLoss(reduction="batchmean")(
        torch.log_softmax(-distances(prototypes), dim=1), torch.softmax(-7 * distances(vectors), dim=1)
    )
    loss = semantic_consistency(vectors, prototypes, tau_s=7, variant="official", background=2, per_pair=per_pair)
    torch.testing.assert_close(loss, expected / 4 if per_pair else expected)


def test_consistency_by_hand():
    # Two classes at distance log 3 / 5 and log 2: r = (3/4, 1/4), r^ = (2/3, 1/3), each row the same.
    vectors = torch.tensor([[0.0], [math.log(3) / 5]], dtype=torch.float64)
    prototypes = torch.tensor([[0.0], [math.log(2)]], dtype=torch.float64)
    expected = -2 * (3 / 4 * math.log(8 / 9) + 1 / 4 * math.log(4 / 3))
    assert semantic_consistency(vectors, prototypes).item() == pytest.approx(expected)
    assert semantic_consistency(vectors, prototypes, variant="official").item() == pytest.approx(expected / 2)


def test_consistency_gradient():
    generator = torch.Generator().manual_seed(14)
    vectors = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda points: semantic_consistency(vectors, points), prototypes)


def test_equal_prototypes_have_a_finite_gradient():
    prototypes = torch.ones(3, 2, requires_grad=True)
    semantic_consistency(torch.eye(3), prototypes).backward()
    assert prototypes.grad.isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("background", [None, 0])
def test_one_class_is_always_consistent(variant, background):
    prototypes = torch.randn(1, 3, requires_grad=True)
    loss = semantic_consistency(torch.randn(1, 2), prototypes, variant=variant, background=background)
    assert loss == 0
    loss.backward()
    assert not prototypes.grad.any()


@pytest.mark.parametrize(
    ("vectors", "prototypes", "options", "message"),
    [
        ((3, 2), (4, 2), {}, "same classes, got 3 and 4 rows"),
        ((3,), (3, 2), {}, "vectors must have 2 dimensions"),
        ((3, 2), (3, 2, 1), {}, "prototypes must have 2 dimensions"),
        ((3, 2), (3, 2), {"background": 3}, "0 to 2, or None, got 3"),
        ((3, 2), (3, 2), {"variant": "code"}, "Unknown variant 'code'"),
    ],
)
def test_consistency_says_what_is_wrong(vectors, prototypes, options, message):
    with pytest.raises(BadUsage, match=message):
        semantic_consistency(torch.zeros(vectors), torch.zeros(prototypes), **options)
