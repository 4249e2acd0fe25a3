"""EfficientNet-lite, the backbone of the model in the box, in torch alone.

Layers, names of weights, padding and first weights are those of timm's `tf_efficientnet_lite0` to `lite4`, to the last
bit: models load either way, and a test compares them. Tan and Le, *EfficientNet: Rethinking Model Scaling for
Convolutional Neural Networks*, 2019; the lite networks leave out squeeze-and-excitation and use ReLU6.
"""

import copy
import math
from typing import NamedTuple, cast

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from joem.errors import choose
from joem.models.inference import RELU6, FusedConv2d, Limits, replaced

SCALES = {
    "tf_efficientnet_lite0": (1.0, 1.0),
    "tf_efficientnet_lite1": (1.0, 1.1),
    "tf_efficientnet_lite2": (1.1, 1.2),
    "tf_efficientnet_lite3": (1.2, 1.4),
    "tf_efficientnet_lite4": (1.4, 1.8),
}
"""By how much each network is wider and deeper than the first."""

_STEM, _HEAD, _CLASSES, _EPSILON = 32, 1280, 1000, 1e-3


class _Stage(NamedTuple):
    """Blocks of one size: how many, their kernel, stride, by how much the first layer widens, channels."""

    blocks: int
    kernel: int
    stride: int
    wider: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
_ENDS = (0, 1, 2, 4, 6)  # the stages whose maps are given: the last of every stride


class Conv2dSame(nn.Conv2d):
    """A convolution with TensorFlow's padding: ceil(size / stride) positions, the odd pixel at the end."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolved batch."""
        return conv2d_same(input, self.weight, self.bias, self.stride, self.dilation, self.groups)


