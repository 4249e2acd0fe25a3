"""Names to vectors: files of word vectors, sentence encoders, concatenation, frozen normalisation."""

from joem.semantics.space import Semantics, load, random, shuffled, table

__all__ = ["Semantics", "load", "random", "shuffled", "table"]
