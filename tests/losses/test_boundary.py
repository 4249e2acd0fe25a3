"""L_bar and L_center against their equation, by either path."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from slow_losses import Problem, a_few, batches, reference_regression, seeds, sides
from torch import nn

from joem.errors import BadUsage
from joem.losses import VARIANTS, boundary_aware_regression, center_regression


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
