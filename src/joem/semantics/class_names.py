"""Class names and their descriptions in terms of single words: spellings, several words, words without a vector."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from joem.errors import BadUsage, UnknownWord
from joem.semantics import lexicon
from joem.semantics.interface import OutOfVocabulary, Vector, WordVectors, mean

_Known = dict[str, Vector | None]

# A hint is not worth reading a whole file of millions of words for.
_HINT_WORDS = 500_000

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a an and any are as at be been being but by can each etc for from had has have having he her his how if in into
        is it its itself may more most no nor not of often on one ones or other others our out over she so some such
        than that the their them then there these they this those through to up upon us usually very was we were what
        when where which while who whose will with you your
        """,
    )
)

# A colon that is part of a time (10:30) or an address (http://) ends no name; nor does a name hold a comma.
_DESCRIBED = re.compile(r"([^,]*?[^,\s])\s*(?:(?<!\d):|:(?!\d))(?!//)\s*(.*)", re.DOTALL)

REMEMBERED = 50_000
"""How many names or spellings keep their vectors in memory; a service is asked for new ones as long as it runs."""


def described(text: str) -> tuple[str, str | None]:
    """A class name and its description after a colon, None where there is none.

    >>> described("okapi: a striped animal"), described("cow"), described("clock at 10:30")
    (('okapi', 'a striped animal'), ('cow', None), ('clock at 10:30', None))
    """
    found = _DESCRIBED.fullmatch(text.strip())
    return (found[1], found[2] or None) if found else (text, None)


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

    def descriptions(self, texts: Sequence[str]) -> Vector:
        """Vectors of descriptions, (K, D): the mean over the words that have one, stop words left out."""
        words = [[word for word in re.findall(r"[^\W\d_]{2,}", t) if word.lower() not in _STOP_WORDS] for t in texts]
        known = self._look_up({form for each in words for word in each for form in _spellings(word)})
        found = [[row for word in each if (row := self._word(word, known)) is not None] for each in words]
        for text, rows in zip(texts, found, strict=True):
            if not rows:
                told = f"No vector for any word of the description {text!r} in {self._label}: use other words."
                raise UnknownWord(told, text, [])
        return np.array([mean(rows) for rows in found], dtype=np.float32).reshape(-1, self.dimension)

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
            row = self._word(word, known)
            if row is None and self._oov == "error":
                raise self._missing(word, name)
            if row is None and self._oov == "zero":
                row = np.zeros(self.dimension, dtype=np.float32)
            if row is not None:
                rows.append(row)
        return mean(rows) if rows else None

    def _word(self, word: str, known: _Known) -> Vector | None:
        row = _first(word, known)
        return self._vectors.compose(word) if row is None else row

    def _missing(self, word: str, name: str) -> UnknownWord:
        near = lexicon.spelled_like(word, islice(self._vectors.words(), _HINT_WORDS))
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
    other = lexicon.OTHER_SPELLING.get(_plain(text))
    readings = [text, text.lower(), *([other] if other else [])]
    return list(dict.fromkeys(form for r in readings for form in (r, *(j.join(_split(r)) for j in (" ", "_", "-")))))


def _plain(text: str) -> str:
    return " ".join(_split(text)).lower()


def _split(text: str) -> list[str]:
    return re.findall(r"[^\s_-]+", text)


def _words(text: str) -> list[str]:
    """The single words of a name, taken apart where a dataset ran them together."""
    return _split(lexicon.WRITTEN_APART.get(_plain(text), text))


def _all_texts(name: str) -> Iterator[str]:
    """Everything that may be looked up for a name, so that one pass over a file is enough."""
    yield from _spellings(name)
    for part in alternatives(name):
        yield from _spellings(part)
        for word in _words(part):
            yield from _spellings(word)
