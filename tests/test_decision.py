"""`joem.decision` against its definition: upsample in full, measure every distance, apply the rule pixel by pixel."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from joem import decision
from joem.errors import BadUsage, JoemError

TIE = 1e-4  # relative difference below which two distances count as a tie


def defined_distances(features: Tensor, prototypes: Tensor, size: Sequence[int] | None) -> Tensor:
    """(B,Ho,Wo,K) in float64, straight from the definition."""
    size = tuple(features.shape[2:]) if size is None else size
    upsampled = F.interpolate(features.float(), size=size, mode="bilinear", align_corners=False).double()
    return (upsampled.permute(0, 2, 3, 1).unsqueeze(3) - prototypes.double()).square().sum(-1).sqrt()


def defined_label(
    d: list[float], unseen: set[int], rule: str, gamma: float = 0, sigma: float = 1, squared: bool = False
) -> int | None:
    """The label of one pixel; None where it hangs on a tie."""

    def tied(classes: list[int]) -> bool:
        return any(d[b] - d[a] <= tolerance for a, b in pairwise(classes))

    tolerance = TIE * min(d)
    if rule == "cs":
        d = [x - gamma * (c in unseen) for c, x in enumerate(d)]
    order = sorted(range(len(d)), key=lambda c: d[c])
    if rule in {"nn", "cs"}:
        return None if tied(order[:2]) else order[0]
    if rule == "ac":
        contenders, is_tied = order[:2], tied(order[:3])
    else:
        seen_order, unseen_order = [c for c in order if c not in unseen], [c for c in order if c in unseen]
        contenders, is_tied = seen_order[:1] + unseen_order[:1], tied(seen_order[:2]) or tied(unseen_order[:2])
    if is_tied:
        return None
    if len(contenders) == 1 or contenders[0] in unseen or contenders[1] not in unseen:
        return contenders[0]
    ratio = (d[contenders[0]] / d[contenders[1]]) ** (2 if squared else 1)
    return None if abs(ratio - sigma) <= TIE else contenders[ratio > sigma]


def assert_as_defined(labels: Tensor, distances: Tensor, unseen: set[int], rule: str, **knobs: float) -> float:
    """Compare every pixel that hangs on no tie and give the share of these."""
    assert labels.dtype == torch.long
    assert labels.shape == distances.shape[:-1]
    expected = [defined_label(d, unseen, rule, **knobs) for d in distances.flatten(0, -2).tolist()]
    found = labels.flatten().tolist()
    assert [f if e is not None else None for f, e in zip(found, expected, strict=True)] == expected
    return sum(e is not None for e in expected) / len(expected)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Squares are compared because near zero the root of a rounding error is no rounding error."""
    torch.testing.assert_close(found.double().square(), expected.square(), rtol=1e-5, atol=1e-5)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, list[int], tuple[int, int] | None]:
    torch.manual_seed(draw(st.integers(0, 10_000)))
    side, classes = st.integers(1, 6), draw(st.integers(1, 8))
    batch, channels, height, width = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(side), draw(side)
    size = draw(st.none() | st.tuples(st.integers(1, 13), st.integers(1, 13)))
    unseen = draw(st.sets(st.integers(0, classes - 1)))
    return torch.randn(batch, channels, height, width), torch.randn(classes, channels), sorted(unseen), size


@settings(deadline=None, max_examples=120)
@given(problems(), st.floats(0, 3), st.floats(0.3, 1), st.booleans())
def test_every_rule_is_as_defined(problem, gamma, sigma, squared):
    features, prototypes, unseen, size = problem
    expected = defined_distances(features, prototypes, size)
    labels = {
        "nn": decision.nearest(features, prototypes, size),
        "cs": decision.calibrated_stacking(features, prototypes, unseen, gamma, size),
        "ac": decision.apollonius(features, prototypes, unseen, sigma, size, squared=squared),
        "ratio": decision.decide(
            decision.rank(features, prototypes, unseen, size), "ratio", sigma=sigma, squared=squared
        ),
    }
    for rule, found in labels.items():
        assert_as_defined(found, expected, set(unseen), rule, gamma=gamma, sigma=sigma, squared=squared)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_ranking_holds_the_nearest_distances(problem):
    features, prototypes, unseen, size = problem
    expected = defined_distances(features, prototypes, size)
    assert_close(decision.distances(features, prototypes, size), expected.permute(0, 3, 1, 2))
    ranking = decision.rank(features, prototypes, unseen, size)
    assert [part.shape for part in ranking] == [expected.shape[:-1]] * 5
    seen = [c for c in range(len(prototypes)) if c not in unseen]
    for values, near, label in (
        (expected[..., seen], [ranking.seen_distance, ranking.second_seen_distance], ranking.seen),
        (expected[..., unseen], [ranking.unseen_distance], ranking.unseen),
    ):
        nearest = F.pad(values.sort(-1).values, (0, 2), value=math.inf)
        for place, found in enumerate(near):
            assert_close(found, nearest[..., place])
        if values.shape[-1] == 0:
            assert (label == -1).all()
        else:
            assert_close(expected.gather(-1, label.unsqueeze(-1)).squeeze(-1), nearest[..., 0])


