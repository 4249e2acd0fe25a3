"""A trained model with everything needed to use it: weights, class names, where the word vectors came from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import joem
from joem import imagenet, methods, semantics
from joem.engine.files import atomic_folder, read_json, read_tensors, write_json, write_tensors
from joem.errors import JoemError
from joem.methods import Method
from joem.recipe import Recipe
from joem.semantics import Semantics
from joem.vocabulary import Vocabulary

_WEIGHTS, _DESCRIPTION = "weights.safetensors", "model.json"
_FORMAT = 1
_VECTORS = "vocabulary_vectors"


@dataclass
class Model:
    """What a run produces and a `Segmenter` uses.

    Attributes:
        recipe: how it was made.
        vocabulary: the classes it was made for.
        semantics: names to vectors, with the normalisation frozen at training.
        vectors: (K,D) vectors of the vocabulary's names, kept so that these need no vector file.
        method: the networks.
        missing: why the source of the word vectors could not be found again, if so; only names of the vocabulary
            can be used then.
    """

    recipe: Recipe
    vocabulary: Vocabulary
    semantics: Semantics
    vectors: Tensor
    method: Method
    missing: str | None = None

    @classmethod
    def create(cls, recipe: Recipe, vocabulary: Vocabulary) -> "Model":
        """A model with fresh weights, drawn from torch's random numbers."""
        source = _semantics(recipe, vocabulary)
        vectors = source.vectors(vocabulary.names)
        method = methods.get(recipe.method.name)(recipe.model, recipe.method, vocabulary, vectors)
        method.learn_names(source)
        return cls(recipe, vocabulary, source, vectors, method)

    @torch.no_grad()
    def prototypes(self, names: tuple[str, ...] | None = None) -> Tensor:
        """Prototypes (K,C) of names, of the vocabulary if None; names never met in training are fine."""
        wanted = self.vocabulary.names if names is None else names
        known = dict(zip(self.vocabulary.names, self.vectors, strict=True))
        new = tuple(name for name in wanted if name not in known)
        if new and self.missing:
            raise JoemError(f"{', '.join(new)}: no vectors for new names. {self.missing}")
        if new:
            known.update(zip(new, self.semantics.vectors(new), strict=True))
        device = next(self.method.parameters()).device
        return self.method.prototypes(torch.stack([known[name] for name in wanted]).to(device), wanted)

    def save(self, path: str | Path) -> Path:
        """Write a folder with safetensors and JSON, whole or not at all."""
        with atomic_folder(Path(path)) as folder:
            self.write(folder)
        return Path(path)

    def write(self, folder: Path) -> None:
        """Write the model's files into an existing folder."""
        write_tensors(folder / _WEIGHTS, {**self.method.state_dict(), _VECTORS: self.vectors})
        write_json(folder / _DESCRIPTION, self.description())

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, in a form that JSON can hold."""
        return {
            "format": _FORMAT,
            "joem": joem.__version__,
            "recipe": self.recipe.to_dict(),
            "vocabulary": self.vocabulary.to_dict(),
            "semantics": self.semantics.provenance(),
            "normalisation": {"mean": self.method.visual.mean, "std": self.method.visual.std},
        }

    @classmethod
    def load(cls, path: str | Path, search: Iterable[str | Path] = ()) -> "Model":
        """Load a model folder, a checkpoint, or the newest of a run's folder.

        `search` lists files or folders where the word vectors may be now; a model whose vectors are gone still knows
        the names of its vocabulary.
        """
        folder = find_model(Path(path))
        described = read_json(folder / _DESCRIPTION)
        if described.get("format") != _FORMAT:
            raise JoemError(
                f"{folder} has format {described.get('format')}, this version reads {_FORMAT}: it was written by "
                f"joem {described.get('joem')}, install that version."
            )
        recipe = Recipe.from_dict(described["recipe"])
        vocabulary = Vocabulary.from_dict(described["vocabulary"])
        tensors = read_tensors(folder / _WEIGHTS)
        vectors = tensors.pop(_VECTORS)
        bare = replace(recipe.model, weights="none")  # the weights are in the folder
        method = methods.get(recipe.method.name)(bare, recipe.method, vocabulary, vectors)
        load_weights(method, tensors, folder)
        method.visual.mean, method.visual.std = (tuple(described["normalisation"][key]) for key in ("mean", "std"))
        missing = None
        try:
            source = Semantics.from_provenance(described["semantics"], search)
        except JoemError as error:
            source, missing = semantics.table(dict(zip(vocabulary.names, vectors, strict=True))), str(error)
        return cls(recipe, vocabulary, source, vectors, method.eval(), missing)


def load_weights(method: Method, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load weights strictly; what does not fit is listed."""
    try:
        method.load_state_dict(tensors)
    except RuntimeError as error:
        raise JoemError(f"The checkpoint {folder} is of another architecture: {error}") from None


def find_model(path: Path) -> Path:
    """The folder of a model: the path itself, its model/, or its newest checkpoint."""
    checkpoints = sorted((path / "checkpoints").glob("step-*"), reverse=True)
    for folder in (path, path / "model", *checkpoints):
        if (folder / _DESCRIPTION).is_file():
            return folder
    raise JoemError(
        f"There is no model in {path}: expected a folder with {_DESCRIPTION} and {_WEIGHTS}, as joem train writes it."
    )


def _semantics(recipe: Recipe, vocabulary: Vocabulary) -> Semantics:
    settings = recipe.semantics
    source = semantics.load(
        settings.vectors,
        normalise=settings.normalise,
        prompt=settings.prompt,
        oov=settings.oov,
        centre=settings.centre,
    ).fit(vocabulary.seen if settings.fit == "seen" else imagenet.names())
    if settings.control == "shuffled":
        return semantics.shuffled(source, vocabulary.names, seed=recipe.train.seed)
    if settings.control == "random":
        return semantics.random(source.dimension, seed=recipe.train.seed)
    return source
