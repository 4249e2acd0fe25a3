"""A perceptron on each pixel's hypercolumn: what the backbone says of it at several scales.

A hypercolumn stacks, at one position, the last three maps (fewer where a backbone has fewer), the mean of the last map
over 5x5 neighbours, and its mean over the picture. Pixels are treated alone, so a head can learn from any handful of
them, gathered once from a frozen backbone.
"""

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.models.feature_maps import FeatureMaps, Hypercolumns
from joem.models.heads.head import Head
from joem.models.inference import RELU, FusedConv2d
from joem.settings import Count, HeadSettings, settings

LEVELS = 3
"""How many of the last maps a hypercolumn is made of."""


class Basis(NamedTuple):
    """All that the hypercolumns of a batch are made of, for several heads to share.

    Attributes:
        fine: the finest of the maps, (B,C,H,W); features are made at its positions.
        coarse: the other maps and the neighbours' mean, those of one stride in one tensor unless they are not joined.
        everywhere: the mean of the last map over the picture, (B,C,1,1).
    """

    fine: Tensor
    coarse: tuple[Tensor, ...]
    everywhere: Tensor


def basis(inputs: FeatureMaps, joined: bool = True) -> Basis:
    """What the hypercolumns of maps are made of; not `joined`, which is quicker where a few positions are gathered."""
    maps, strides = inputs.maps[-LEVELS:], inputs.strides[-LEVELS:]
    apart, everywhere = (*maps[1:], _neighbours(maps[-1])), maps[-1].mean(dim=(2, 3), keepdim=True)
    if not joined:
        return Basis(maps[0], apart, everywhere)
    coarse: dict[int, list[Tensor]] = {}
    for stride, each in zip((*strides[1:], strides[-1]), apart, strict=True):
        coarse.setdefault(stride, []).append(each)
    return Basis(maps[0], tuple(torch.cat(each, dim=1) for each in coarse.values()), everywhere)


def gather(inputs: FeatureMaps | Basis, positions: Tensor | None = None) -> Tensor:
    """Hypercolumns (B,Cin,H,W).

    Args:
        inputs: what they are made of.
        positions: where, (B,H,W,2) in the form of grid_sample; at every position of the finest map if None.
    """
    fine, coarse, everywhere = inputs if isinstance(inputs, Basis) else basis(inputs)
    if positions is None:
        found = [fine, *(_resized(each, fine) for each in coarse)]
    else:
        found = [
            F.grid_sample(each, positions, mode="bilinear", padding_mode="border", align_corners=False)
            for each in (fine, *coarse)
        ]
    return torch.cat([*found, everywhere.expand(-1, -1, *found[0].shape[-2:])], dim=1)


def stride(strides: Sequence[int]) -> int:
    """The stride of the finest of the maps that hypercolumns are made of.

    >>> stride((2, 4, 8, 16, 32)), stride((14,))
    (8, 14)
    """
    return strides[-LEVELS:][0]


def last_channels(channels: Sequence[int]) -> slice:
    """Where the channels of a backbone's last map are in a hypercolumn.

    >>> last_channels([16, 24, 40, 112, 320])
    slice(152, 472, None)
    """
    before = sum(channels[-LEVELS:-1])
    return slice(before, before + channels[-1])


@settings
class HypercolumnSettings(HeadSettings):
    """A perceptron on the stacked maps of a backbone, pixel by pixel; learns in minutes without a GPU.

    Args:
        hidden: size of the hidden layer.
        relu: whether the features end with a ReLU.
    """

    name: str = "hypercolumn"
    channels: Count = 384
    hidden: Count = 768
    relu: bool = False