@settings(deadline=None, max_examples=60)
@given(problems(), st.floats(-5, 5))
def test_a_picture_ranked_again_needs_no_new_norms(problem, shift):
    features, prototypes, unseen, size = problem
    features = features + shift
    known = decision.norms(features, size)
    centre = features.mean((0, 2, 3))
    assert_close(known.squares.sqrt(), defined_distances(features, centre[None], size)[..., 0])
    again = decision.rank(features, prototypes, unseen, size, known)
    first = decision.rank(features, prototypes, unseen, size)
    assert torch.equal(again.seen, first.seen)
    assert torch.equal(again.unseen, first.unseen)
    for place in (1, 2, 4):
        assert_close(again[place], first[place].double())


def test_norms_of_another_size_are_refused():
    features = torch.zeros(1, 2, 3, 3)
    with pytest.raises(BadUsage, match=r"known holds norms of \(1, 6, 6\), expected \(1, 3, 3\)"):
        decision.rank(features, torch.zeros(2, 2), (), known=decision.norms(features, (6, 6)))


@pytest.mark.parametrize("share", [0.02, 0.4, 0.95])
@pytest.mark.parametrize("classes", [64, 65, 96, 131, 300])
def test_many_classes_in_groups_blocks_and_tiles(classes, share, monkeypatch):
    torch.manual_seed(classes)
    features, prototypes, size = torch.randn(2, 6, 5, 7), torch.randn(classes, 6), (17, 12)
    unseen = torch.rand(classes) < share
    expected = defined_distances(features, prototypes, size)
    whole = decision.rank(features, prototypes, unseen, size)
    monkeypatch.setattr(decision, "BUDGET", 1)
    monkeypatch.setattr(decision, "_BLOCK", 70)
    monkeypatch.setattr(decision, "_TILE", 500)
    pieces = decision.rank(features, prototypes, unseen, size)
    unseen_labels = set(unseen.nonzero().flatten().tolist())
    for ranking in (whole, pieces):
        labels = decision.decide(ranking, "ac", sigma=0.9)
        assert assert_as_defined(labels, expected, unseen_labels, "ac", sigma=0.9) > 0.95
    assert_as_defined(decision.nearest(features, prototypes, size), expected, unseen_labels, "nn")
    for part, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(part, other)
    assert_close(decision.distances(features, prototypes, size), expected.permute(0, 3, 1, 2))


@pytest.mark.parametrize("source", [(1, 1), (1, 4), (2, 2), (9, 5), (33, 40)])
@pytest.mark.parametrize("target", [(1, 1), (2, 7), (9, 5), (36, 20), (61, 47)])
def test_interpolates_as_torch_does(source, target):
    torch.manual_seed(0)
    features = torch.rand(1, 1, *source) + 1
    expected = F.interpolate(features, size=target, mode="bilinear", align_corners=False)
    torch.testing.assert_close(decision.distances(features, torch.zeros(1, 1), target), expected)


def test_sigma_one_and_gamma_zero_are_nearest_neighbour():
    torch.manual_seed(0)
    features, prototypes, unseen = torch.randn(2, 8, 6, 6), torch.randn(9, 8), [1, 4, 5]
    nearest = decision.nearest(features, prototypes, (24, 24))
    ranking = decision.rank(features, prototypes, unseen, (24, 24))
    assert torch.equal(decision.calibrated_stacking(features, prototypes, unseen, 0.0, (24, 24)), nearest)
    assert torch.equal(decision.apollonius(features, prototypes, unseen, 1.0, (24, 24)), nearest)
    assert torch.equal(decision.decide(ranking, "nn"), nearest)
    assert torch.equal(decision.decide(ranking, "ratio", sigma=1.0, squared=True), nearest)


