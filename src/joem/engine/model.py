"""A trained model with everything needed to use it: weights, class names, where the word vectors came from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

import joem
from joem import data, methods, semantics
from joem.errors import BadUsage, JoemError
from joem.io import atomic_folder, read_json, read_tensors, require, write_json, write_tensors
from joem.methods import Method
from joem.model_folder import DESCRIPTION, WEIGHTS, check_folder, find_model
from joem.recipe import Recipe
from joem.semantics import Semantics, imagenet
from joem.vocabulary import Vocabulary

_FORMAT = 2
VECTORS = "vocabulary_vectors"


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
        wanted = names or self.vocabulary.names
        return self.method.prototypes(word_vectors(self, wanted).to(self._device), wanted)

    @torch.no_grad()
    def features(self, pixels: Tensor) -> Tensor:
        """Visual features (1,C,H,W) of a picture (3,Ho,Wo) uint8."""
        method = self.method.eval()
        normalise = data.evaluation(mean=method.trunk.mean, std=method.trunk.std)
        image, _ = normalise(pixels, torch.zeros(pixels.shape[1:], dtype=torch.int64))
        return method.features(image[None].to(self._device))

    @property
    def _device(self) -> torch.device:
        return next(self.method.parameters()).device

    def to(self, device: str | torch.device) -> "Model":
        """Move the networks to a device."""
        try:
            self.method.to(device)
        except (RuntimeError, AssertionError) as error:  # the second where torch was built without CUDA
            raise BadUsage(f"The device {str(device)!r} cannot be used: {error}") from None
        return self

    def save(self, path: str | Path, half: bool = False) -> Path:
        """Write a folder with safetensors and JSON, whole or not at all; `half` takes half the space."""
        check_folder(path)
        with atomic_folder(Path(path)) as folder:
            self.write(folder, half)
        return Path(path)

    def write(self, folder: Path, half: bool = False) -> None:
        """Write the model's files into an existing folder."""
        tensors = {**self.method.state_dict(), VECTORS: self.vectors}
        if half:
            tensors = {name: each.half() if each.is_floating_point() else each for name, each in tensors.items()}
        write_tensors(folder / WEIGHTS, tensors)
        write_json(folder / DESCRIPTION, self.description())

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, in a form that JSON can hold."""
        added = len(self.vocabulary) - len(self.method.vocabulary)
        return {
            "format": _FORMAT,
            "joem": joem.__version__,
            "recipe": self.recipe.to_dict(),
            "vocabulary": self.vocabulary.to_dict(),
            **({"added": added} if added else {}),
            "semantics": self.semantics.provenance(),
            "normalisation": {"mean": self.method.trunk.mean, "std": self.method.trunk.std},
        }

    @classmethod
    def load(cls, path: str | Path, search: Iterable[str | Path] = ()) -> "Model":
        """Load a model folder, a checkpoint, the newest of a run's folder, or a model in the box by its name.

        `search` lists files or folders where the word vectors may be now; a model whose vectors are gone still knows
        the names of its vocabulary.
        """
        folder = find_model(path)
        described = read_json(folder / DESCRIPTION)
        check_format(described, folder / DESCRIPTION)
        require(described, ("recipe", "vocabulary", "semantics", "normalisation"), folder / DESCRIPTION)
        require(described["normalisation"], ("mean", "std"), folder / DESCRIPTION)
        recipe = Recipe.from_dict(described["recipe"])
        vocabulary = Vocabulary.from_dict(described["vocabulary"])
        tensors = read_tensors(folder / WEIGHTS)
        require(tensors, (VECTORS,), folder / WEIGHTS)
        vectors = tensors.pop(VECTORS).float()  # half-precision files are computed with in float32
        bare = replace(recipe.model, weights="none")  # the weights are in the folder
        # The networks were built without the classes that were added by their words alone.
        trained = len(vocabulary) - described.get("added", 0)
        method = methods.get(recipe.method.name)(bare, recipe.method, vocabulary.first(trained), vectors[:trained])
        load_weights(method, tensors, folder)
        method.trunk.mean, method.trunk.std = (tuple(described["normalisation"][key]) for key in ("mean", "std"))
        source, missing = find_semantics(described["semantics"], search, vocabulary, vectors)
        return cls(recipe, vocabulary, source, vectors, method.eval(), missing)


class Words(Protocol):
    """What knows vectors of names: a `Model`, or an exported one."""

    vocabulary: Vocabulary
    semantics: Semantics
    vectors: Tensor
    missing: str | None


def word_vectors(model: Words, names: tuple[str, ...]) -> Tensor:
    """Vectors (K,D) of names: the stored ones of the vocabulary, the others from the source of the vectors."""
    known = dict(zip(model.vocabulary.names, model.vectors, strict=True))
    new = tuple(name for name in names if name not in known)
    if new and model.missing:
        raise JoemError(f"{', '.join(new)}: no vectors for new names. {model.missing}")
    if new:
        known.update(zip(new, model.semantics.vectors(new), strict=True))
    return torch.stack([known[name] for name in names])


def find_semantics(
    provenance: Mapping[str, Any], search: Iterable[str | Path], vocabulary: Vocabulary, vectors: Tensor
) -> tuple[Semantics, str | None]:
    """The source of the word vectors; where it is gone, the vocabulary's own vectors and why it is gone."""
    try:
        return Semantics.from_provenance(provenance, search), None
    except JoemError as error:
        return semantics.table(dict(zip(vocabulary.names, vectors, strict=True))), str(error)


def check_format(described: Any, path: Path) -> None:
    """Refuse what another version of this package wrote in another form."""
    require(described, ("format",), path)
    if described.get("format") != _FORMAT:
        raise JoemError(
            f"{path} has format {described.get('format')}, this version reads {_FORMAT}: it was written by "
            f"joem {described.get('joem')}, install that version."
        )


def load_weights(method: Method, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load weights strictly; what does not fit is listed."""
    try:
        method.load_state_dict(tensors)
    except RuntimeError as error:
        raise JoemError(f"The checkpoint {folder} is of another architecture: {error}") from None


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