def conv2d_same(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Convolution with TensorFlow's padding."""
    down, across = _missing(x, weight, stride, dilation)
    pads = (across // 2, across - across // 2, down // 2, down - down // 2)  # F.pad begins with the last axis
    return F.conv2d(F.pad(x, pads), weight, bias, stride, 0, dilation, groups)


def _missing(x: Tensor, weight: Tensor, stride: tuple[int, ...], dilation: tuple[int, ...]) -> list[int]:
    """By how many pixels the height and the width of a batch are padded in all."""
    sizes = zip(x.shape[2:], weight.shape[2:], stride, dilation, strict=True)
    return [max((-(-size // step) - 1) * step + (own - 1) * spread + 1 - size, 0) for size, own, step, spread in sizes]


class _FusedSame(FusedConv2d):
    """`Conv2dSame` without dilation as a fused convolution, which takes the same padding on both sides only."""

    def kernel(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Where the odd pixel is at the end, one more is padded before, and the kernel begins with a zero for it."""
        down, across = _missing(x, self.weight, self.stride, self.dilation)
        weight = F.pad(self.weight, (across % 2, 0, down % 2, 0)) if across % 2 or down % 2 else self.weight
        return weight, ((down + 1) // 2, (across + 1) // 2)


class _Separable(nn.Module):
    """A depthwise and a pointwise convolution."""

    def __init__(self, inputs: int, channels: int, kernel: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv_dw = _depthwise(inputs, kernel, stride, dilation)
        self.bn1 = _norm(inputs)
        self.conv_pw = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn2 = _norm(channels)
        self.skips = stride == 1 and inputs == channels

    def forward(self, x: Tensor) -> Tensor:
        found = self.bn2(self.conv_pw(F.relu6(self.bn1(self.conv_dw(x)), inplace=True)))
        return cast(Tensor, found + x if self.skips else found)


class _Inverted(nn.Module):
    """Wider by a pointwise convolution, depthwise there, and back."""

    def __init__(self, inputs: int, channels: int, stage: _Stage, stride: int, dilation: int) -> None:
        super().__init__()
        wide = _multiple_of_8(inputs * stage.wider)
        self.conv_pw = nn.Conv2d(inputs, wide, 1, bias=False)
        self.bn1 = _norm(wide)
        self.conv_dw = _depthwise(wide, stage.kernel, stride, dilation)
        self.bn2 = _norm(wide)
        self.conv_pwl = nn.Conv2d(wide, channels, 1, bias=False)
        self.bn3 = _norm(channels)
        self.skips = stride == 1 and inputs == channels

    def forward(self, x: Tensor) -> Tensor:
        found = F.relu6(self.bn1(self.conv_pw(x)), inplace=True)
        found = F.relu6(self.bn2(self.conv_dw(found)), inplace=True)
        found = self.bn3(self.conv_pwl(found))
        return cast(Tensor, found + x if self.skips else found)


class _Body(nn.Module):
    """The stem and all blocks, with the classifier where it is wanted."""

    def __init__(self, name: str, stride: int = 32, classifier: bool = False) -> None:
        super().__init__()
        wider, deeper = SCALES[choose("EfficientNet-lite", name, SCALES)]
        self.conv_stem = Conv2dSame(3, _STEM, 3, 2, bias=False)
        self.bn1 = _norm(_STEM)
        # timm makes two small layers here and drops them: with the same numbers drawn, a seed means the same weights.
        _ = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.blocks = nn.Sequential()
        inputs, now, dilation = _STEM, 2, 1
        self.channels = []
        for index, stage in enumerate(_STAGES):
            channels = _multiple_of_8(stage.channels * wider)
            fixed = index in {0, len(_STAGES) - 1}  # the first and the last stage are never deeper
            blocks = nn.Sequential()
            for block in range(stage.blocks if fixed else math.ceil(stage.blocks * deeper)):
                step, spread = stage.stride if block == 0 else 1, dilation
                if now * step > stride:  # the blocks after this one are dilated in place of its stride
                    dilation, step = dilation * step, 1
                now *= step
                blocks.append(
                    _Separable(inputs, channels, stage.kernel, step, spread)
                    if stage.wider == 1
                    else _Inverted(inputs, channels, stage, step, spread)
                )
                inputs = channels
            self.blocks.append(blocks)
            if index in _ENDS:
                self.channels.append(channels)
        if classifier:
            self.conv_head = nn.Conv2d(inputs, _HEAD, 1, bias=False)
            self.bn2 = _norm(_HEAD)
            self.classifier = nn.Linear(_HEAD, _CLASSES)
        _first_weights(self)

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        x = F.relu6(self.bn1(self.conv_stem(x)), inplace=True)
        for index, stage in enumerate(self.blocks):
            x = stage(x)
            if index in _ENDS:
                found.append(x)
        return found


class EfficientNetLite(nn.Module):
    """The maps of an EfficientNet-lite, the picture itself first, as segmentation-models-pytorch gives them.

    Args:
        name: one of `SCALES`.
        stride: the output stride; beyond it, convolutions are dilated.
    """

    def __init__(self, name: str, stride: int) -> None:
        super().__init__()
        self.model = _Body(name, stride)
        self.out_channels = [3, *self.model.channels]

    def forward(self, pictures: Tensor) -> list[Tensor]:
        """The picture and the maps of strides 2, 4, 8, 16 and 32, none beyond the output stride."""
        return [pictures, *self.model(pictures)]

    def for_inference(self) -> "EfficientNetLite":
        """A copy of convolutions alone, which do the norms, ReLU6 and additions after them in the same pass."""
        return replaced(self, model=_QuickBody(self.model)).eval()


class _QuickBody(nn.Module):
    """What `_Body` makes, for inference."""

    def __init__(self, body: _Body) -> None:
        super().__init__()
        self.stem = _fused(body.conv_stem, body.bn1, RELU6)
        self.stages = nn.ModuleList(
            nn.Sequential(*(_QuickBlock(cast(_Separable | _Inverted, block)) for block in stage.children()))
            for stage in body.blocks
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        x, found = self.stem(x), []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in _ENDS:
                found.append(x)
        return found


class _QuickBlock(nn.Module):
    """What `_Separable` and `_Inverted` make, for inference."""

    def __init__(self, block: _Separable | _Inverted) -> None:
        super().__init__()
        layers = list(block.children())  # convolutions and norms in turns, as they are called
        *first, last = zip(layers[::2], layers[1::2], strict=True)
        self.first = nn.Sequential(*(_fused(*pair, RELU6) for pair in first))
        self.last, self.skips = _fused(*last), block.skips

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.last(self.first(x), x if self.skips else None))


def _fused(convolution: nn.Module, norm: nn.Module, limits: Limits | None = None) -> FusedConv2d:
    """A convolution and the norm after it in one."""
    own, after = copy.deepcopy(cast(nn.Conv2d, convolution)).eval(), copy.deepcopy(cast(nn.BatchNorm2d, norm)).eval()
    folded = fuse_conv_bn_eval(own, after)
    kind, padding = _FusedSame if isinstance(folded, Conv2dSame) else FusedConv2d, cast(tuple[int, ...], own.padding)
    return kind(folded.weight, folded.bias, limits, folded.stride, padding, folded.dilation, folded.groups)


def weight_names(name: str) -> list[str]:
    """The names of all weights of the network with its classifier, in timm's order."""
    return list(_Body(name, classifier=True).state_dict())


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON)


def _depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Conv2d:
    if stride > 1:
        return Conv2dSame(channels, channels, kernel, stride, dilation=dilation, groups=channels, bias=False)
    padding = dilation * (kernel - 1) // 2
    return nn.Conv2d(channels, channels, kernel, 1, padding, dilation, groups=channels, bias=False)


def _multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, but never less than nine tenths."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def _first_weights(body: nn.Module) -> None:
    """Random weights as timm draws them: normal, by how many outputs a convolution has."""
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            outputs = height * width * module.out_channels // module.groups
            nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / outputs))
        elif isinstance(module, nn.Linear):
            bound = 1.0 / math.sqrt(module.out_features)
            nn.init.uniform_(module.weight, -bound, bound)
            nn.init.zeros_(module.bias)
