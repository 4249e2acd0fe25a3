"""Class names in terms of single words: spellings, names of several words, words without a vector."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import numpy as np

from joem.errors import BadUsage, UnknownWord
from joem.semantics.interface import OutOfVocabulary, Vector, WordVectors, mean

_Known = dict[str, Vector | None]

WRITTEN_APART = {
    "diningtable": "dining table",
    "pottedplant": "potted plant",
    "tvmonitor": "tv monitor",
    "playingfield": "playing field",
    "waterdrops": "water drops",
}
"""Class names of VOC, Context and COCO-Stuff that run words together, as running text has them."""

_OTHER_WORD = {"aeroplane": "airplane", "motorbike": "motorcycle", "bedcloth": "bedclothes"}
# Both tables serve in both directions: a file may hold either spelling.
_SAME_AS = {**WRITTEN_APART, **_OTHER_WORD}
_SAME_AS |= {other: name for name, other in _SAME_AS.items()}

# A hint is not worth reading a whole file of millions of words for.
_HINT_WORDS = 500_000
_HINT_CANDIDATES = 20_000

REMEMBERED = 50_000
"""How many names or spellings keep their vectors in memory; a service is asked for new ones as long as it runs."""


class NamedWords:
    """Vectors of class names, looked up in a source of word vectors.

    A name is tried as it is, then with its words joined by spaces, underscores or hyphens, then in lower
    case, then in the other spelling that datasets use for it; otherwise it is the mean of its words' vectors.
    Alternatives ("sofa|couch") are looked up each on its own and averaged.

    Args:
        vectors: the words.
        label: how messages name the source.
        oov: what a word without a vector does: "error" raises, "zero" counts it as a zero vector, "skip"
            leaves it out of its name's mean (and raises if nothing is left).
    """

    def __init__(self, vectors: WordVectors, label: str, oov: OutOfVocabulary) -> None:
        self._vectors = vectors
        self._label = label
        self._oov = oov
        self._known: _Known = {}
        self.dimension = vectors.dimension

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        known = self._look_up({text for name in names for text in _all_texts(name)})
        return np.array([self._row(name, known) for name in names], dtype=np.float32).reshape(-1, self.dimension)

    def origin(self) -> dict[str, Any]:
        """That of the word vectors."""
        return self._vectors.origin()

    def _look_up(self, texts: set[str]) -> _Known:
        """What is known of the texts; other threads may look up others at the same time."""
        known = self._known
        new = texts - known.keys()
        if new:
            known = known | dict.fromkeys(new) | self._vectors.find(new)
            self._known = known if len(known) <= REMEMBERED else {}
        return known

    def _row(self, name: str, known: _Known) -> Vector:
        whole = _first(name, known)
        if whole is not None:
            return whole
        rows = [row for part in alternatives(name) if (row := self._alternative(part, name, known)) is not None]
        if not rows:
            raise self._missing(name, name)
        return mean(rows)

    def _alternative(self, text: str, name: str, known: _Known) -> Vector | None:
        whole = _first(text, known)
        if whole is not None:
            return whole
        rows = []
        for word in _words(text):
            row = _first(word, known)
            if row is None:
                row = self._vectors.compose(word)
            if row is None and self._oov == "error":
                raise self._missing(word, name)
            if row is None and self._oov == "zero":
                row = np.zeros(self.dimension, dtype=np.float32)
            if row is not None:
                rows.append(row)
        return mean(rows) if rows else None

    def _missing(self, word: str, name: str) -> UnknownWord:
        similar = (
            other
            for other in islice(self._vectors.words(), _HINT_WORDS)
            if other[:1] == word[:1] and abs(len(other) - len(word)) <= 2
        )
        near = get_close_matches(word, islice(similar, _HINT_CANDIDATES), n=3)
        hint = f" Near matches: {', '.join(near)}." if near else ""
        return UnknownWord(
            f"No vector for the word {word!r} of the class {name!r} in {self._label}.{hint} "
            f"Rename the class, give alternatives ('{name}|other name'), or train without the word: "
            "--semantics.oov zero or --semantics.oov skip.",
            word,
            near,
        )


def _first(text: str, known: _Known) -> Vector | None:
    """The vector of the first spelling that has one."""
    return next((row for t in _spellings(text) if (row := known[t]) is not None), None)


def alternatives(name: str) -> list[str]:
    """The alternatives of a class name.

    >>> alternatives("sofa | couch")
    ['sofa', 'couch']
    """
    parts = [part.strip() for part in name.split("|") if _split(part)]
    if not parts:
        raise BadUsage(f"A class name must hold a word, got {name!r}.")
    return parts


def _spellings(text: str) -> list[str]:
    """The ways to write one name, in the order they are tried.

    >>> _spellings("Dining Table")[:4]
    ['Dining Table', 'Dining_Table', 'Dining-Table', 'dining table']
    """
    other = _SAME_AS.get(_plain(text))
    readings = [text, text.lower(), *([other] if other else [])]
    return list(dict.fromkeys(form for r in readings for form in (r, *(j.join(_split(r)) for j in (" ", "_", "-")))))


def _plain(text: str) -> str:
    return " ".join(_split(text)).lower()


def _split(text: str) -> list[str]:
    return re.findall(r"[^\s_-]+", text)


def _words(text: str) -> list[str]:
    """The single words of a name, taken apart where a dataset ran them together."""
    return _split(WRITTEN_APART.get(_plain(text), text))


def _all_texts(name: str) -> Iterator[str]:
    """Everything that may be looked up for a name, so that one pass over a file is enough."""
    yield from _spellings(name)
    for part in alternatives(name):
        yield from _spellings(part)
        for word in _words(part):
            yield from _spellings(word)
