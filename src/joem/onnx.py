"""A trained model as one ONNX file, from uint8 pixels to labels, and running it with onnxruntime.

The graph takes the prototypes of the classes, which of them are unseen, the rule and the value of its parameter as
inputs: classes and rule change without another export. It holds every rule that is registered when it is written. Their
names, and what makes prototypes of words, travel in the file's metadata (`_DESCRIBED`, `_ENCODER`). The graph itself is
made in `joem.onnx_graph`, with convolutions of eight bits in `joem.onnx_int8`.
"""

import base64
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from joem import examples, extras
from joem.decision import NEAREST, RULES, Rule, nearest, rank
from joem.errors import BadUsage, JoemError, choose
from joem.examples import Examples, TrainedFeatures
from joem.io import atomic_file, damage_told
from joem.model import Model, Teaching, checked_vectors, find_semantics, taught_by, word_vectors
from joem.model_description import ADVICE, check_description
from joem.model_folder import EXAMPLES
from joem.onnx_graph import INPUTS, OUTPUTS, encoder_program, features_only, program
from joem.onnx_int8 import with_int8
from joem.recipe import Recipe
from joem.semantics import Semantics
from joem.vocabulary import Vocabulary

_DESCRIBED, _ENCODER, _TRAINED = "joem", "joem.semantic_encoder", "joem.trained_features"  # keys of the metadata
_LARGEST_DIFFERENCE = 1e-3  # share of labels; float32 sums in another order decide near-ties differently
_LARGEST_OF_INT8 = 0.1


def to_onnx(model: Model, path: str | Path, calibration: Sequence[Tensor] = ()) -> float:
    """Write a model as one ONNX file and compare it with torch.

    Args:
        model: what to write.
        path: the file.
        calibration: pictures (3,H,W) uint8 of the kind that the model is for; with some, the convolutions compute with
            integers of eight bits, whose ranges are those met in these pictures.

    Returns:
        the share of pixels whose label differs from torch's, on noise of two sizes or on the pictures for calibration.
    """
    _require_packages()
    if model.method.new_class_stages:
        raise BadUsage(
            f"{model.recipe.method.name} must train again for every new class, so its classes cannot be left open: "
            "export a model that takes new words at once, such as joem."
        )
    whole = program(model).model_proto
    encoder = encoder_program(model).model_proto.SerializeToString()
    described = {
        **model.description(),
        "vectors": model.vectors.tolist(),
        "stride": model.method.stride,
        "unit": math.lcm(model.method.stride, *model.method.trunk.strides),
        "rules": [ExportedRule.of(rule)._asdict() for rule in RULES.values()],
    }
    notes = {_DESCRIBED: json.dumps(described), _ENCODER: base64.b64encode(encoder).decode()}
    if model.trained is not None:
        notes[_TRAINED] = base64.b64encode(safetensors.torch.save(model.trained.tensors())).decode()
    for name, text in notes.items():
        whole.metadata_props.add(key=name, value=text)
    if calibration:
        whole = with_int8(whole, calibration)
    with atomic_file(Path(path)) as draft:
        draft.write_bytes(whole.SerializeToString())
        exported = OnnxModel.load(draft)
        different = _difference_on(model, exported, calibration) if calibration else _difference(model, exported)
        if different > (_LARGEST_OF_INT8 if calibration else _LARGEST_DIFFERENCE):
            raise JoemError(f"{different:.2%} of the exported model's labels differ from torch's: it was not written.")
    if model.examples:
        examples.write(examples_file(path), model.examples)
    return different


def examples_file(path: str | Path) -> Path:
    """Where the prototypes of examples are, beside the file of an exported model.

    >>> examples_file("box.onnx").name
    'box.examples.safetensors'
    """
    return Path(path).with_suffix(f".{EXAMPLES}")


class ExportedRule(NamedTuple):
    """A rule that an exported file holds, with the name of its parameter and the value that corrects nothing."""

    name: str
    parameter: str | None
    neutral: float

    @classmethod
    def of(cls, rule: Rule) -> "ExportedRule":
        """What the file says of a rule."""
        parameter = rule.parameter
        return cls(rule.name, None, 0.0) if parameter is None else cls(rule.name, parameter.name, parameter.neutral)


