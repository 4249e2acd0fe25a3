"""Controls that show what word vectors are worth: vectors without meaning, and names that are exchanged."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from joem.errors import BadUsage
from joem.semantics.interface import Vector


class RandomVectors:
    """A Gaussian vector per name, drawn from a hash of the name so that it never changes."""

    def __init__(self, dimension: int, seed: int) -> None:
        if dimension < 1:
            raise BadUsage(f"The dimension of random vectors must be at least 1, got {dimension}.")
        self.dimension = dimension
        self._seed = seed

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        rows = np.empty((len(names), self.dimension), dtype=np.float32)
        for row, name in zip(rows, names, strict=True):
            digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
            generator = np.random.default_rng(int.from_bytes(digest, "little"))
            row[:] = generator.standard_normal(self.dimension) / np.sqrt(self.dimension)
        return rows

    def origin(self) -> dict[str, Any]:
        """The seed; the dimension is part of every provenance."""
        return {"seed": self._seed}


def exchanged(names: Iterable[str], seed: int) -> dict[str, str]:
    """For each of the names another one of them; no two names get the same."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) < 2:
        raise BadUsage(f"Shuffling needs at least two different names, got {len(distinct)}.")
    # One cycle through the names in random order: none stays where it was.
    order = [distinct[i] for i in np.random.default_rng(seed).permutation(len(distinct))]
    return dict(zip(order, order[1:] + order[:1], strict=True))