def test_boundary_is_the_circle_of_the_supplement():
    sigma, a, c = 0.6, torch.tensor([0.2, -0.3]), torch.tensor([1.1, 0.4])
    grid = torch.stack(torch.meshgrid(torch.linspace(-2, 2, 81), torch.linspace(-2, 2, 81), indexing="ij"))
    centre = (a - sigma**2 * c) / (1 - sigma**2)
    radius = sigma * (a - c).norm() / (1 - sigma**2)
    from_centre = (grid - centre[:, None, None]).norm(dim=0)
    labels = decision.apollonius(grid.unsqueeze(0), torch.stack((a, c)), unseen=[1], sigma=sigma)[0]
    clear = (from_centre - radius).abs() > 1e-4
    assert torch.equal(labels[clear], (from_centre > radius).long()[clear])
    assert set(labels.unique().tolist()) == {0, 1}


def test_squared_sigma_is_the_square_of_sigma():
    torch.manual_seed(0)
    features, prototypes = torch.randn(1, 4, 8, 8), torch.randn(6, 4)
    squared = decision.apollonius(features, prototypes, [0, 3], 0.64, squared=True)
    assert torch.equal(squared, decision.apollonius(features, prototypes, [0, 3], 0.8))
    assert not torch.equal(squared, decision.apollonius(features, prototypes, [0, 3], 0.64))


def test_apollonius_leaves_a_second_seen_class_alone_but_ratio_does_not():
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[1.0], [1.1], [-1.2]]), unseen=[2])
    assert decision.decide(ranking, "ac", sigma=0.5).item() == 0
    assert decision.decide(ranking, "ratio", sigma=0.5).item() == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precisions_and_memory_layouts(dtype):
    torch.manual_seed(0)
    features, prototypes = torch.randn(2, 12, 9, 10).to(dtype), torch.randn(7, 12).to(dtype)
    expected = defined_distances(features, prototypes, (19, 23))
    layouts = (
        features,
        features.contiguous(memory_format=torch.channels_last),
        features.transpose(2, 3).contiguous().transpose(2, 3),
        features.repeat_interleave(2, 3)[..., ::2].requires_grad_(),
    )
    for laid_out in layouts:
        found = decision.distances(laid_out, prototypes, (19, 23))
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert not found.requires_grad
        assert_close(found, expected.permute(0, 3, 1, 2))
        labels = decision.apollonius(laid_out, prototypes, [2, 3], 0.9, (19, 23))
        assert_as_defined(labels, expected, {2, 3}, "ac", sigma=0.9)


def test_a_common_offset_costs_no_precision():
    torch.manual_seed(0)
    features, prototypes = torch.randn(1, 16, 8, 8) + 300, torch.randn(10, 16) + 300
    expected = defined_distances(features, prototypes, (20, 20))
    found = decision.distances(features, prototypes, (20, 20))
    torch.testing.assert_close(found.double(), expected.permute(0, 3, 1, 2), rtol=1e-4, atol=0)
    assert_as_defined(decision.nearest(features, prototypes, (20, 20)), expected, set(), "nn")


def test_equal_prototypes_still_give_one_of_them():
    prototypes = torch.ones(100, 3)
    prototypes[40:60] = 0
    labels = decision.nearest(torch.zeros(1, 3, 2, 2), prototypes, (5, 5))
    assert ((labels >= 40) & (labels < 60)).all()
    ranking = decision.rank(torch.zeros(1, 3, 2, 2), prototypes, range(50, 60))
    assert (ranking.second_seen_distance < 1e-3).all()


