"""Rankings against their definition, whatever the sizes, precisions and layouts, and in bounded memory."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_decisions import assert_as_defined, assert_close, both_ways, defined_distances, problems  # noqa: F401
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from joem import decision
from joem.decision import RULES, search
from joem.errors import BadUsage, JoemError

FEATURES, PROTOTYPES = torch.zeros(1, 2, 3, 3), torch.zeros(4, 2)


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
@given(problems(), st.data())
def test_a_class_of_several_prototypes_is_as_near_as_the_nearest_of_them(problem, data):
    features, prototypes, unseen, size = problem
    count = len(prototypes)
    owners = data.draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    by_prototype = defined_distances(features, prototypes, size)
    rank = partial(decision.rank, features, prototypes, unseen, size, owners=torch.tensor(owners))
    ranking, short = rank(), rank(second=False)
    seen = [c for c in range(count) if c not in unseen]
    for side, label, found in ((seen, ranking.seen, ranking[1:3]), (unseen, ranking.unseen, ranking[4:])):
        of_class = {
            c: by_prototype[..., [p for p in side if owners[p] == c]].amin(-1) for c in {owners[p] for p in side}
        }
        values = torch.stack([*of_class.values(), *torch.full((2, *label.shape), math.inf, dtype=torch.double)], -1)
        for place, distance in enumerate(found):
            assert_close(distance, values.sort(-1).values[..., place])
        for c, distances in of_class.items():
            assert_close(distances[label == c], values.amin(-1)[label == c])
        assert set(label.flatten().tolist()) <= (set(of_class) or {-1})
    for place in (0, 1, 3, 4):
        assert torch.equal(short[place], ranking[place])
    assert short[2].isnan().all()


@settings(deadline=None, max_examples=60)
@given(problems(), st.floats(-5, 5))
def test_a_picture_ranked_again_needs_no_new_norms(problem, shift):
    features, prototypes, unseen, size = problem
    features = features + shift
    known = decision.norms(features, size)
    assert_close(known.squares.sqrt(), defined_distances(features, known.centre[None], size)[..., 0])
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
    for name, value in {"BUDGET": 1, "BLOCK": 70, "_TILE": 500}.items():  # or nothing small would be cut
        monkeypatch.setattr(search, name, value)
    pieces = decision.rank(features, prototypes, unseen, size)
    unseen_labels = set(unseen.nonzero().flatten().tolist())
    for found in (whole, pieces):
        labels = RULES["ac"].decide(found, 0.9)
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
    assert 192 * 192 * max(channels, classes) * 4 > 2 * search.BUDGET
    with LargestTensor() as largest:
        labels = decision.apollonius(features, prototypes, range(classes // 2), 0.9, (192, 192))
    assert labels.shape == (1, 192, 192)
    assert largest.nbytes <= search.BUDGET


@pytest.mark.parametrize("unseen", [[1, 2], (2, 1, 1), torch.tensor([1, 2]), [False, True, True], torch.arange(3) > 0])
def test_ways_to_name_the_unseen_classes(unseen):
    ranking = decision.rank(torch.zeros(1, 1, 1, 1), torch.tensor([[3.0], [2.0], [1.0]]), unseen)
    assert (ranking.seen.item(), ranking.unseen.item()) == (0, 2)


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
