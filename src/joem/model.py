"""A trained model with everything needed to use it: weights, class names, where the word vectors came from."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

import joem
from joem import examples, methods, parallel, semantics
from joem.errors import BadUsage, JoemError
from joem.examples import Examples, TrainedFeatures
from joem.io import atomic_folder, damage_told, read_json, read_tensors, require, write_json, write_tensors
from joem.methods import Method
from joem.model_description import ADVICE, FORMAT, check_description
from joem.model_folder import DESCRIPTION, EXAMPLES, WEIGHTS, check_boxed, check_folder, find_model
from joem.models.trunk import build_trunk
from joem.recipe import Recipe
from joem.semantics import Semantics, imagenet, sources, text_towers
from joem.settings import plain
from joem.vocabulary import Vocabulary

VECTORS = "vocabulary_vectors"


@dataclass(frozen=True)
class Teaching:
    """Words that a model was taught, and by whom.

    Attributes:
        how: by masks, by the names of a classifier, by another network (teacher), by captions, or by pictures of unseen
            classes that it labels itself (unlabelled).
        who: the data or the network.
        saw: what it had seen itself.
        words: what it taught.
    """

    how: str
    who: str
    saw: str
    words: tuple[str, ...]


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
        examples: prototypes of classes that are known by examples.
        trained: where trained classes lie among the features, which examples are compared with; None where nobody
            looked.
        teaching: who taught which words.
    """

    recipe: Recipe
    vocabulary: Vocabulary
    semantics: Semantics
    vectors: Tensor
    method: Method
    missing: str | None = None
    examples: Examples = field(default_factory=dict)
    trained: TrainedFeatures | None = None
    teaching: tuple[Teaching, ...] = ()

    @classmethod
    def create(cls, recipe: Recipe, vocabulary: Vocabulary) -> "Model":
        """A model with fresh weights, drawn from torch's random numbers."""
        _check_towers(recipe)
        if recipe.model.weights == "imagenet":  # a download that fails shall do so before words are encoded for minutes
            with torch.random.fork_rng(devices=[]):
                build_trunk(recipe.model)
        source = _semantics(recipe, vocabulary)
        vectors = source.vectors(vocabulary.names)
        kind = methods.get(recipe.method.name)
        recipe = replace(recipe, method=kind.with_vocabulary(recipe.method, vocabulary))
        method = kind(recipe.model, recipe.method, vocabulary, vectors)
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
        method = self.method
        if method.training:  # it takes a while to find out that it is not
            method.eval()
        pictures = method.trunk.normalised(pixels)[None].to(self._device)
        return method.for_inference().features(method.trunk.for_inference()(pictures))

    @property
    def _device(self) -> torch.device:
        return next(self.method.parameters()).device

    def to(self, device: str | torch.device) -> "Model":
        """Move the networks to a device, see `parallel.device`."""
        try:
            self.method.to(parallel.device(str(device)))
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
        if self.trained is not None:
            tensors |= self.trained.tensors()
        if half:
            tensors = {name: each.half() if each.is_floating_point() else each for name, each in tensors.items()}
        write_tensors(folder / WEIGHTS, tensors)
        if self.examples:
            examples.write(folder / EXAMPLES, self.examples)
        write_json(folder / DESCRIPTION, self.description())

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, in a form that JSON can hold."""
        added = len(self.vocabulary) - len(self.method.vocabulary)
        return {
            "format": FORMAT,
            "joem": joem.__version__,
            "recipe": self.recipe.to_dict(),
            "vocabulary": self.vocabulary.to_dict(),
            **({"added": added} if added else {}),
            "teaching": [plain(each) for each in self.teaching],
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
        check_boxed(folder)
        described = check_description(read_json(folder / DESCRIPTION), folder / DESCRIPTION)
        with damage_told(folder / DESCRIPTION, ADVICE):
            recipe = Recipe.from_dict(described["recipe"])
            vocabulary = Vocabulary.from_dict(described["vocabulary"])
        tensors = read_tensors(folder / WEIGHTS)
        require(tensors, (VECTORS,), folder / WEIGHTS)
        vectors = checked_vectors(tensors.pop(VECTORS), described, folder / WEIGHTS)
        looks = TrainedFeatures.take(tensors, folder / WEIGHTS)
        bare = replace(recipe.model, weights="none")  # the weights are in the folder
        # The networks were built without the classes that were added by their words alone.
        trained = len(vocabulary) - described.get("added", 0)
        with damage_told(folder / DESCRIPTION, ADVICE), _no_larger_than(tensors):
            method = methods.get(recipe.method.name)(bare, recipe.method, vocabulary.first(trained), vectors[:trained])
        load_weights(method, tensors, folder)
        method.trunk.mean, method.trunk.std = (tuple(described["normalisation"][key]) for key in ("mean", "std"))
        with damage_told(folder / DESCRIPTION, ADVICE):
            source, missing = find_semantics(described["semantics"], search, vocabulary, vectors)
        loaded = cls(recipe, vocabulary, source, vectors, method.eval(), missing, trained=looks)
        loaded.teaching = taught_by(described)
        if (folder / EXAMPLES).is_file():
            loaded.examples = examples.read(folder / EXAMPLES, loaded.prototypes().shape[1])
        return loaded


def taught_by(described: Mapping[str, Any]) -> tuple[Teaching, ...]:
    """Who taught a model which words, from its description."""
    known = described.get("teaching", ())
    return tuple(Teaching(each["how"], each["who"], each["saw"], tuple(each["words"])) for each in known)


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
        found = Semantics.from_provenance(provenance, search)
        if found.dimension != vectors.shape[1]:
            raise JoemError(f"The source gives {found.dimension} numbers for a name, expected {vectors.shape[1]}.")
        return found, None
    except JoemError as error:
        return semantics.table(dict(zip(vocabulary.names, vectors, strict=True))), str(error)


def checked_vectors(vectors: Tensor, described: Mapping[str, Any], path: Path) -> Tensor:
    """The stored vectors of a model as float32, if they are those of its vocabulary."""
    size = sum(part["dimension"] for part in described["semantics"]["parts"])
    expected = (len(described["vocabulary"]["names"]), size)
    found = vectors.float()  # half-precision files are computed with in float32
    if vectors.shape != expected or vectors.is_complex() or not found.isfinite().all():
        raise JoemError(
            f"{path} is damaged: the stored word vectors have the shape {tuple(vectors.shape)}, expected {expected} "
            f"finite numbers. {ADVICE}"
        )
    return found


@contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Refuse to build networks far larger than the weights that are to fill them, before they take memory."""
    # A backbone is built with a classifier, which is not kept.
    left = 2 * sum(each.numel() for each in tensors.values()) + 50_000_000

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= parameter.numel() if parameter is not None else 0
        if left < 0:
            raise BadUsage("it describes networks that are far larger than the weights beside it")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def load_weights(method: Method, tensors: dict[str, Tensor], folder: Path) -> None:
    """Load weights strictly; what does not fit is listed."""
    for name, each in tensors.items():
        if each.is_floating_point() and not each.isfinite().all():
            raise JoemError(f"{folder / WEIGHTS} is damaged: the weights {name} are not all numbers. {ADVICE}")
    try:
        method.load_state_dict(tensors)
    except RuntimeError as error:
        raise JoemError(f"The checkpoint {folder} is of another architecture: {error}") from None


def _check_towers(recipe: Recipe) -> None:
    """Refuse words of one vision-language model beside features in the space of another."""
    if recipe.model.dense is None:
        return
    for kind, _, name in (text.partition(":") for text in sources.split(recipe.semantics.vectors)):
        wrong = text_towers.belongs(name, recipe.model.backbone, recipe.model.weights) if kind == "clip" else None
        if wrong:
            raise BadUsage(f"Their spaces differ: {wrong}. Take the two towers of one model.")


def _semantics(recipe: Recipe, vocabulary: Vocabulary) -> Semantics:
    settings = recipe.semantics
    source = semantics.load(
        settings.vectors,
        normalise=settings.normalise,
        prompt=settings.prompt,
        oov=settings.oov,
        centre=settings.centre,
    ).fit(_fitting_names(settings.fit, vocabulary))
    if settings.control == "shuffled":
        return semantics.shuffled(source, vocabulary.names, seed=recipe.train.seed)
    if settings.control == "random":
        return semantics.random(source.dimension, seed=recipe.train.seed)
    return source


def _fitting_names(fit: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """The names that fix the normalisation of word vectors."""
    if fit == "imagenet":
        return tuple(imagenet.names())
    return vocabulary.seen if fit == "seen" else vocabulary.names