class HypercolumnHead(Head):
    """Features at the positions of the finest of the maps, or of hypercolumns that were gathered before.

    Args:
        inputs: channels of the maps of a backbone, finest first.
        strides: of the maps.
        channels: C, the number of channels to make.
        hidden: size of the hidden layer.
        relu: whether the features end with a ReLU.
        copies: of how many perceptrons side by side, each with hidden units and features of its own.

    Attributes:
        sizes: the channels of what is in a `Basis`, one after the other.
    """

    settings_class = HypercolumnSettings
    takes_hypercolumns: ClassVar[bool] = True

    def __init__(
        self,
        inputs: Sequence[int],
        strides: Sequence[int],
        channels: int,
        hidden: int,
        relu: bool = False,
        copies: int = 1,
    ) -> None:
        super().__init__()
        self.stride = stride(strides)
        self.sizes = _sizes(inputs[-LEVELS:], strides[-LEVELS:])
        size = sum(self.sizes)
        layers: list[nn.Module] = [
            # The scale of the channels differs a hundredfold; the statistics are those of the training pixels.
            nn.BatchNorm2d(size, affine=False),
            nn.Conv2d(size, copies * hidden, 1),
            nn.ReLU(),
            nn.Conv2d(copies * hidden, copies * channels, 1, groups=copies),
        ]
        self.layers = nn.Sequential(*layers, *([nn.ReLU()] if relu else []))

    def forward(self, inputs: FeatureMaps | Basis | Hypercolumns) -> Tensor:
        """Features (B, copies * C, H, W)."""
        if isinstance(inputs, Hypercolumns):
            return cast(Tensor, self.layers(inputs.values))
        if self.training:
            return cast(Tensor, self.layers(gather(inputs)))
        return cast(Tensor, self.layers[2:](self._first_layer(inputs)))

    def for_inference(self) -> "QuickHypercolumnHead":
        """What makes the same features of maps, but for rounding."""
        return QuickHypercolumnHead(self)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the first convolution with the normalisation before it."""
        norm, convolution = cast(nn.BatchNorm2d, self.layers[0]), cast(nn.Conv2d, self.layers[1])
        scale = (norm.get_buffer("running_var") + norm.eps).rsqrt()
        weight = convolution.weight * scale[:, None, None]
        return weight, cast(Tensor, convolution.bias) - (weight[:, :, 0, 0] @ norm.get_buffer("running_mean"))

    def _first_layer(self, inputs: FeatureMaps | Basis) -> Tensor:
        """The first convolution of all hypercolumns of a picture, without building them.

        Normalisation and convolution are affine, and interpolation keeps affine maps, so the coarse part can be
        convolved where it is coarse: a quarter of the work.
        """
        fine, coarse, everywhere = inputs if isinstance(inputs, Basis) else basis(inputs)
        weight, shift = self.folded()
        sizes = [each.shape[1] for each in (fine, *coarse, everywhere)]
        own, *kernels, whole = torch.split(weight, sizes, dim=1)
        convolved = [F.conv2d(each, kernel) for each, kernel in zip(coarse, kernels, strict=True)]
        convolved[0] = convolved[0] + F.conv2d(everywhere, whole)
        result = F.conv2d(fine, own, shift)
        for each in convolved:
            result = result + _resized(each, result)
        return result


class QuickHypercolumnHead(nn.Module):
    """A `HypercolumnHead` for inference: nothing of its weights is computed again, and few passes over memory."""

    def __init__(self, head: HypercolumnHead) -> None:
        super().__init__()
        weight, shift = head.folded()
        own, *others = torch.split(weight, head.sizes, dim=1)
        self.fine = FusedConv2d(own, shift, RELU)
        *coarse, self.everywhere = map(FusedConv2d, others)
        self.coarse = nn.ModuleList(coarse)
        last = cast(nn.Conv2d, head.layers[3])
        self.last = FusedConv2d(last.weight, last.bias, RELU if len(head.layers) > 4 else None, groups=last.groups)

    def forward(self, inputs: FeatureMaps | Basis) -> Tensor:
        """Features (B, copies * C, H, W)."""
        fine, coarse, everywhere = inputs if isinstance(inputs, Basis) else basis(inputs)
        convolved = [convolution(each) for convolution, each in zip(self.coarse, coarse, strict=True)]
        convolved[0] = convolved[0] + self.everywhere(everywhere)
        enlarged = reduce(torch.add, (_resized(each, fine) for each in convolved))
        return cast(Tensor, self.last(self.fine(fine, enlarged)))


def _resized(coarse: Tensor, fine: Tensor) -> Tensor:
    """A map at the positions of a finer one."""
    return F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)


def _sizes(channels: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The channels of what is in the `Basis` of maps with these.

    >>> _sizes([40, 112, 320], [8, 16, 16]), _sizes([40, 112, 320], [8, 16, 32])
    ([40, 752, 320], [40, 112, 640, 320])
    """
    coarse: dict[int, int] = {}
    for stride, count in zip((*strides[1:], strides[-1]), (*channels[1:], channels[-1]), strict=True):
        coarse[stride] = coarse.get(stride, 0) + count
    return [channels[0], *coarse.values(), channels[-1]]


def _neighbours(last: Tensor) -> Tensor:
    """The mean of a map over 5x5 neighbours, as many as there are."""
    # On a CPU, pooling is several times faster where the channels of a pixel are neighbours in memory.
    found = last.contiguous(memory_format=torch.channels_last)
    for size, padding in (((5, 1), (2, 0)), ((1, 5), (0, 2))):  # ten sums per position instead of twenty-five
        found = F.avg_pool2d(found, size, stride=1, padding=padding, count_include_pad=False)
    return found
