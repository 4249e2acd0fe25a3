"""The kernel in C: how it is made, and that it is left out where it cannot be."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import decision
from joem.decision import compiled
from joem.errors import JoemError


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """What a new process would find, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return compiled._library.__wrapped__


def test_it_is_compiled_once_and_kept(tmp_path, fresh):
    if compiled._library() is None:
        pytest.skip("no C compiler")
    assert fresh() is not None
    (kept,) = (tmp_path / "joem" / "kernels").iterdir()
    made = kept.stat().st_mtime_ns
    assert fresh() is not None
    assert kept.stat().st_mtime_ns == made


@pytest.mark.parametrize(("name", "value"), [("CC", "false"), ("CC", "no-such-compiler"), ("JOEM_KERNEL", "0")])
def test_without_it_torch_does_the_work(fresh, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert fresh() is None


def test_only_single_precision_on_a_cpu_is_for_it():
    usable = compiled._library() is not None
    assert compiled.is_usable(torch.zeros(2)) == usable
    assert not compiled.is_usable(torch.zeros(2), torch.zeros(2).double())
    assert not compiled.is_usable(torch.zeros(2, device="meta"))


def test_several_threads_find_what_one_finds(monkeypatch):
    torch.manual_seed(0)
    features, prototypes = torch.randn(1, 5, 9, 7), torch.randn(40, 5)
    found = {}
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found[threads] = decision.rank(features, prototypes, range(30, 40), (130, 61))
    assert all(torch.equal(one, three) for one, three in zip(found[1], found[3], strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 150)),
    st.tuples(st.integers(1, 60), st.integers(1, 190)),
    st.sampled_from([1, 7, 8, 21, 260, 530]),
    st.integers(1, 70),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_classes_that_cannot_win_between_four_features_are_left_out_and_no_others(
    source, size, channels, classes, smooth, last, seed
):
    """Against distances one by one, in double precision; many channels, and channels that are neighbours in memory."""
    torch.manual_seed(seed)
    features = torch.randn(1, channels, *source)
    if smooth:
        features = F.interpolate(torch.randn(1, channels, 2, 2), size=source, mode="bilinear")
    if last:
        features = features.contiguous(memory_format=torch.channels_last)
    prototypes, owners = torch.randn(classes, channels), torch.randint(0, classes, (classes,)).sort().values
    unseen = owners % 3 == 0
    upsampled = F.interpolate(features.double(), size=size, mode="bilinear", align_corners=False)
    distances = torch.cdist(upsampled[0].flatten(1).T, prototypes.double()).T.view(classes, *size)
    of_class = torch.full((classes, *size), torch.inf, dtype=torch.float64)
    of_class = of_class.scatter_reduce(0, owners[:, None, None].expand_as(distances), distances, "amin")
    found = decision.rank(features, prototypes, unseen, size, owners=owners)
    is_unseen = torch.arange(classes) % 3 == 0
    seen, unseen_ones = of_class[~is_unseen].sort(dim=0).values, of_class[is_unseen].amin(dim=0)
    close = {"atol": 3e-3, "rtol": 1e-4, "check_dtype": False}
    if len(seen):
        torch.testing.assert_close(found.seen_distance[0], seen[0], **close)
    if len(seen) > 1:
        torch.testing.assert_close(found.second_seen_distance[0], seen[1], **close)
    torch.testing.assert_close(found.unseen_distance[0], unseen_ones, **close)
    for label, expected in ((found.seen[0], found.seen_distance[0]), (found.unseen[0], found.unseen_distance[0])):
        taken = of_class.gather(0, label.clamp(min=0)[None])[0].masked_fill(label < 0, torch.inf)
        torch.testing.assert_close(taken, expected, **close)
    label = decision.nearest(features, prototypes, size, owners)
    torch.testing.assert_close(of_class.gather(0, label)[0], of_class.amin(0), **close)


@pytest.mark.parametrize("last", [True, False])
def test_the_nearest_class_is_the_first_of_the_ranking(last):
    torch.manual_seed(0)
    features, prototypes = torch.randn(2, 30, 9, 21), torch.randn(46, 30)
    owners = torch.randint(0, 12, (46,))  # in no order
    if last:
        features = features.contiguous(memory_format=torch.channels_last)
    for size in (None, (150, 61), decision.Window(150, 61, 40, 97)):
        expected = decision.rank(features, prototypes, (), size, owners=owners, second=False).seen
        assert torch.equal(decision.nearest(features, prototypes, size, owners), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [(0, 3, 4), (8, 0, 0), (9, 4, 16), (3, 2, 15)])
def test_values_that_are_not_finite_are_found_where_channels_are_neighbours(value, place):
    features = torch.randn(1, 10, 5, 17).contiguous(memory_format=torch.channels_last)
    features[0][place] = value
    with pytest.raises(JoemError, match="NaN or infinite"):
        decision.nearest(features, torch.randn(3, 10), (20, 30))
