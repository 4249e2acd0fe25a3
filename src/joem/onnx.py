"""A trained model as one ONNX file, from uint8 pixels to labels, and running it with onnxruntime.

The graph takes the prototypes of the classes, which of them are unseen, the rule and the value of its parameter as
inputs: classes and rule change without another export. It holds every rule that is registered when it is written. Their
names, and what makes prototypes of words, travel in the file's metadata (`_DESCRIBED`, `_ENCODER`). Here features are
upsampled before distances are taken, which is the definition `joem.decision` computes in less memory.
"""

import base64
import copy
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from joem import examples, extras
from joem.decision import NEAREST, RULES, Ranking, Rule, rank
from joem.errors import BadUsage, JoemError, choose
from joem.examples import Examples, TrainedFeatures
from joem.io import atomic_file, damage_told
from joem.methods import Method
from joem.model import Model, Teaching, checked_vectors, find_semantics, taught_by, word_vectors
from joem.model_description import ADVICE, check_description
from joem.model_folder import EXAMPLES
from joem.models.backbones.efficientnet_lite import Conv2dSame, conv2d_same
from joem.models.backbones.exporting import exportable
from joem.recipe import Recipe
from joem.semantics import Semantics
from joem.vocabulary import Vocabulary

INPUTS = ("pixels", "prototypes", "unseen", "rule", "value")
"""(H,W,3) uint8, (K,C) float32, (K,) bool, the index of a rule among those of the file (int64) and the value of its
parameter (float32; 0 for a rule without one)."""

OUTPUTS = ("labels", "features")
"""(H,W) int64 indices of prototypes, and the visual features (1,C,h,w) they were taken from."""

_DESCRIBED, _ENCODER, _TRAINED = "joem", "joem.semantic_encoder", "joem.trained_features"  # keys of the metadata
_LARGEST_DIFFERENCE = 1e-3  # share of labels; float32 sums in another order decide near-ties differently


def to_onnx(model: Model, path: str | Path) -> float:
    """Write a model as one ONNX file and compare it with torch.

    Returns:
        the share of pixels whose label differs from torch's, on pictures of two sizes.
    """
    _require_packages()
    if model.method.new_class_stages:
        raise BadUsage(
            f"{model.recipe.method.name} must train again for every new class, so its classes cannot be left open: "
            "export a model that takes new words at once, such as joem."
        )
    program = _program(model)
    encoder = _encoder_program(model).model_proto.SerializeToString()
    described = {
        **model.description(),
        "vectors": model.vectors.tolist(),
        "stride": model.method.stride,
        "unit": math.lcm(model.method.stride, *model.method.trunk.strides),
        "rules": [ExportedRule.of(rule)._asdict() for rule in RULES.values()],
    }
    program.model.metadata_props[_DESCRIBED] = json.dumps(described)
    program.model.metadata_props[_ENCODER] = base64.b64encode(encoder).decode()
    if model.trained is not None:
        blob = safetensors.torch.save(model.trained.tensors())
        program.model.metadata_props[_TRAINED] = base64.b64encode(blob).decode()
    with atomic_file(Path(path)) as draft:
        program.save(draft)
        different = _difference(model, OnnxModel.load(draft))
        if different > _LARGEST_DIFFERENCE:
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
    _network: Any = field(repr=False)
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
        network = _session(path)
        with damage_told(path, ADVICE):
            notes = network.get_modelmeta().custom_metadata_map
        if _DESCRIBED not in notes:
            raise JoemError(f"{path} was not written by joem export: it does not say which classes it knows.")
        with damage_told(path, ADVICE):
            described = check_description(json.loads(notes[_DESCRIBED]), Path(path), exported=True)
            recipe, vocabulary = Recipe.from_dict(described["recipe"]), Vocabulary.from_dict(described["vocabulary"])
            vectors = checked_vectors(torch.tensor(described["vectors"]), described, Path(path))
            encoder = _session(base64.b64decode(notes[_ENCODER], validate=True))
            channels = _checked_channels(network, encoder, vectors)
            looks = _trained_features(notes, Path(path))
            source, missing = find_semantics(described["semantics"], search, vocabulary, vectors)
        rules = {rule["name"]: ExportedRule(**rule) for rule in described["rules"]}
        shown = examples_file(path)
        kept = examples.read(shown, channels) if shown.is_file() else {}
        stride = described["stride"]
        known = taught_by(described)
        found = cls(recipe, vocabulary, source, vectors, missing, stride, rules, network, encoder, kept, looks, known)
        found.unit = described.get("unit")
        return found

    def prototypes(self, names: tuple[str, ...] | None = None) -> Tensor:
        """Prototypes (K,C) of names, of the vocabulary if None."""
        vectors = word_vectors(self, names or self.vocabulary.names)
        return _run(self._encoder, "prototypes", {"vectors": vectors.numpy()})

    def features(self, pixels: Tensor) -> Tensor:
        """Visual features (1,C,h,w) of a picture (3,H,W) uint8."""
        import onnxruntime

        channels = self._network.get_inputs()[1].shape[1]
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True  # the inputs of the decision are needed, but not read
        feed = _feed(pixels, torch.zeros(1, channels), torch.tensor([False]), rule=0, value=0.0)
        return _run(self._network, "features", feed, options)

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


