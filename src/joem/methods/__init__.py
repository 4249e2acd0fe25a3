"""The systems of the field behind one interface; a new one is one file and one line here."""

from joem.errors import choose
from joem.methods.base import Method, Objective
from joem.methods.cosine import CosineJoEm
from joem.methods.joem import JoEm

METHODS: dict[str, type[Method]] = {"joem": JoEm, "joem-cosine": CosineJoEm}

__all__ = ["METHODS", "CosineJoEm", "JoEm", "Method", "Objective", "get"]


def get(name: str) -> type[Method]:
    """The class of a method; an unknown name answers with the list."""
    return METHODS[choose("method", name, METHODS)]
