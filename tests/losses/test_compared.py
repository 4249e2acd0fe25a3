"""Losses of the compared systems against loops written from their equations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem.losses import compared


def random_case(seed):
    torch.manual_seed(seed)
    labels = torch.randint(0, 4, (2, 3, 5))
    labels[torch.rand(2, 3, 5) < 0.2] = 255
    return labels


SEEDS = st.integers(0, 10_000)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_cosine_regression_is_the_mean_over_labelled_pixels(seed):
    labels, features, vectors = random_case(seed), torch.randn(2, 6, 3, 5), torch.randn(4, 6)
    total, count = 0.0, 0
    for b in range(2):
        for y in range(3):
            for x in range(5):
                if labels[b, y, x] != 255:
                    v, s = features[b, :, y, x].tolist(), vectors[labels[b, y, x]].tolist()
                    dot = sum(p * q for p, q in zip(v, s, strict=True))
                    total += 1 - dot / math.sqrt(sum(p * p for p in v) * sum(q * q for q in s))
                    count += 1
    assert float(compared.cosine_regression(features, labels, vectors)) == pytest.approx(
        total / max(count, 1), abs=1e-5
    )
    large = labels.repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert float(compared.cosine_regression(features, large, vectors)) == pytest.approx(total / max(count, 1), abs=1e-5)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_attenuated_cross_entropy_follows_its_equation(seed):
    labels, logits, u = random_case(seed), torch.randn(2, 4, 3, 5), torch.randn(2, 3, 5)
    seen = [0, 2, 3]
    total, count = 0.0, 0
    for b in range(2):
        for y in range(3):
            for x in range(5):
                label = int(labels[b, y, x])
                if label in seen:
                    z = sum(math.exp(logits[b, j, y, x]) for j in seen)
                    entropy = -math.log(math.exp(logits[b, label, y, x]) / z)
                    total += math.exp(-u[b, y, x]) * entropy + float(u[b, y, x]) / 2
                    count += 1
    found = compared.attenuated_cross_entropy(logits, labels, seen, u)
    assert float(found) == pytest.approx(total / max(count, 1), abs=1e-4)


def test_attenuated_cross_entropy_has_finite_gradients_beside_unseen_classes():
    logits, u = torch.randn(1, 3, 2, 2, requires_grad=True), torch.zeros(1, 2, 2, requires_grad=True)
    labels = torch.tensor([[[0, 1], [255, 2]]])
    compared.attenuated_cross_entropy(logits, labels, [0, 1], u).backward()
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[:, 2].any()
    assert not u.grad[0, 1].any()


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_mmd_is_the_double_sum_over_kernels(seed, n, m):
    torch.manual_seed(seed)
    x, y = torch.randn(n, 3).double(), 2 * torch.randn(m, 3).double() + 1

    def mean_kernel(a, b):
        values = [
            sum(math.exp(-float((p - q).square().sum()) / (2 * s)) for s in (2, 5, 10, 20, 40, 80))
            for p in a
            for q in b
        ]
        return sum(values) / len(values)

    expected = mean_kernel(x, x) - 2 * mean_kernel(x, y) + mean_kernel(y, y)
    assert float(compared.squared_mmd(x, y)) == pytest.approx(expected, abs=1e-9)
    assert float(compared.moment_matching(x, y)) == pytest.approx(math.sqrt(max(expected, 1e-8)), abs=1e-6)


@given(SEEDS, st.integers(1, 6))
@settings(deadline=None, max_examples=15)
def test_fitted_kernels_follow_the_mean_squared_distance(seed, n):
    torch.manual_seed(seed)
    x = 7 * torch.randn(n, 3).double()
    mean = sum(float((a - b).square().sum()) for a in x for b in x) / n**2
    expected = [s * mean / 20 if mean else s for s in (2, 5, 10, 20, 40, 80)]
    assert list(compared.fitted_kernels(x)) == pytest.approx(expected, rel=1e-5)


def test_features_far_apart_teach_a_generator_only_by_kernels_that_fit():
    torch.manual_seed(0)
    target = 20 * torch.randn(60, 8) + 100
    gradients = {}
    for name, kernels in {"own": compared.KERNELS, "fitted": compared.fitted_kernels(target)}.items():
        made = torch.zeros(60, 8).requires_grad_()
        compared.moment_matching(target, made, kernels).backward()
        gradients[name] = float(made.grad.norm())
    assert gradients["own"] < 1e-6 < 1e-4 < gradients["fitted"]


def test_moment_matching_of_equal_samples_has_a_finite_gradient():
    x = torch.randn(5, 3, requires_grad=True)
    compared.moment_matching(x, x.detach().clone()).backward()
    assert torch.isfinite(x.grad).all()


def test_moment_matching_moves_samples_towards_the_target():
    target, made = torch.randn(60, 2) + 3, torch.randn(60, 2).requires_grad_()
    optimiser = torch.optim.Adam([made], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        compared.moment_matching(target, made).backward()
        optimiser.step()
    assert (made.mean(dim=0) - target.mean(dim=0)).abs().max() < 0.3


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_weighted_cross_entropy_divides_by_the_weights(seed):
    torch.manual_seed(seed)
    logits, labels, weights = torch.randn(7, 3), torch.randint(0, 3, (7,)), torch.rand(3) + 0.1
    total = norm = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total -= float(weights[label]) * math.log(math.exp(row[label]) / sum(map(math.exp, row)))
        norm += float(weights[label])
    assert float(compared.weighted_cross_entropy(logits, labels, weights)) == pytest.approx(total / norm, abs=1e-5)


@given(SEEDS, st.integers(1, 5))
@settings(deadline=None, max_examples=15)
def test_pairwise_relations_compares_every_pair_once(seed, count):
    torch.manual_seed(seed)
    words, means = torch.randn(count, 3).double(), torch.randn(count, 4).double()

    def cosine(rows, i, j):
        middle = rows.mean(dim=0)
        a, b = rows[i] - middle, rows[j] - middle
        return float(a @ b) / max(float(a.norm() * b.norm()), 1e-12)

    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    expected = sum((cosine(words, *pair) - cosine(means, *pair)) ** 2 for pair in pairs) / max(len(pairs), 1)
    assert float(compared.pairwise_relations(words, means)) == pytest.approx(expected, abs=1e-9)


def test_adversarial_and_kl_terms_follow_their_equations():
    real, made = torch.randn(5, 1), torch.randn(4, 1)
    expected = sum((1 - v) ** 2 for v in real.flatten().tolist()) / 5 + sum(v**2 for v in made.flatten().tolist()) / 4
    assert float(compared.discriminator_loss(real, made)) == pytest.approx(expected, rel=1e-5)
    expected = sum((1 - v) ** 2 for v in made.flatten().tolist()) / 4
    assert float(compared.fooling_loss(made)) == pytest.approx(expected, rel=1e-5)
    mean, log_variance = torch.randn(3, 2), torch.randn(3, 2)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).mean()
    torch.testing.assert_close(compared.divergence_from_normal(mean, log_variance), divergence)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_squared_distance_to_centres_sums_over_the_drawn_and_divides_by_the_labelled(seed):
    labels, features, centres = random_case(seed), torch.randn(2, 3, 3, 5), torch.randn(4, 3)
    total, count = 0.0, 0
    for b, y, x in (labels != 255).nonzero().tolist():
        count += 1
        if int(labels[b, y, x]) in (1, 3):
            total += float((features[b, :, y, x] - centres[labels[b, y, x]]).square().sum())
    found = compared.squared_distance_to_centres(features, labels, centres, torch.tensor([1, 3]))
    assert float(found) == pytest.approx(total / max(count, 1), rel=1e-5)


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_open_set_terms_follow_their_equations(seed):
    labels, logits, unknown = random_case(seed), torch.randn(2, 4, 3, 5), torch.randn(2, 3, 5)
    seen = [0, 2, 3]
    known = rejected = 0.0
    count = 0
    for b in range(2):
        for y in range(3):
            for x in range(5):
                label = int(labels[b, y, x])
                if label in seen:
                    none = math.exp(unknown[b, y, x])
                    total = sum(math.exp(logits[b, c, y, x]) for c in seen)
                    own = math.exp(logits[b, label, y, x])
                    known -= math.log(own / (total + none))
                    rejected -= math.log(none / (total - own + none))
                    count += 1
    found = compared.open_set_cross_entropy(logits, unknown, labels, seen)
    assert float(found) == pytest.approx(known / max(count, 1), abs=1e-4)
    found = compared.rejection_loss(logits, unknown, labels, seen)
    assert float(found) == pytest.approx(rejected / max(count, 1), abs=1e-4)


def test_open_set_terms_of_void_have_a_gradient_of_zeros():
    logits, unknown = torch.randn(1, 3, 2, 2, requires_grad=True), torch.randn(1, 2, 2, requires_grad=True)
    void = torch.full((1, 2, 2), 255)
    terms = [f(logits, unknown, void, [0, 1]) for f in (compared.open_set_cross_entropy, compared.rejection_loss)]
    sum(terms).backward()
    assert not logits.grad.any()
    assert not unknown.grad.any()


def test_modulated_features_follow_their_equation():
    h, z = torch.randn(4), torch.randn(4)
    for a, b, found in zip(h.tolist(), z.tolist(), compared.modulated(h, z).tolist(), strict=True):
        assert found == pytest.approx(1 / (1 + math.exp(-(a + a / (1 + math.exp(-b))))), abs=1e-6)
