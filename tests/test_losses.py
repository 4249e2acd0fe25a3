import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from joem.errors import BadUsage
from joem.losses import (
    boundary_aware_regression,
    center_regression,
    class_mask,
    labelled_fraction,
    seen_cross_entropy,
    semantic_consistency,
)
from joem.vocabulary import VOID

VARIANTS = ("paper", "official")
a_few = settings(deadline=None, max_examples=40)
batches = st.integers(1, 3)
sides = st.integers(1, 7)
seeds = st.integers(0, 10_000)


# The references: loops over pixels and classes, in float64, straight from the equations.


def nearest(image, height, width):
    """torch's mode="nearest": the source of i is floor(i * in / out), with the ratio in float32."""

    def source(i, size_in, size_out):
        return min(math.floor(np.float32(i) * np.float32(size_in / size_out)), size_in - 1)

    rows, columns = len(image), len(image[0])
    return [[image[source(i, rows, height)][source(j, columns, width)] for j in range(width)] for i in range(height)]


def bilinear(image, height, width, corners=False):
    """Corners aligned, or pixel centres (align_corners=False), borders repeated; the values may be vectors."""

    def neighbours(i, size_in, size_out):
        if corners:
            x = i * (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
        else:
            x = max(0.0, (i + 0.5) * size_in / size_out - 0.5)
        low = min(math.floor(x), size_in - 1)
        return low, min(low + 1, size_in - 1), x - low

    result = []
    for i in range(height):
        top, bottom, down = neighbours(i, len(image), height)
        row = []
        for j in range(width):
            left, right, across = neighbours(j, len(image[0]), width)
            upper = (1 - across) * image[top][left] + across * image[top][right]
            lower = (1 - across) * image[bottom][left] + across * image[bottom][right]
            row.append((1 - down) * upper + down * lower)
        result.append(row)
    return result


def reference_cross_entropy(logits, labels, seen, variant):
    total, count = 0.0, 0
    for image, labelled in zip(logits.numpy().transpose(0, 2, 3, 1), labels.tolist(), strict=True):
        if variant == "paper":
            classes, scores, mask = seen, image, nearest(labelled, len(image), len(image[0]))
        else:
            classes, mask = range(logits.shape[1]), labelled
            scores = bilinear(image, len(mask), len(mask[0]), corners=True)
        for i, row in enumerate(mask):
            for j, label in enumerate(row):
                if label in seen:
                    total -= scores[i][j][label] - math.log(sum(math.exp(scores[i][j][c]) for c in classes))
                    count += 1
    return total / max(count, 1)


def reference_regression(features, labels, vectors, encode, r, variant):
    channels, height, width = features.shape[1:]
    small = max(1, height // r), max(1, width // r)
    words = dict(enumerate(vectors.numpy())) | {VOID: np.zeros(vectors.shape[1])}
    total, count = 0.0, 0
    for v, mask in zip(features.numpy(), labels.tolist(), strict=True):
        fine = nearest(mask, height, width)
        coarse = nearest(fine if variant == "paper" else mask, *small)
        stacked = bilinear([[words[label] for label in row] for row in coarse], height, width)
        for i in range(height):
            for j in range(width):
                if fine[i][j] == VOID:
                    continue
                squared = sum((v[c, i, j] - encode(stacked[i][j])[c]) ** 2 for c in range(channels))
                total += math.sqrt(squared) if variant == "paper" else squared / channels
                count += 1
    return total / max(count, 1)


def reference_consistency(vectors, prototypes, tau_s, tau_mu):
    def relations(points, tau):
        near = [[math.exp(-tau * math.dist(a, b)) for b in points] for a in points]
        return [[value / sum(row) for value in row] for row in near]

    r, r_hat = relations(vectors.tolist(), tau_s), relations(prototypes.tolist(), tau_mu)
    n = len(r)
    return -sum(r[i][j] * math.log(r_hat[i][j] / r[i][j]) for i in range(n) for j in range(n))


def random_labels(generator, batch, size, count, void=0.25):
    labels = torch.randint(0, count, (batch, *size), generator=generator)
    return labels.masked_fill(torch.rand(labels.shape, generator=generator) < void, VOID)


class Problem:
    """Random features, labels, word vectors and a linear encoder, in float64."""

    def __init__(self, seed=0, batch=2, size=(6, 5), image=(9, 8), classes=4, words=5, channels=3, void=0.25):
        generator = torch.Generator().manual_seed(seed)
        self.features = torch.randn(batch, channels, *size, generator=generator, dtype=torch.float64)
        self.labels = random_labels(generator, batch, image, classes, void)
        self.vectors = torch.randn(classes, words, generator=generator, dtype=torch.float64)
        self.encoder = nn.Linear(words, channels, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.encoder.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def encode(self, word):
        weight, bias = self.encoder.weight.detach().numpy(), self.encoder.bias.detach().numpy()
        return weight @ word + bias

    def loss(self, encoder=None, **options):
        return boundary_aware_regression(self.features, self.labels, self.vectors, encoder or self.encoder, **options)

    def gradients(self, encoder=None, **options):
        """Of the features, the vectors, the weight and the bias."""
        inputs = (self.features, self.vectors, *self.encoder.parameters())
        for tensor in inputs:
            tensor.requires_grad_()
        return torch.autograd.grad(self.loss(encoder, **options), inputs)


# Cross entropy


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


# Regression


@a_few
@given(
    batches,
    sides,
    sides,
    sides,
    sides,
    st.integers(1, 5),
    st.integers(1, 5),
    seeds,
    st.sampled_from(VARIANTS),
)
def test_regression_is_the_equation(batch, height, width, rows, columns, classes, r, seed, variant):
    problem = Problem(seed, batch, (height, width), (rows, columns), classes)
    expected = reference_regression(problem.features, problem.labels, problem.vectors, problem.encode, r, variant)
    assert problem.loss(r=r, variant=variant).item() == pytest.approx(expected, abs=1e-10)
    assert problem.loss(nn.Sequential(problem.encoder), r=r, variant=variant).item() == pytest.approx(
        expected, abs=1e-10
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_regression_with_a_nonlinear_encoder_is_the_equation(variant):
    problem = Problem(seed=5)
    encoder = nn.Sequential(problem.encoder, nn.ReLU())
    expected = reference_regression(
        problem.features, problem.labels, problem.vectors, lambda s: problem.encode(s).clip(0), 2, variant
    )
    assert problem.loss(encoder, r=2, variant=variant).item() == pytest.approx(expected, abs=1e-10)


@a_few
@given(batches, sides, sides, st.integers(1, 5), st.integers(1, 5), seeds, st.sampled_from(VARIANTS))
def test_both_paths_have_the_same_gradients(batch, height, width, classes, r, seed, variant):
    problem = Problem(seed, batch, (height, width), (2 * height, 2 * width), classes)
    linear = problem.gradients(r=r, variant=variant)
    general = problem.gradients(nn.Sequential(problem.encoder), r=r, variant=variant)
    torch.testing.assert_close(linear, general, rtol=1e-9, atol=1e-10)


def test_official_regression_is_torch_s_mse():
    problem = Problem(seed=6, size=(8, 8), image=(32, 32))
    labels = problem.labels[:, ::8, ::8]  # nearest from 32 to 4 = 8 * the code's ratio of .5
    words = torch.cat([problem.vectors, torch.zeros(1, 5, dtype=torch.float64)])[labels.masked_fill(labels == 255, 4)]
    words = F.interpolate(words.permute(0, 3, 1, 2), size=(8, 8), mode="bilinear", align_corners=False)
    prototypes = problem.encoder(words.permute(0, 2, 3, 1))
    labelled = problem.labels[:, ::4, ::4] != 255
    expected = F.mse_loss(problem.features.permute(0, 2, 3, 1)[labelled], prototypes[labelled])
    torch.testing.assert_close(problem.loss(r=2, variant="official"), expected)


@pytest.mark.parametrize(("variant", "expected"), [("paper", 2.5), ("official", 5.078125)])
def test_regression_by_hand(variant, expected):
    # Columns of s~ are 0, 1/4, 3/4 and 1 of the way from (0,0) to (3,4): 0, 1.25, 3.75 and 5 away from v = 0.
    labels, words = torch.tensor([[[0, 1], [0, 1]]]), torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    loss = boundary_aware_regression(torch.zeros(1, 2, 4, 4), labels, words, nn.Identity(), r=2, variant=variant)
    assert loss.item() == pytest.approx(expected)


def test_the_variants_shrink_labels_by_another_way():
    # 7 -> 5 -> 2 picks columns 0 and 2, 7 -> 2 picks columns 0 and 3.
    labels = torch.tensor([[[0, 0, 1, 0, 0, 0, 0]]])
    losses = [
        boundary_aware_regression(
            torch.zeros(1, 1, 1, 5), labels, torch.tensor([[0.0], [1.0]]), nn.Identity(), r=2, variant=variant
        ).item()
        for variant in VARIANTS
    ]
    assert losses[0] == pytest.approx((0 + 0.1 + 0.5 + 0.9 + 1) / 5)
    assert losses[1] == 0


def test_center_regression_is_r_1():
    problem = Problem(seed=7)
    for variant in VARIANTS:
        loss = center_regression(problem.features, problem.labels, problem.vectors, problem.encoder, variant=variant)
        assert loss == problem.loss(r=1, variant=variant)
        assert loss != problem.loss(r=2, variant=variant)


class Regression(nn.Module):
    """The loss as a module, so that `functional_call` can put other weights into its encoder."""

    def __init__(self, encoder, labels, variant):
        super().__init__()
        self.encoder, self.labels, self.variant = encoder, labels, variant

    def forward(self, features, vectors):
        return boundary_aware_regression(features, self.labels, vectors, self.encoder, r=2, variant=self.variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_regression_gradient(variant, wrapped):
    problem = Problem(seed=8, size=(4, 3), image=(8, 6), classes=3)
    encoder = nn.Sequential(problem.encoder) if wrapped else problem.encoder
    regression = Regression(encoder, problem.labels, variant)
    names, parameters = zip(*regression.named_parameters(), strict=True)

    def loss(features, vectors, *values):
        return torch.func.functional_call(regression, dict(zip(names, values, strict=True)), (features, vectors))

    inputs = [problem.features, problem.vectors, *parameters]
    assert torch.autograd.gradcheck(loss, [tensor.detach().requires_grad_() for tensor in inputs])


def test_a_linear_encoder_sees_only_the_classes_that_are_there():
    problem = Problem(seed=9, classes=40, batch=1, size=(8, 8), image=(8, 8), void=0)
    problem.labels = torch.full((1, 8, 8), 3)
    problem.labels[0, 4:] = 17
    shapes = []
    problem.encoder.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(inputs[0].shape)))
    problem.loss(r=2)
    assert shapes == [(2, 5)]


def test_vectors_get_a_gradient_only_if_they_ask():
    problem = Problem(seed=10)
    problem.features.requires_grad_()
    problem.loss().backward()
    assert problem.vectors.grad is None
    assert problem.features.grad.any()
    assert problem.encoder.weight.grad.any()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_distance_of_zero_has_gradient_zero(wrapped):
    encoder = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        encoder.weight.copy_(torch.eye(2))
    features = torch.ones(1, 2, 2, 2, requires_grad=True)
    loss = boundary_aware_regression(
        features,
        torch.zeros(1, 2, 2).long(),
        torch.ones(1, 2),
        nn.Sequential(encoder) if wrapped else encoder,
    )
    loss.backward()
    assert loss == 0
    assert not features.grad.any()
    assert not encoder.weight.grad.any()


def test_small_distances_between_large_vectors_keep_their_digits():
    encoder = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        encoder.weight.copy_(torch.eye(2))
    words = torch.full((1, 2), 1024.0)
    features = (words[0] + torch.tensor([3.0, 4.0]) / 1024).reshape(1, 2, 1, 1)
    loss = boundary_aware_regression(features, torch.zeros(1, 1, 1).long(), words, encoder)
    assert loss.item() == 5 / 1024  # |v|² - 2 v·μ + |μ|² in float32 gives 0


@pytest.mark.parametrize("layout", ["channels_last", "slice", "transposed"])
def test_the_memory_layout_does_not_matter(layout):
    problem = Problem(seed=11, size=(6, 6), image=(6, 6))
    expected = [problem.loss(), *problem.gradients()]
    features = problem.features.detach()
    if layout == "channels_last":
        problem.features = features.contiguous(memory_format=torch.channels_last)
    elif layout == "slice":
        problem.features = torch.cat([features, features], dim=3)[..., :6]
    else:
        problem.features = features.transpose(2, 3).contiguous().transpose(2, 3)
    assert not problem.features.is_contiguous()
    torch.testing.assert_close([problem.loss(), *problem.gradients()], expected)


def test_the_graph_can_be_used_twice():
    problem = Problem(seed=12)
    problem.features.requires_grad_()
    loss = problem.loss()
    first = torch.autograd.grad(loss, problem.features, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(3 * loss, problem.features)[0], 3 * first)


# Consistency


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


# All of them


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


# Errors


def regression_error(**changes):
    arguments = {
        "features": torch.zeros(2, 3, 4, 4),
        "labels": torch.zeros(2, 8, 8).long(),
        "vectors": torch.zeros(5, 6),
        "encoder": nn.Linear(6, 3),
    }
    boundary_aware_regression(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": torch.full((2, 8, 8), 37)},
            "labels hold 37, expected 0 to 4 for 5 classes or 255 for void",
        ),
        ({"labels": torch.full((2, 8, 8), -1)}, "labels hold -1"),
        ({"labels": torch.zeros(3, 8, 8).long()}, r"batch of 2, height, width\), got \(3, 8, 8\)"),
        ({"labels": torch.zeros(2, 1, 8, 8).long()}, r"got \(2, 1, 8, 8\)"),
        ({"labels": torch.zeros(2, 8, 8)}, r"got torch.float32: use labels.long\(\)"),
        ({"features": torch.zeros(3, 4, 4)}, r"features must have 4 dimensions .* got \(3, 4, 4\)"),
        ({"vectors": torch.zeros(6)}, r"vectors must have 2 dimensions .* got \(6,\)"),
        ({"encoder": nn.Linear(6, 7)}, "gives 7 channels but the features have 3"),
        ({"encoder": nn.Sequential(nn.Linear(6, 7))}, "gives 7 channels but the features have 3"),
        ({"r": 0}, "at least 1, got 0"),
        ({"variant": "papr"}, "Unknown variant 'papr'. Did you mean 'paper'\\? .* paper, official"),
    ],
)
def test_regression_says_what_is_wrong(changes, message):
    regression_error()
    with pytest.raises(BadUsage, match=message):
        regression_error(**changes)


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


def test_class_mask_of_nothing():
    assert class_mask([], 2).tolist() == [False, False]
