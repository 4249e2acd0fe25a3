import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_files import ANIMALS, write_text

from joem import semantics
from joem.errors import BadUsage


@settings(deadline=None, max_examples=40)
@given(count=st.integers(2, 12), seed=st.integers(0, 1000))
def test_shuffling_gives_every_name_the_vector_of_another(count, seed):
    names = [f"red thing{i}" for i in range(count)]
    space = semantics.table({name: [float(i)] for i, name in enumerate([*names, "outside"])})
    mixed = semantics.shuffled(space, names, seed)
    got = mixed.vectors(names).flatten().tolist()
    assert sorted(got) == list(range(count))
    assert all(value != i for i, value in enumerate(got))
    assert mixed.vectors(["outside"]).tolist() == [[float(count)]]
    assert got == semantics.shuffled(space, names, seed).vectors(names).flatten().tolist()


def test_shuffling_depends_on_the_seed_and_can_be_repeated():
    names = [f"n{i}" for i in range(10)]
    space = semantics.table({name: [float(i)] for i, name in enumerate(names)})
    once = semantics.shuffled(space, names, 0)
    assert not torch.equal(once.vectors(names), semantics.shuffled(space, names, 1).vectors(names))
    twice = semantics.shuffled(once, names, 1).vectors(names)
    assert sorted(twice.flatten().tolist()) == list(range(10))
    with pytest.raises(BadUsage, match="at least two different names, got 1"):
        semantics.shuffled(space, ["n1", "n1"])


def test_shuffled_names_move_together_in_every_part(tmp_path):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}"
    plain = semantics.load(f"{spec}+glove").fit(["cow", "car"])
    mixed = semantics.shuffled(plain, ["cow", "car"])
    assert torch.equal(mixed.vectors(["cow", "car"]), plain.vectors(["car", "cow"]))


def test_random_vectors_are_gaussian_per_name_and_never_change():
    space = semantics.random(4, seed=7)
    digest = int.from_bytes(hashlib.sha256(b"7:red cow").digest(), "little")
    expected = np.random.default_rng(digest).standard_normal(4) / 2
    np.testing.assert_allclose(space.vectors(["car", "red cow"])[1].numpy(), expected, rtol=1e-6)
    many = semantics.random(300).vectors([f"name {i}" for i in range(200)])
    assert many.norm(dim=1).mean().item() == pytest.approx(1, abs=0.02)
    assert many.mean().item() == pytest.approx(0, abs=1e-3)
    assert (many @ many.T - torch.diag((many**2).sum(dim=1))).abs().max() < 0.4
    assert not torch.equal(semantics.random(4, seed=8).vectors(["cow"]), space.vectors(["cow"]))
    with pytest.raises(BadUsage, match="at least 1, got 0"):
        semantics.random(0)
