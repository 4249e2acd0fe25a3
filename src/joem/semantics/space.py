"""The space of word vectors that a model is trained in, its normalisation frozen at training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from joem.errors import BadUsage, JoemError, UnknownWord, choose
from joem.semantics.class_names import described
from joem.semantics.controls import RandomVectors, exchanged
from joem.semantics.interface import Describing, OutOfVocabulary, Source, mean_direction
from joem.semantics.sentence_encoders import PhraseEncoder
from joem.semantics.sources import open_source, parse, restore, split
from joem.semantics.vector_table import open_table

Normalise = Literal["max", "l2", "none"]
Descriptions = Literal["name", "description", "both"]


@dataclass(frozen=True, eq=False)
class Part:
    """One source of a space with its frozen normalisation.

    Args:
        kind: the kind of source.
        source: what gives the vectors.
        scale: what rows are divided by.
        centre: what is subtracted from rows first, (D,).
    """

    kind: str
    source: Source
    scale: float | None = None
    centre: NDArray[np.float64] | None = None

    def normalised(self, rows: NDArray[Any], normalise: Normalise) -> NDArray[np.float64]:
        """Centre and scale rows of the source, (K, D)."""
        centred = rows.astype(np.float64) - (0.0 if self.centre is None else self.centre)
        if normalise == "l2":
            norms = np.linalg.norm(centred, axis=1, keepdims=True)
            return centred / np.where(norms > 0, norms, 1.0)
        return centred if self.scale is None else centred / self.scale


@dataclass(frozen=True, eq=False)
class Semantics:
    """Vectors of class names, from one or more sources side by side; made by `load`, `table` or `random`.

    Each source is normalised on its own before they are joined. What normalisation needs to know of the
    training names is fixed by `fit`, so that a new word at test time lands in the space of the training.

    A name may carry a description after a colon ("okapi: a striped animal with a long neck"); `descriptions` says what
    its vector is made of: the name, the description, or both, the mean of their two unit vectors. A word table reads a
    description as the mean of its words. With both, a name whose words are unknown leaves the description alone.

    >>> space = load("glove").fit(["horse", "sheep", "car"])
    >>> space.vectors(["horse", "cow"]).shape
    torch.Size([2, 50])
    """

    spec: str
    parts: tuple[Part, ...]
    normalise: Normalise = "none"
    prompt: str = "{}"
    oov: OutOfVocabulary = "error"
    centre: bool = False
    renaming: Mapping[str, str] = field(default_factory=dict)
    descriptions: Descriptions = "both"

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return sum(part.source.dimension for part in self.parts)

    def fit(self, names: Iterable[str]) -> "Semantics":
        """The same space with its centre and scale fixed by the training (seen) names.

        The centre is the mean of their vectors, if asked for; "max" divides by the largest norm among them.
        """
        wanted = self._renamed(names)
        if not wanted:
            raise BadUsage("fit needs the names of the seen classes, got none.")
        return replace(self, parts=tuple(self._fit_part(part, wanted) for part in self.parts))

    def vectors(self, names: Iterable[str]) -> torch.Tensor:
        """The vectors of any names, float32 (K, D)."""
        if any(
            (self.normalise == "max" and part.scale is None) or (self.centre and part.centre is None)
            for part in self.parts
        ):
            raise JoemError("The scale comes from the training names: call fit(seen_names) before vectors(names).")
        wanted = self._renamed(names)
        columns = []
        for part in self.parts:
            rows, owners = self._read(part.source, wanted)
            columns.append(_one_each(part.normalised(rows, self.normalise), owners, len(wanted)))
        return torch.from_numpy(np.concatenate(columns, axis=1).astype(np.float32))

    def with_prompt(self, prompt: str | Sequence[str]) -> "Semantics":
        """The same space with names put into another sentence; its centre and scale stay those of the training.

        Several sentences, as a sequence or with "|" between them, give the mean of their unit vectors.
        """
        prompt = _joined(prompt)
        if not any(isinstance(part.source, PhraseEncoder) for part in self.parts):
            raise _no_sentences(prompt, self.spec)
        parts = (
            replace(part, source=part.source.with_prompt(prompt)) if isinstance(part.source, PhraseEncoder) else part
            for part in self.parts
        )
        return replace(self, prompt=prompt, parts=tuple(parts))

    def with_descriptions(self, descriptions: Descriptions) -> "Semantics":
        """The same space with vectors made of names, of descriptions or of both, where a name has a description."""
        choose("use of descriptions", descriptions, get_args(Descriptions))
        return replace(self, descriptions=descriptions)

    def provenance(self) -> dict[str, Any]:
        """Where the vectors come from and how they were normalised, in a form that JSON can hold."""
        return {
            "spec": self.spec,
            "normalise": self.normalise,
            "prompt": self.prompt,
            "oov": self.oov,
            "centre": self.centre,
            "renaming": dict(self.renaming),
            "descriptions": self.descriptions,
            "parts": [
                {
                    "kind": part.kind,
                    **part.source.origin(),
                    "dimension": part.source.dimension,
                    "scale": part.scale,
                    "centre": None if part.centre is None else part.centre.tolist(),
                }
                for part in self.parts
            ],
        }

    @classmethod
    def from_provenance(cls, data: Mapping[str, Any], search: Iterable[str | Path] = ()) -> "Semantics":
        """The inverse of `provenance`: the same vectors, or an error that says what is missing.

        Args:
            data: what `provenance` gave.
            search: files, or folders of files, where word-vector files may be now.
        """
        paths = [Path(path) for path in search]
        parts = tuple(
            Part(
                saved["kind"],
                restore(text, saved, data, paths),
                saved["scale"],
                None if saved["centre"] is None else np.array(saved["centre"]),
            )
            for text, saved in zip(split(data["spec"]), data["parts"], strict=True)
        )
        named = ("normalise", "prompt", "oov", "centre", "renaming", "descriptions")
        options = {name: data[name] for name in named if name in data}
        return cls(data["spec"], parts, **options)

    def _fit_part(self, part: Part, names: list[str]) -> Part:
        rows, owners = self._read(part.source, names)
        rows = _one_each(rows, owners, len(names))
        centred = replace(part, centre=rows.mean(axis=0, dtype=np.float64) if self.centre else None, scale=None)
        if self.normalise != "max":
            return centred
        scale = float(np.linalg.norm(centred.normalised(rows, "none"), axis=1).max())
        if scale == 0:
            raise BadUsage(f"The vectors of {', '.join(names)} in {part.kind} are all zero: nothing to scale by.")
        return replace(centred, scale=scale)

    def _read(self, source: Source, texts: list[str]) -> tuple[NDArray[Any], list[int]]:
        """The rows of names and of descriptions, and which text each belongs to."""
        pairs = [described(text) for text in texts]
        told = {i: text for i, (_, text) in enumerate(pairs) if text is not None and self.descriptions != "name"}
        named = {i: name for i, (name, _) in enumerate(pairs) if i not in told or self.descriptions == "both"}
        try:
            rows = source.rows(list(named.values()))
        except UnknownWord:
            named = {i: name for i, name in named.items() if i not in told or _knows(source, name)}
            rows = source.rows(list(named.values()))
        if told:
            read = source.descriptions if isinstance(source, Describing) else source.rows
            rows = np.concatenate([rows, read(list(told.values()))])
        return rows, [*named, *told]

    def _renamed(self, names: Iterable[str]) -> list[str]:
        if isinstance(names, str):
            raise BadUsage(f"names must be a sequence of names, got the single text {names!r}: use [{names!r}].")
        return [self.renaming.get(name, name) for name in names]


def load(
    spec: str,
    normalise: Normalise = "max",
    prompt: str | Sequence[str] = "{}",
    oov: OutOfVocabulary = "error",
    centre: bool = False,
) -> Semantics:
    """The vectors that a text names.

    Args:
        spec: "glove", "use" or "minilm" (installed packages), "word2vec:FILE", "fasttext:FILE" or
            "glove:FILE" (text or binary, whichever the file is), "clip:NAME@PRETRAINED" or "clip:FOLDER" (the text
            tower of open_clip), "sentence:FOLDER" (sentence-transformers), or several joined with "+", side by side.
        normalise: "max" divides by the largest norm among the names given to `fit`, as JoEm's authors do;
            "l2" makes each vector of unit length; "none" leaves them.
        prompt: the sentence that sentence encoders read, with {} in place of the name, or several, as a sequence or
            with "|" between them.
        oov: what a word without a vector does: "error", "zero" (counts as a zero vector, before centring) or
            "skip" (left out of the mean of a name of several words).
        centre: subtract the mean of the vectors of the names given to `fit`.

    >>> load("glove+glove", normalise="l2").vectors(["cow", "dining table"]).shape
    torch.Size([2, 100])
    """
    choose("normalisation", normalise, get_args(Normalise))
    choose("out-of-vocabulary rule", oov, get_args(OutOfVocabulary))
    prompt = _joined(prompt)
    requests = [parse(text, prompt, oov) for text in split(spec)]
    parts = tuple(Part(request.kind, open_source(request)) for request in requests)
    if prompt != "{}" and not any(isinstance(part.source, PhraseEncoder) for part in parts):
        raise _no_sentences(prompt, spec)
    return Semantics(spec, parts, normalise, prompt, oov, centre)


def table(vectors: Mapping[str, ArrayLike]) -> Semantics:
    """The given vectors as they are, for use where their source is not at hand.

    >>> table({"cow": [1.0, 0.0], "horse": [0.0, 1.0]}).vectors(["horse"])
    tensor([[0., 1.]])
    """
    return Semantics("table", (Part("table", open_table(vectors)),))


def random(dimension: int, seed: int = 0) -> Semantics:
    """Control: for every name a Gaussian vector of its own, of norm about 1, that means nothing.

    >>> space = random(8)
    >>> bool((space.vectors(["cow"]) == space.vectors(["horse", "cow"])[1]).all())
    True
    """
    return Semantics("random", (Part("random", RandomVectors(dimension, seed)),))


def shuffled(semantics: Semantics, names: Iterable[str], seed: int = 0) -> Semantics:
    """Control: each of the names gets the vector of another one; names not listed keep their own.

    Whole names are exchanged, not words: exchanging words would only rename them ("red cow" and "red car"
    would still share a word), and what a method learns from shared words would survive.

    >>> space = table({"cow": [1.0, 0.0], "car": [0.0, 1.0]})
    >>> shuffled(space, ["cow", "car"]).vectors(["cow"])
    tensor([[0., 1.]])
    """
    moved = {name: semantics.renaming.get(other, other) for name, other in exchanged(names, seed).items()}
    return replace(semantics, renaming={**semantics.renaming, **moved})


def _joined(prompt: str | Sequence[str]) -> str:
    return prompt if isinstance(prompt, str) else "|".join(prompt)


def _knows(source: Source, name: str) -> bool:
    try:
        source.rows([name])
    except UnknownWord:
        return False
    return True


def _one_each(rows: NDArray[Any], owners: list[int], count: int) -> NDArray[Any]:
    """One row per text, (K, D), of rows (N, D) that belong to the texts of those indices."""
    if owners == list(range(count)):
        return rows
    return np.array([mean_direction(rows[np.array(owners) == index]) for index in range(count)])


def _no_sentences(prompt: str, spec: str) -> BadUsage:
    return BadUsage(
        f"The prompt {prompt!r} is for sentence encoders (use, minilm, clip, sentence); {spec!r} looks up words."
    )
