"""The graph of an exported model: from uint8 pixels to features, and from features and prototypes to labels.

The prototypes of the classes, which of them are unseen, the rule and the value of its parameter are inputs. Features
are upsampled before distances are taken, which is the definition that `joem.decision` computes in less memory.
"""

import copy
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.decision import RULES, Ranking
from joem.methods import Method
from joem.model import Model
from joem.models.backbones.efficientnet_lite import Conv2dSame, conv2d_same
from joem.models.backbones.exporting import exportable

INPUTS = ("pixels", "prototypes", "unseen", "rule", "value")
"""(H,W,3) uint8, (K,C) float32, (K,) bool, the index of a rule among those of the file (int64) and the value of its
parameter (float32; 0 for a rule without one)."""

OUTPUTS = ("labels", "features")
"""(H,W) int64 indices of prototypes, and the visual features (1,C,h,w) they were taken from."""


class _Whole(nn.Module):
    """What is exported: normalisation, visual encoder, upsampling, distances and rules."""

    mean: Tensor
    variance: Tensor

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.rules = tuple(RULES.values())
        self.register_buffer("mean", torch.tensor(method.trunk.mean))
        self.register_buffer("variance", torch.tensor(method.trunk.std).square())

    def forward(
        self, pixels: Tensor, prototypes: Tensor, unseen: Tensor, rule: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        planes = pixels.permute(2, 0, 1).float()[None]
        # As one operation: onnxruntime would run a subtraction and a division over three numbers at a time.
        features = self.method.features(F.batch_norm(planes, self.mean, self.variance, eps=0.0))
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


def program(model: Model) -> Any:
    """The whole way of a model, as torch exports it."""
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


def encoder_program(model: Model) -> Any:
    """The semantic side of a model, word vectors (K,D) to prototypes (K,C), as torch exports it."""
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


def features_only(whole: Any) -> Any:
    """The part of an exported graph that makes the features: onnxruntime would compute labels too, whoever asks."""
    from onnx.utils import Extractor

    return Extractor(whole).extract_model([INPUTS[0]], [OUTPUTS[1]])
