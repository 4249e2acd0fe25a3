"""Vectors given by the user, one per name."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from joem.errors import BadUsage
from joem.semantics.class_names import NamedWords
from joem.semantics.interface import Source, Vector, WordVectors


class TableVectors(WordVectors):
    """Vectors kept in memory."""

    def __init__(self, vectors: Mapping[str, ArrayLike]) -> None:
        self._vectors = {name: np.asarray(vector, dtype=np.float32) for name, vector in vectors.items()}
        shapes = sorted({vector.shape for vector in self._vectors.values()})
        if len(shapes) != 1 or len(shapes[0]) != 1:
            raise BadUsage(f"A table needs one vector per name, all of one length; got shapes {shapes}.")
        (self.dimension,) = shapes[0]

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """Those present."""
        return {word: self._vectors[word] for word in wanted & self._vectors.keys()}

    def words(self) -> Iterator[str]:
        """All names."""
        yield from self._vectors

    def origin(self) -> dict[str, Any]:
        """The vectors themselves."""
        return {"vectors": {name: vector.tolist() for name, vector in self._vectors.items()}}


def open_table(vectors: Mapping[str, ArrayLike]) -> Source:
    """A source that holds its vectors itself."""
    return NamedWords(TableVectors(vectors), f"the table of {len(vectors)} names", "error")