@pytest.mark.parametrize(("channels", "classes"), [(8, 20_000), (512, 2)])
def test_memory_stays_within_the_budget(channels, classes):
    class LargestTensor(TorchDispatchMode):
        nbytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, Tensor) and tensor.dtype != torch.uint8:  # bytes are only shown to glibc
                    self.nbytes = max(self.nbytes, tensor.nbytes)
            return result

    torch.manual_seed(0)
    features, prototypes = torch.randn(1, channels, 24, 24), torch.randn(classes, channels)
    assert 192 * 192 * max(channels, classes) * 4 > 2 * decision.BUDGET
    with LargestTensor() as largest:
        labels = decision.apollonius(features, prototypes, range(classes // 2), 0.9, (192, 192))
    assert labels.shape == (1, 192, 192)
    assert largest.nbytes <= decision.BUDGET


@pytest.mark.parametrize("unseen", [[1, 2], (2, 1, 1), torch.tensor([1, 2]), [False, True, True], torch.arange(3) > 0])
def test_ways_to_name_the_unseen_classes(unseen):
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[3.0], [2.0], [1.0]]), unseen)
    assert (ranking.seen.item(), ranking.unseen.item()) == (0, 2)


FEATURES, PROTOTYPES = torch.zeros(1, 2, 3, 3), torch.zeros(4, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FEATURES[0], PROTOTYPES), r"features must be .* \(B,C,H,W\), got \(2, 3, 3\) of torch.float32"),
        ((FEATURES.long(), PROTOTYPES), r"features must be .* got \(1, 2, 3, 3\) of torch.int64"),
        ((FEATURES, PROTOTYPES[0]), r"prototypes must be .* \(K,C\), got \(2,\)"),
        ((FEATURES, PROTOTYPES[:0]), r"prototypes must be a non-empty .* got \(0, 2\)"),
        ((FEATURES, torch.zeros(4, 3)), "features have 2 channels but prototypes 3"),
        ((FEATURES, PROTOTYPES.to("meta")), "features are on cpu but prototypes on meta"),
        ((FEATURES, PROTOTYPES, (0, 4)), r"two positive integers.* got \(0, 4\)"),
        ((FEATURES, PROTOTYPES, (4,)), "two positive integers"),
        ((FEATURES, PROTOTYPES, (4.5, 4)), "two positive integers"),
        ((FEATURES, PROTOTYPES, 4), "two positive integers"),
    ],
)
def test_wrong_inputs_are_named(arguments, message):
    with pytest.raises(BadUsage, match=message):
        decision.nearest(*arguments)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value):
    features, prototypes = FEATURES.clone(), PROTOTYPES.clone()
    features[0, 1, 2, 0] = prototypes[3, 1] = value
    with pytest.raises(JoemError, match="features hold NaN or infinite values"):
        decision.rank(features, PROTOTYPES, [])
    with pytest.raises(JoemError, match="prototypes hold NaN or infinite values"):
        decision.distances(FEATURES, prototypes)


@pytest.mark.parametrize(
    ("unseen", "message"),
    [
        ([4], "Class 4 does not exist: class indices go from 0 to 3"),
        ([-1, 0], "Class -1 does not exist"),
        ([True, False], "one boolean per class, 4, got 2"),
        (["cow"], r"list of class indices or one boolean per class, 4, got \['cow'\]"),
        ([0.5], "list of class indices"),
        ([[1]], "list of class indices"),
        (2, "list of class indices or one boolean per class, 4, got 2"),
    ],
)
def test_wrong_unseen_classes_are_named(unseen, message):
    with pytest.raises(BadUsage, match=message):
        decision.rank(FEATURES, PROTOTYPES, unseen)


@pytest.mark.parametrize(
    ("rule", "knobs", "message"),
    [
        ("knn", {}, "Unknown rule 'knn'. Did you mean 'nn'[?] Available options are: nn, cs, ac, ratio."),
        ("cs", {}, "cs needs a finite gamma .* got None"),
        ("cs", {"gamma": -1.0}, "got -1.0"),
        ("cs", {"gamma": math.inf}, "got inf"),
        ("cs", {"gamma": math.nan}, "got nan"),
        ("ac", {"gamma": 1.0}, r"sigma in \(0,1\] .* got None"),
        ("ac", {"sigma": 0.0}, "got 0.0"),
        ("ratio", {"sigma": 1.01}, "got 1.01"),
        ("ratio", {"sigma": math.nan}, "got nan"),
    ],
)
def test_wrong_rules_are_named(rule, knobs, message):
    ranking = decision.rank(FEATURES, PROTOTYPES, [1])
    with pytest.raises(BadUsage, match=message):
        decision.decide(ranking, rule, **knobs)
