"""The errors a user can meet: each says what was got, what was expected and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class JoemError(Exception):
    """Something the user can mend; the command line prints its message and exits with 1."""


class BadUsage(JoemError):
    """The request itself is wrong (an unknown name, an impossible value); the command line exits with 2."""


class UnknownWord(BadUsage):
    """A class name holds a word that the word vectors do not know.

    Attributes:
        word: the word.
        near: words like it that have a vector.
    """

    def __init__(self, message: str, word: str, near: list[str]) -> None:
        super().__init__(message)
        self.word, self.near = word, near

    def __reduce__(self) -> tuple[Any, ...]:  # processes that train together tell each other their errors
        return type(self), (str(self), self.word, self.near)


class Interrupted(JoemError):
    """The user stopped a run, which wrote a checkpoint to go on from."""


class ProcessLost(JoemError):
    """One of the processes that train together is gone; each of the others tells it."""


class LeakageError(JoemError):
    """An unseen class was about to reach a loss: the run would not be zero-shot any more."""


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is known, otherwise raise an error that lists the known ones.

    >>> choose("rule", "nn", ["nn", "cs", "ac"])
    'nn'
    """
    options = list(known)
    if name in options:
        return name
    near = get_close_matches(str(name), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadUsage(f"Unknown {kind} {name!r}.{hint} Available options are: {', '.join(options)}.")
