"""Backbones: one file per family, and where their weights come from."""

from collections.abc import Callable

from joem.models.backbones.backbone import Backbone
from joem.models.backbones.pyramid import Pyramid
from joem.models.backbones.weights import load_backbone, normalisation

FAMILIES: dict[str, Callable[[str, str, int], Backbone]] = {"": Pyramid}
"""What makes a backbone of its name, weights and output stride, by what its name begins with; the longest that fits."""


def build_backbone(name: str, weights: str = "none", stride: int = 16) -> Backbone:
    """The backbone of a name.

    Args:
        name: a name of segmentation-models-pytorch, or tu-NAME for a timm model.
        weights: none, imagenet, wheel, or a file.
        stride: the stride of its last map.
    """
    prefix = max((each for each in FAMILIES if name.startswith(each)), key=len)
    return FAMILIES[prefix](name, weights, stride)


__all__ = ["FAMILIES", "Backbone", "Pyramid", "build_backbone", "load_backbone", "normalisation"]
