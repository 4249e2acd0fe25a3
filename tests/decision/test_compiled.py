"""The kernel in C: how it is made, and that it is left out where it cannot be."""

import pytest
import torch

from joem import decision
from joem.decision import compiled


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
