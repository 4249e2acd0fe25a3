"""The heads of DeepLab: dilated convolutions of the last map, which see far around every position."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from joem import extras
from joem.models.feature_maps import FeatureMaps
from joem.models.heads.head import Head
from joem.settings import Count, HeadSettings, Share, settings

_FINE = 4  # the stride of the map that DeepLabV3+ takes its details from


@settings
class DeepLabV3PlusSettings(HeadSettings):
    """The head of DeepLabV3+: ASPP on the last map, joined with the map of stride 4.

    Args:
        rates: the three dilation rates of ASPP.
        separable: whether ASPP uses depthwise-separable convolutions.
        aspp_dropout: dropout inside ASPP.
        relu: whether the features end with a ReLU, as in the paper.
        variant: the decoder after ASPP: smp is segmentation-models-pytorch's, of separable convolutions; official that
            of the authors' code, two plain 3x3 convolutions with dropout .5 between them, corners aligned when ASPP's
            map is enlarged.
    """

    name: str = "deeplabv3plus"
    rates: tuple[Count, Count, Count] = (6, 12, 18)
    separable: bool = False
    aspp_dropout: Share = 0.5
    relu: bool = True
    variant: Literal["smp", "official"] = "smp"


class DeepLabV3PlusHead(Head):
    """ASPP on the last map, joined with the map of stride 4 (the finest beyond that, where there is none).

    The decoder of segmentation-models-pytorch for any image size: its own takes multiples of the stride only.

    Args:
        inputs: channels of the maps, finest first.
        strides: of the maps.
        channels: C, the number of channels to make; this and the others as in its settings.
    """

    settings_class = DeepLabV3PlusSettings
    least_batch: ClassVar[int] = 2  # it normalises its pooled branch over the batch

    def __init__(
        self,
        inputs: Sequence[int],
        strides: Sequence[int],
        channels: int,
        rates: tuple[int, int, int] = (6, 12, 18),
        separable: bool = False,
        aspp_dropout: float = 0.5,
        relu: bool = True,
        variant: str = "smp",
    ) -> None:
        super().__init__()
        extras.require("train", "The head deeplabv3plus", "segmentation_models_pytorch")
        from segmentation_models_pytorch.decoders.deeplabv3.decoder import DeepLabV3PlusDecoder

        self._fine = _finest_beyond(strides, _FINE)
        self.stride = strides[self._fine]
        decoder = DeepLabV3PlusDecoder(
            encoder_channels=[0, 0, inputs[self._fine], inputs[-1]],  # it looks at the third and the last
            encoder_depth=5,
            out_channels=channels,
            atrous_rates=rates,
            output_stride=16,  # sets only by how much its own forward, not used here, enlarges the coarse map
            aspp_separable=separable,
            aspp_dropout=aspp_dropout,
        )
        self.aspp, self.block1, self.block2 = decoder.aspp, decoder.block1, decoder.block2
        self._corners = variant == "official"
        if variant == "official":
            self.aspp, self.block2 = decoder.aspp[0], _plain_decoder(channels + self.block1[0].out_channels, channels)
            nn.init.kaiming_normal_(self.block1[0].weight, mode="fan_out", nonlinearity="relu")
        if not relu:
            self.block2[-1] = nn.Identity()

    def forward(self, inputs: FeatureMaps) -> Tensor:
        """Features at the stride of the fine map."""
        coarse, fine = self.aspp(inputs.maps[-1]), self.block1(inputs.maps[self._fine])
        coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=self._corners)
        return cast(Tensor, self.block2(torch.cat([coarse, fine], dim=1)))


def _plain_decoder(inputs: int, channels: int) -> nn.Sequential:
    """The authors' decoder: twice a plain 3x3 convolution, normalisation and ReLU, dropout between the two."""
    layers: list[nn.Module] = []
    for size in (inputs, channels):
        convolution = nn.Conv2d(size, channels, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers[:-1])


@settings
class DeepLabV2Settings(HeadSettings):
    """The head of DeepLabV2, for the SPNet setting: dilated convolutions of the last map, summed.

    Args:
        rates: dilation rates of the convolutions.
        relu: whether the features end with a ReLU.
    """

    name: str = "deeplabv2"
    channels: Count = 600
    rates: Annotated[tuple[Count, ...], Field(min_length=1)] = (6, 12, 18, 24)
    relu: bool = False


class DeepLabV2Head(Head):
    """ASPP of DeepLabV2: dilated 3x3 convolutions of the last map, summed.

    Args:
        inputs: channels of the maps, finest first.
        strides: of the maps.
        channels: C, the number of channels to make; this and the others as in its settings.
    """

    settings_class = DeepLabV2Settings

    def __init__(
        self,
        inputs: Sequence[int],
        strides: Sequence[int],
        channels: int,
        rates: Sequence[int] = (6, 12, 18, 24),
        relu: bool = False,
    ) -> None:
        super().__init__()
        self.stride = strides[-1]
        self.branches = nn.ModuleList(nn.Conv2d(inputs[-1], channels, 3, padding=rate, dilation=rate) for rate in rates)
        for branch in self.branches:
            nn.init.normal_(cast(Tensor, branch.weight), std=0.01)
        self.activation: nn.Module = nn.ReLU() if relu else nn.Identity()

    def forward(self, inputs: FeatureMaps) -> Tensor:
        """Features at the stride of the last map."""
        return cast(Tensor, self.activation(sum(branch(inputs.maps[-1]) for branch in self.branches)))


def _finest_beyond(strides: Sequence[int], least: int) -> int:
    """The index of the first stride of at least so much, or of the last one.

    >>> _finest_beyond((2, 4, 8), 4), _finest_beyond((14,), 4), _finest_beyond((1, 2), 4)
    (1, 0, 1)
    """
    return next((index for index, stride in enumerate(strides) if stride >= least), len(strides) - 1)