class _Whole(nn.Module):
    """What is exported: normalisation, visual encoder, upsampling, distances and rules."""

    mean: Tensor
    std: Tensor

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.rules = tuple(RULES.values())
        self.register_buffer("mean", torch.tensor(method.trunk.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(method.trunk.std).view(3, 1, 1))

    def forward(
        self, pixels: Tensor, prototypes: Tensor, unseen: Tensor, rule: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        features = self.method.features(((pixels.permute(2, 0, 1).float() - self.mean) / self.std)[None])
        ranking = _rank(_distances(features, prototypes, pixels.shape[:2]), unseen)
        by_rule = torch.stack([each.unseen_wins(ranking, value) for each in self.rules])
        unseen_wins = torch.index_select(by_rule, 0, rule.view(1))[0]
        return torch.where(unseen_wins, ranking.unseen, ranking.seen)[0], features


def _rank(distances: Tensor, unseen: Tensor) -> Ranking:
    """`decision.rank` by its definition, of distances (K,H,W) to K classes, which are unseen or not."""
    is_unseen, none = unseen[:, None, None], torch.full_like(distances, torch.inf)
    seen_distance, seen = torch.where(is_unseen, none, distances).min(0)
    unseen_distance, nearest_unseen = torch.where(is_unseen, distances, none).min(0)
    taken = is_unseen | (torch.arange(unseen.shape[0])[:, None, None] == seen)
    second_seen_distance = torch.where(taken, none, distances).amin(0)
    planes = (seen, seen_distance, second_seen_distance, nearest_unseen, unseen_distance)
    return Ranking(*(plane[None] for plane in planes))


def _distances(features: Tensor, prototypes: Tensor, size: torch.Size) -> Tensor:
    """d(v, mu_c), (K,H,W), of features (1,C,h,w) upsampled to `size`; both are seen from the mean prototype."""
    centre = prototypes.mean(0)
    v = F.interpolate(features - centre[:, None, None], size=size, mode="bilinear", align_corners=False)[0]
    mu = prototypes - centre
    scores = torch.einsum("kc,chw->khw", 2 * mu, v) - mu.square().sum(1)[:, None, None]
    return (v.square().sum(0) - scores).clamp(min=0).sqrt()


class _Prototypes(nn.Module):
    """The semantic side, exported on its own."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, vectors: Tensor) -> Tensor:
        return self.method.prototypes(vectors, ())  # of methods that need words alone, see to_onnx


class _ConvSame(nn.Module):
    """A convolution with TensorFlow's "same" padding as one operation, which ONNX has too.

    Traced as it is written, the padding is arithmetic with the picture's size, which takes the exporter minutes.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.of = convolution

    def forward(self, x: Tensor) -> Tensor:
        of = self.of
        return cast(Tensor, _conv_same(x, of.weight, of.bias, list(of.stride), list(of.dilation), of.groups))


@torch.library.custom_op("joem::conv_same", mutates_args=())
def _conv_same(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], dilation: list[int], groups: int
) -> Tensor:
    return conv2d_same(x, weight, bias, tuple(stride), tuple(dilation), groups)


@_conv_same.register_fake
def _conv_same_shape(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], dilation: list[int], groups: int
) -> Tensor:
    size = ((length - 1) // step + 1 for length, step in zip(x.shape[2:], stride, strict=True))
    return x.new_empty((x.shape[0], weight.shape[0], *size))


def _conv_same_in_onnx(x: Any, weight: Any, bias: Any, stride: Any, dilation: Any, groups: int) -> Any:
    from onnxscript import opset18

    return opset18.Conv(x, weight, bias, auto_pad="SAME_UPPER", strides=stride, dilations=dilation, group=groups)


def _program(model: Model) -> Any:
    method = copy.deepcopy(model.method).cpu()
    for name, module in list(method.named_modules()):
        if type(module).__name__ == Conv2dSame.__name__:  # timm has one of this name too
            method.set_submodule(name, _ConvSame(module))
    pixels = torch.zeros(67, 93, 3, dtype=torch.uint8)
    prototypes = model.prototypes().cpu()
    example = (pixels, prototypes, torch.zeros(len(prototypes), dtype=torch.bool), torch.tensor(0), torch.tensor(0.0))
    with exportable():
        return torch.onnx.export(
            _Whole(method).eval(),
            example,
            dynamo=True,
            verbose=False,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=({0: "height", 1: "width"}, {0: "classes"}, {0: torch.export.Dim.DYNAMIC}, None, None),
            custom_translation_table={torch.ops.joem.conv_same.default: _conv_same_in_onnx},
        )


def _encoder_program(model: Model) -> Any:
    module = _Prototypes(copy.deepcopy(model.method).cpu()).eval()
    return torch.onnx.export(
        module,
        (model.vectors,),
        dynamo=True,
        verbose=False,
        input_names=["vectors"],
        output_names=["prototypes"],
        dynamic_shapes=({0: "classes"},),
    )


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


def _feed(pixels: Tensor, prototypes: Tensor, unseen: Tensor, rule: int, value: float) -> dict[str, NDArray[Any]]:
    values = (
        np.ascontiguousarray(pixels.permute(1, 2, 0).numpy()),
        prototypes.numpy(),
        unseen.numpy(),
        np.array(rule, np.int64),
        np.array(value, np.float32),
    )
    return dict(zip(INPUTS, values, strict=True))


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


def _run(session: Any, output: str, feed: dict[str, NDArray[Any]], options: Any = None) -> Tensor:
    try:
        return torch.from_numpy(session.run([output], feed, options)[0])
    except Exception as error:  # onnxruntime has many kinds
        raise JoemError(f"onnxruntime cannot run the exported model, which may be damaged: {error}") from None


def _checked_channels(network: Any, encoder: Any, vectors: Tensor) -> int:
    """C, if the two graphs of a file have the inputs and outputs that this module writes."""
    ends = [tuple(each.name for each in part) for part in (network.get_inputs(), network.get_outputs())]
    if ends != [INPUTS, OUTPUTS] or [each.name for each in encoder.get_inputs()] != ["vectors"]:
        raise BadUsage(f"its graph goes from {', '.join(ends[0])} to {', '.join(ends[1])}")
    channels = network.get_inputs()[1].shape[1]
    prototypes = _run(encoder, "prototypes", {"vectors": vectors.numpy()})
    if prototypes.shape != (len(vectors), channels) or not prototypes.isfinite().all():
        raise BadUsage(f"its prototypes have the shape {tuple(prototypes.shape)}, its features {channels} channels")
    return int(channels)


def _trained_features(notes: dict[str, str], path: Path) -> TrainedFeatures | None:
    """Where trained classes lie among the features, if the file says it."""
    if _TRAINED not in notes:
        return None
    return TrainedFeatures.take(safetensors.torch.load(base64.b64decode(notes[_TRAINED], validate=True)), path)


def _require_packages() -> None:
    extras.require("onnx", "An ONNX model")