@dataclass
class OnnxModel:
    """A model that `to_onnx` wrote, run by onnxruntime; a `Segmenter` takes it like a `Model`.

    Attributes: see `Model`; the prototypes of examples are in a file beside it (`examples_file`). And
        stride: of the features.
        unit: pixels after which all maps of the backbone begin again, where the file says it.
        rules: what the graph can decide by, by name, in the order of its input `rule`.
    """

    recipe: Recipe
    vocabulary: Vocabulary
    semantics: Semantics
    vectors: Tensor
    missing: str | None
    stride: int
    rules: dict[str, ExportedRule]
    _file: Path = field(repr=False)
    _visual: Any = field(repr=False)
    _encoder: Any = field(repr=False)
    examples: Examples = field(default_factory=dict)
    trained: TrainedFeatures | None = None
    teaching: tuple[Teaching, ...] = ()
    unit: int | None = None

    @classmethod
    def load(cls, path: str | Path, search: Iterable[str | Path] = ()) -> "OnnxModel":
        """Load an exported file; `search` lists files or folders where the word vectors may be now."""
        _require_packages()
        if not Path(path).is_file():
            raise JoemError(f"There is no exported model {str(path)!r}: joem export MODEL --out {path} writes one.")
        import onnx

        with damage_told(path, ADVICE):
            whole = onnx.load(path, load_external_data=False)
            notes = {each.key: each.value for each in whole.metadata_props}
        if _DESCRIBED not in notes:
            raise JoemError(f"{path} was not written by joem export: it does not say which classes it knows.")
        with damage_told(path, ADVICE):
            described = check_description(json.loads(notes[_DESCRIBED]), Path(path), exported=True)
            recipe, vocabulary = Recipe.from_dict(described["recipe"]), Vocabulary.from_dict(described["vocabulary"])
            vectors = checked_vectors(torch.tensor(described["vectors"]), described, Path(path))
            encoder = _session(base64.b64decode(notes[_ENCODER], validate=True))
            visual = _checked_visual(whole, encoder, vectors)
            looks = _trained_features(notes, Path(path))
            source, missing = find_semantics(described["semantics"], search, vocabulary, vectors)
        rules = {rule["name"]: ExportedRule(**rule) for rule in described["rules"]}
        shown = examples_file(path)
        kept = examples.read(shown, visual.get_outputs()[0].shape[1]) if shown.is_file() else {}
        parts = (Path(path), visual, encoder, kept, looks, taught_by(described), described.get("unit"))
        return cls(recipe, vocabulary, source, vectors, missing, described["stride"], rules, *parts)

    def prototypes(self, names: tuple[str, ...] | None = None) -> Tensor:
        """Prototypes (K,C) of names, of the vocabulary if None."""
        vectors = word_vectors(self, names or self.vocabulary.names)
        return _run(self._encoder, "prototypes", {"vectors": vectors.numpy()})

    def features(self, pixels: Tensor) -> Tensor:
        """Visual features (1,C,h,w) of a picture (3,H,W) uint8."""
        return _run(self._visual, "features", {"pixels": _interleaved(pixels)})

    def labels(
        self, pixels: Tensor, prototypes: Tensor, unseen: Tensor, rule: str = NEAREST, value: float | None = None
    ) -> Tensor:
        """Labels (H,W) of a picture (3,H,W) uint8 in one go.

        Args:
            pixels: the picture.
            prototypes: (K,C), see `prototypes`.
            unseen: K booleans, which classes are unseen.
            rule: one of `rules`.
            value: of the rule's parameter; the one that corrects nothing if None.
        """
        chosen = self.rules[choose("rule", rule, self.rules)]
        if value is not None and chosen.parameter is None:
            raise BadUsage(f"The rule {rule} has no parameter, got the value {value}: leave it out.")
        index = list(self.rules).index(rule)
        feed = _feed(pixels, prototypes, unseen, index, chosen.neutral if value is None else value)
        return _run(self._network, "labels", feed)

    @cached_property
    def _network(self) -> Any:
        """The whole graph, which only `labels` needs."""
        return _session(self._file)


