"""The parts a space is made of: a source of vectors, where it comes from, and its frozen normalisation."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joem.errors import BadUsage, JoemError, choose
from joem.semantics.formats import Vector, WordVectors, open_vectors, sha256
from joem.semantics.installed import Glove, MiniLM, PhraseEncoder, UniversalSentenceEncoder, package_version
from joem.semantics.words import NamedWords, OutOfVocabulary

Normalise = Literal["max", "l2", "none"]

_PACKAGES: dict[str, type[Glove] | type[PhraseEncoder]] = {
    "glove": Glove,
    "use": UniversalSentenceEncoder,
    "minilm": MiniLM,
}
_FILE_KINDS = ("word2vec", "fasttext", "glove")
_KINDS = tuple(dict.fromkeys((*_PACKAGES, *_FILE_KINDS)))


class Source(Protocol):
    """Whatever gives vectors for class names."""

    dimension: int

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        ...


@dataclass(frozen=True, eq=False)
class Part:
    """One source with its frozen normalisation.

    Args:
        kind: the source's kind, as in the spec.
        source: what gives the vectors.
        origin: tells what is needed to find the source again, in a form that JSON can hold.
        scale: what rows are divided by.
        centre: what is subtracted from rows first, (D,).
    """

    kind: str
    source: Source
    origin: Callable[[], dict[str, Any]]
    scale: float | None = None
    centre: NDArray[np.float64] | None = None

    def place(self, rows: Vector, normalise: Normalise) -> NDArray[np.float64]:
        """Centre and scale rows of the source, (K, D)."""
        placed = rows.astype(np.float64) - (0.0 if self.centre is None else self.centre)
        if normalise == "l2":
            norms = np.linalg.norm(placed, axis=1, keepdims=True)
            return placed / np.where(norms > 0, norms, 1.0)
        return placed if self.scale is None else placed / self.scale


class FixedVectors(WordVectors):
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

    def as_lists(self) -> dict[str, list[float]]:
        """A form that JSON can hold."""
        return {name: vector.tolist() for name, vector in self._vectors.items()}


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


def split(spec: str) -> list[str]:
    """The parts of a spec; a "+" inside a file name is left alone.

    >>> split("glove+word2vec:c++/a.vec")
    ['glove', 'word2vec:c++/a.vec']
    """
    return re.split(rf"\+(?=(?:{'|'.join(_KINDS)})(?:[:+]|$))", spec)


def from_text(text: str, prompt: str, oov: OutOfVocabulary) -> Part:
    """The part that one piece of a spec names."""
    kind, colon, file = text.partition(":")
    choose("vector source", kind, _KINDS)
    if not colon and kind in _PACKAGES:
        return _from_package(kind, prompt, oov)
    if kind not in _FILE_KINDS:
        raise BadUsage(f"{kind!r} is an installed package and takes no file, got {text!r}.")
    if not file:
        raise BadUsage(f"{kind!r} needs a file of word vectors: write '{kind}:FILE'.")
    return _from_file(kind, Path(file).expanduser(), oov)


def from_table(vectors: Mapping[str, ArrayLike]) -> Part:
    """A part that holds its vectors itself."""
    fixed = FixedVectors(vectors)
    source = NamedWords(fixed, f"the table of {len(vectors)} names", "error")
    return Part("table", source, lambda: {"vectors": fixed.as_lists()})


def from_seed(dimension: int, seed: int) -> Part:
    """A part of random vectors."""
    return Part("random", RandomVectors(dimension, seed), lambda: {"seed": seed})


def restore(text: str, saved: Mapping[str, Any], options: Mapping[str, Any], places: list[Path]) -> Part:
    """The part that a provenance describes, before its scale and centre are put back."""
    kind = saved["kind"]
    if kind == "table":
        return from_table(saved["vectors"])
    if kind == "random":
        return from_seed(saved["dimension"], saved["seed"])
    if "file" in saved:
        given = Path(text.partition(":")[2]).expanduser()
        return _from_file(kind, _locate(saved["file"], saved["sha256"], [given, *places]), options["oov"])
    part = _from_package(kind, options["prompt"], options["oov"])
    installed = part.origin()["version"]
    if installed != saved["version"]:
        package, expected = saved["package"], saved["version"]
        raise JoemError(
            f"The vectors come from {package} {expected}, but {installed} is installed. "
            f"Install it with: pip install {package}=={expected}"
        )
    return part


def _from_package(kind: str, prompt: str, oov: OutOfVocabulary) -> Part:
    cls = _PACKAGES[kind]
    origin = {"package": cls.package, "version": package_version(cls.package, cls.install)}
    if issubclass(cls, PhraseEncoder):
        return Part(kind, cls(prompt), lambda: origin)
    return Part(kind, NamedWords(cls(), f"{kind} ({cls.package})", oov), lambda: origin)


def _from_file(kind: str, path: Path, oov: OutOfVocabulary) -> Part:
    source = NamedWords(open_vectors(path), f"{kind} ({path})", oov)
    # Hashing gigabytes takes seconds: only once somebody asks.
    return Part(kind, source, lambda: {"file": path.name, "sha256": sha256(path)})


def _locate(name: str, digest: str, places: Iterable[Path]) -> Path:
    """The file with that SHA-256 among the places; a folder stands for the file of that name in it."""
    candidates = [place / name if place.is_dir() else place for place in places]
    others = []
    for path in filter(Path.is_file, candidates):
        if sha256(path) == digest:
            return path
        others.append(f"{path} has {sha256(path)}")
    found = f"found other files: {'; '.join(others)}" if others else f"looked at {', '.join(map(str, candidates))}"
    raise JoemError(
        f"The word vectors {name} with SHA-256 {digest} are needed; {found}. "
        "Say where the file, or its folder, is: search=[PATH]."
    )
