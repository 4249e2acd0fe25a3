"""All terms together: gradients, nothing labelled, low precision, parts of a batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slow_losses import (
    Problem,
    a_few,
    batches,
    nearest,
    random_labels,
    reference_consistency,
    reference_cross_entropy,
    reference_regression,
    seeds,
    sides,
)
from torch import nn

from joem.losses import (
    VARIANTS,
    boundary_aware_regression,
    labelled_fraction,
    seen_cross_entropy,
    semantic_consistency,
)
from joem.vocabulary import VOID


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_objective_has_the_gradient_of_the_slow_reference(variant):
    """By differences of the loops above: of features, classifier and semantic encoder, word vectors being given."""
    problem = Problem(seed=21, batch=1, size=(4, 3), image=(9, 7), classes=4, words=3, channels=2)
    problem.labels[problem.labels == 2] = VOID  # the unseen class
    seen, generator = [0, 1, 3], torch.Generator().manual_seed(22)
    bias = torch.randn(4, generator=generator, dtype=torch.float64)
    start = [
        problem.features,
        torch.randn(4, 2, generator=generator, dtype=torch.float64),
        *problem.encoder.parameters(),
    ]
    start = [tensor.detach().clone() for tensor in start]

    def logits(features, classifier):
        return torch.einsum("kc,bchw->bkhw", classifier, features) + bias[:, None, None]

    def objective(features, classifier, weight, shift):
        encoder = nn.Linear(3, 2, dtype=torch.float64)
        del encoder.weight, encoder.bias
        encoder.weight, encoder.bias = weight, shift
        words = problem.vectors[seen]
        return (
            seen_cross_entropy(logits(features, classifier), problem.labels, seen, variant=variant)
            + boundary_aware_regression(features, problem.labels, problem.vectors, encoder, r=2, variant=variant)
            + 0.1 * semantic_consistency(words, words @ weight.T + shift, variant=variant, background=0)
        )

    def slow(features, classifier, weight, shift):
        kept = [1, 3] if variant == "official" else seen
        words = problem.vectors[kept]
        consistency = reference_consistency(words, words @ weight.T + shift, 5.0, 1.0)
        return (
            reference_cross_entropy(logits(features, classifier), problem.labels, seen, variant)
            + reference_regression(
                features,
                problem.labels,
                problem.vectors,
                lambda word: weight.numpy() @ word + shift.numpy(),
                2,
                variant,
            )
            + 0.1 * consistency / (len(kept) if variant == "official" else 1)
        )

    assert objective(*start).item() == pytest.approx(slow(*start), rel=1e-12)
    inputs = [tensor.clone().requires_grad_() for tensor in start]
    found = torch.autograd.grad(objective(*inputs), inputs)
    for which, gradient in enumerate(found):
        for place in np.ndindex(*gradient.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [tensor.clone() for tensor in start]
                moved[which][place] += step
                ends.append(slow(*moved))
            assert gradient[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6), (which, place)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_without_a_labelled_pixel_a_loss_is_zero_and_has_a_gradient(variant, wrapped):
    problem = Problem(seed=15, void=1)
    encoder = nn.Sequential(problem.encoder) if wrapped else problem.encoder
    problem.features.requires_grad_()
    loss = problem.loss(encoder, variant=variant) + seen_cross_entropy(
        problem.features, problem.labels.clone(), [0], variant=variant
    )
    assert loss == 0
    loss.backward()
    assert not problem.features.grad.any()
    assert not problem.encoder.weight.grad.any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_low_precision_is_raised_to_float32(variant):
    problem = Problem(seed=16)
    features, vectors, encoder = problem.features.bfloat16(), problem.vectors.float(), problem.encoder.float()
    problem.features, problem.vectors = features.float().requires_grad_(), vectors
    expected = problem.loss(encoder, variant=variant), problem.loss(nn.Sequential(encoder), variant=variant)
    with torch.autocast("cpu", torch.bfloat16):
        problem.features = features
        losses = problem.loss(encoder, variant=variant), problem.loss(nn.Sequential(encoder), variant=variant)
        entropy = seen_cross_entropy(features, problem.labels.clamp(max=2), [0, 1, 2], variant=variant)
        consistency = semantic_consistency(vectors, vectors.bfloat16())
    assert losses == expected
    assert entropy.dtype == consistency.dtype == torch.float32
    assert entropy == seen_cross_entropy(features.float(), problem.labels.clamp(max=2), [0, 1, 2], variant=variant)


@a_few
@given(seeds, st.sampled_from([1, 2, 3]), st.floats(0, 1))
def test_losses_weighted_by_the_labelled_fraction_are_the_loss_of_the_whole_batch(seed, part, void):
    problem = Problem(seed, batch=6, void=void)
    problem.labels[0] = VOID
    problem.labels[1, 0, 0] = 0
    features = problem.features.requires_grad_()

    def regression(a, b):
        return boundary_aware_regression(features[a:b], problem.labels[a:b], problem.vectors, problem.encoder, r=2)

    starts = range(0, 6, part)
    shares = [labelled_fraction(problem.labels[a : a + part], (6, 5)).double() for a in starts]
    weighted = sum(share * regression(a, a + part) for a, share in zip(starts, shares, strict=True)) / sum(shares)
    inputs = [features, *problem.encoder.parameters()]
    whole = regression(0, 6)
    torch.testing.assert_close(weighted, whole, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        torch.autograd.grad(weighted, inputs), torch.autograd.grad(whole, inputs), rtol=1e-5, atol=1e-8
    )


@a_few
@given(batches, sides, sides, sides, sides, seeds)
def test_labelled_fraction_counts_pixels(batch, height, width, rows, columns, seed):
    labels = random_labels(torch.Generator().manual_seed(seed), batch, (rows, columns), 3)
    labelled = [label != VOID for mask in labels.tolist() for row in nearest(mask, height, width) for label in row]
    fraction = labelled_fraction(labels, (height, width))
    assert fraction.item() == pytest.approx(sum(labelled) / len(labelled), abs=1e-6)
