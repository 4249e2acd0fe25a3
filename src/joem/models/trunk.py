"""The part of a visual encoder that several heads can share: pictures to the maps of a backbone."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.models.backbones import Backbone, build_backbone, normalisation
from joem.models.backbones.pyramid import dilate_blocks, move_strides
from joem.models.backbones.weights import Statistics
from joem.models.feature_maps import FeatureMaps
from joem.models.inference import Derived
from joem.settings import ModelSettings

# A picture that is resized to a shorter side gets no longer than this many times that side.
_LONGEST = 4
_LARGE = 1 << 22  # pixels that are normalised at once


class Trunk(nn.Module):
    """Normalised pictures (B,3,Ho,Wo) to the maps of a backbone.

    Args:
        backbone: what makes the maps.
        mean: the mean the backbone expects to be subtracted from pictures, on the 0..255 scale.
        std: what it expects them to be divided by then.
        side: shorter side that pictures are resized to first; None keeps their size.
        freeze_norm: keep the batch statistics of the backbone (its scales and shifts still learn).
        freeze_backbone: do not train the backbone at all.

    Attributes:
        channels: of every map, finest first.
        strides: of every map, in pixels of what the backbone sees.
    """

    def __init__(
        self,
        backbone: Backbone,
        mean: Statistics,
        std: Statistics,
        side: int | None = None,
        freeze_norm: bool = True,
        freeze_backbone: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.mean, self.std, self.side = mean, std, side
        self.freeze_norm, self.freeze_backbone = freeze_norm, freeze_backbone
        self.channels, self.strides = backbone.channels, backbone.strides
        self._quick: Derived[Trunk] = Derived()
        if freeze_backbone:
            self.backbone.requires_grad_(False)

    def normalised(self, pictures: Tensor) -> Tensor:
        """Pictures (...,3,Ho,Wo) on the 0..255 scale as the backbone expects them, (pictures - mean) / std.

        Large ones come resized as `forward` would do it: as floats they would take four times their memory and more.
        """
        mean, std = (torch.tensor(each, device=pictures.device).view(3, 1, 1) for each in (self.mean, self.std))
        height, width = pictures.shape[-2:]
        if self.side is None or height * width <= _LARGE:
            return (pictures.float() - mean) / std
        size = _with_shorter_side(height, width, self.side)
        bands = torch.split(pictures.reshape(-1, *pictures.shape[-3:]), max(1, _LARGE // width), dim=-2)
        # Resizing works along one axis after the other, rows first, which need nothing of each other.
        narrow = [_resized((band.float() - mean) / std, (band.shape[-2], size[1])) for band in bands]
        return _resized(torch.cat(narrow, dim=-2), size).reshape(*pictures.shape[:-2], *size)

    def forward(self, pictures: Tensor) -> FeatureMaps:
        """The maps of a batch of normalised pictures."""
        if self.side is not None:
            size = _with_shorter_side(pictures.shape[-2], pictures.shape[-1], self.side)
            pictures = _resized(pictures, size)
        return cast(FeatureMaps, self.backbone(pictures))

    def for_inference(self) -> "Trunk":
        """What makes the same maps, but for rounding, as fast as can be; kept until a weight changes."""
        return self._quick.of(
            [self.backbone], lambda: Trunk(self.backbone.for_inference(), self.mean, self.std, self.side).eval()
        )

    def train(self, mode: bool = True) -> "Trunk":
        """Training mode, except for what is frozen."""
        super().train(mode)
        if self.freeze_backbone:
            self.backbone.eval()
        elif self.freeze_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def build_trunk(settings: ModelSettings) -> Trunk:
    """The trunk that settings describe."""
    backbone = build_backbone(settings.backbone, settings.weights, settings.stride, settings.dense)
    if settings.multi_grid is not None:
        dilate_blocks(backbone, settings.multi_grid)
    if settings.convention == "keras":
        move_strides(backbone)
    mean, std = normalisation(settings.backbone, settings.weights, settings.convention)
    return Trunk(backbone, mean, std, settings.side, settings.freeze_norm, settings.freeze_backbone)


def _resized(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(pictures, size=size, mode="bilinear", align_corners=False, antialias=True)


def _with_shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """The size of a picture whose shorter side becomes `side` and whose longer one at most four times that.

    In whole numbers throughout, which an exported graph can compute too.

    >>> _with_shorter_side(240, 480, 320), _with_shorter_side(1, 1000, 320)
    ((320, 640), (1, 1280))
    """
    shorter, longer = torch.sym_min(height, width), torch.sym_max(height, width)
    # To side / shorter, unless that makes the longer side too long.
    above = torch.sym_min(side * longer, _LONGEST * side * shorter)
    below = longer * shorter
    new_height, new_width = (torch.sym_max(1, (2 * each * above + below) // (2 * below)) for each in (height, width))
    return cast(int, new_height), cast(int, new_width)
