"""Class names to vectors: word vectors, sentence encoders, several side by side, frozen normalisation, controls."""

from joem.semantics import imagenet
from joem.semantics.class_names import alternatives, described
from joem.semantics.lexicon import gloss
from joem.semantics.sources import SOURCES
from joem.semantics.space import Semantics, load, random, shuffled, table

__all__ = [
    "SOURCES",
    "Semantics",
    "alternatives",
    "described",
    "gloss",
    "imagenet",
    "load",
    "random",
    "shuffled",
    "table",
]
