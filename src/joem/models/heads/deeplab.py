"""The heads of DeepLab: dilated convolutions of the last map, which see far around every position."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.models.feature_maps import FeatureMaps
from joem.models.heads.head import Head
from joem.models.trunk import Trunk
from joem.settings import DeepLabV2Settings, DeepLabV3PlusSettings

_FINE = 4  # the stride of the map that DeepLabV3+ takes its details from


class DeepLabV3PlusHead(Head):
    """ASPP on the last map, joined with the map of stride 4 (the finest beyond that, where there is none).

    The decoder of segmentation-models-pytorch for any image size: its own takes multiples of the stride only.

    Args:
        channels: of the maps, finest first.
        strides: of the maps.
        features: C, the number of channels to make.
        rates: the three dilation rates of ASPP.
        separable: whether ASPP uses depthwise-separable convolutions.
        dropout: dropout inside ASPP.
        relu: whether the features end with a ReLU.
    """

    def __init__(
        self,
        channels: Sequence[int],
        strides: Sequence[int],
        features: int,
        rates: tuple[int, int, int] = (6, 12, 18),
        separable: bool = False,
        dropout: float = 0.5,
        relu: bool = True,
    ) -> None:
        super().__init__()
        from segmentation_models_pytorch.decoders.deeplabv3.decoder import DeepLabV3PlusDecoder

        self._fine = _finest_beyond(strides, _FINE)
        decoder = DeepLabV3PlusDecoder(
            encoder_channels=[0, 0, channels[self._fine], channels[-1]],  # it looks at the third and the last
            encoder_depth=5,
            out_channels=features,
            atrous_rates=rates,
            output_stride=16,  # sets only by how much its own forward, not used here, enlarges the coarse map
            aspp_separable=separable,
            aspp_dropout=dropout,
        )
        self.aspp, self.block1, self.block2 = decoder.aspp, decoder.block1, decoder.block2
        if not relu:
            self.block2[-1] = nn.Identity()

    @classmethod
    def from_settings(cls, settings: DeepLabV3PlusSettings, trunk: Trunk) -> "DeepLabV3PlusHead":
        """The head that settings describe, for the maps of a trunk."""
        return cls(
            trunk.channels,
            trunk.strides,
            settings.channels,
            settings.rates,
            settings.separable,
            settings.aspp_dropout,
            settings.relu,
        )

    def stride(self, strides: Sequence[int]) -> int:
        """That of the fine map."""
        return strides[self._fine]

    def forward(self, inputs: FeatureMaps) -> Tensor:
        """Features at the stride of the fine map."""
        coarse, fine = self.aspp(inputs.maps[-1]), self.block1(inputs.maps[self._fine])
        coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        return cast(Tensor, self.block2(torch.cat([coarse, fine], dim=1)))


class DeepLabV2Head(Head):
    """ASPP of DeepLabV2: dilated 3x3 convolutions of the last map, summed.

    Args:
        channels: of the maps, finest first.
        features: C, the number of channels to make.
        rates: dilation rates of the convolutions.
        relu: whether the features end with a ReLU.
    """

    def __init__(
        self, channels: Sequence[int], features: int, rates: Sequence[int] = (6, 12, 18, 24), relu: bool = False
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(channels[-1], features, 3, padding=rate, dilation=rate) for rate in rates
        )
        for branch in self.branches:
            nn.init.normal_(cast(Tensor, branch.weight), std=0.01)
        self.activation: nn.Module = nn.ReLU() if relu else nn.Identity()

    @classmethod
    def from_settings(cls, settings: DeepLabV2Settings, trunk: Trunk) -> "DeepLabV2Head":
        """The head that settings describe, for the maps of a trunk."""
        return cls(trunk.channels, settings.channels, settings.rates, settings.relu)

    def stride(self, strides: Sequence[int]) -> int:
        """That of the last map."""
        return strides[-1]

    def forward(self, inputs: FeatureMaps) -> Tensor:
        """Features at the stride of the last map."""
        return cast(Tensor, self.activation(sum(branch(inputs.maps[-1]) for branch in self.branches)))


def _finest_beyond(strides: Sequence[int], least: int) -> int:
    """The index of the first stride of at least so much, or of the last one.

    >>> _finest_beyond((2, 4, 8), 4), _finest_beyond((14,), 4), _finest_beyond((1, 2), 4)
    (1, 0, 1)
    """
    return next((index for index, stride in enumerate(strides) if stride >= least), len(strides) - 1)
