"""What goes into a visual encoder: pictures, the maps of a backbone, or hypercolumns; told apart by their type."""

from typing import NamedTuple

import torch
from torch import Tensor


class FeatureMaps(NamedTuple):
    """What a backbone makes of a batch of pictures.

    Attributes:
        maps: (B,C_i,H_i,W_i) each, finest first.
        strides: how many pixels apart the positions of each map are.
    """

    maps: list[Tensor]
    strides: tuple[int, ...]

    def to(self, device: torch.device | str) -> "FeatureMaps":
        """The same on a device."""
        return FeatureMaps([each.to(device) for each in self.maps], self.strides)


class Hypercolumns(NamedTuple):
    """What a backbone says of pixels at several scales, gathered before.

    Attributes:
        values: (B,Cin,H,W), see `joem.models.hypercolumn`.
    """

    values: Tensor


Inputs = Tensor | FeatureMaps | Hypercolumns
"""What an encoder takes: normalised pictures (B,3,Ho,Wo), or what its backbone made of them before."""