def _difference(model: Model, exported: OnnxModel) -> float:
    """The share of labels that differ between torch and onnxruntime, on noise of two sizes, over every rule."""
    prototypes, unseen = model.prototypes().cpu(), torch.zeros(len(model.vocabulary), dtype=torch.bool)
    unseen[list(model.vocabulary.unseen_indices)] = True
    reach = float(torch.cdist(prototypes, prototypes).max())
    different = pixels = 0
    generator = torch.Generator().manual_seed(0)
    for size in ((96, 130), (61, 47)):
        picture = torch.randint(0, 256, (3, *size), generator=generator, dtype=torch.uint8)
        ranking = rank(model.features(picture).cpu(), prototypes, unseen, size)
        for name, rule in RULES.items():
            grid = rule.parameter.grid(reach) if rule.parameter else (None,)
            value = grid[len(grid) // 4]  # a correction that leaves both kinds of class
            found = exported.labels(picture, prototypes, unseen, name, value)
            different += int((found != rule.decide(ranking, value)[0]).sum())
            pixels += found.numel()
    return different / pixels


def _difference_on(model: Model, exported: OnnxModel, pictures: Sequence[Tensor]) -> float:
    """The share of labels of pictures that differ between torch and onnxruntime, by the nearest of the own classes."""
    prototypes, different, pixels = model.prototypes().cpu(), 0, 0
    for picture in pictures:
        found = [nearest(each.features(picture).cpu(), prototypes, picture.shape[1:]) for each in (model, exported)]
        different += int((found[0] != found[1]).sum())
        pixels += found[0].numel()
    return different / pixels


def _feed(pixels: Tensor, prototypes: Tensor, unseen: Tensor, rule: int, value: float) -> dict[str, NDArray[Any]]:
    values = (
        _interleaved(pixels),
        prototypes.numpy(),
        unseen.numpy(),
        np.array(rule, np.int64),
        np.array(value, np.float32),
    )
    return dict(zip(INPUTS, values, strict=True))


def _interleaved(pixels: Tensor) -> NDArray[np.uint8]:
    """A picture (3,H,W) as the graph takes it, (H,W,3)."""
    return np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())


def _session(model: str | Path | bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=onnxruntime.get_available_providers())
    except Exception as error:
        raise JoemError(
            f"onnxruntime cannot load {model if isinstance(model, str | Path) else 'it'}: {error}"
        ) from error


def _run(session: Any, output: str, feed: dict[str, NDArray[Any]]) -> Tensor:
    try:
        return torch.from_numpy(session.run([output], feed)[0])
    except Exception as error:  # onnxruntime has many kinds
        raise JoemError(f"onnxruntime cannot run the exported model, which may be damaged: {error}") from None


def _checked_visual(whole: Any, encoder: Any, vectors: Tensor) -> Any:
    """The visual encoder, if the two graphs of a file have the inputs and outputs that this module writes."""
    ends = [tuple(each.name for each in part) for part in (whole.graph.input, whole.graph.output)]
    if ends != [INPUTS, OUTPUTS] or [each.name for each in encoder.get_inputs()] != ["vectors"]:
        raise BadUsage(f"its graph goes from {', '.join(ends[0])} to {', '.join(ends[1])}")
    visual = _session(features_only(whole).SerializeToString())
    channels = visual.get_outputs()[0].shape[1]
    prototypes = _run(encoder, "prototypes", {"vectors": vectors.numpy()})
    if prototypes.shape != (len(vectors), channels) or not prototypes.isfinite().all():
        raise BadUsage(f"its prototypes have the shape {tuple(prototypes.shape)}, its features {channels} channels")
    return visual


def _trained_features(notes: dict[str, str], path: Path) -> TrainedFeatures | None:
    """Where trained classes lie among the features, if the file says it."""
    if _TRAINED not in notes:
        return None
    return TrainedFeatures.take(safetensors.torch.load(base64.b64decode(notes[_TRAINED], validate=True)), path)


def _require_packages() -> None:
    extras.require("onnx", "An ONNX model")
