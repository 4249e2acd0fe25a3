"""Backbones: one file per family, and where their weights come from."""

from collections.abc import Callable

from joem.errors import BadUsage
from joem.models.backbones.backbone import Backbone
from joem.models.backbones.dense import Dense
from joem.models.backbones.efficientnet_lite import SCALES
from joem.models.backbones.pyramid import Pyramid
from joem.models.backbones.timm_models import TimmBackbone
from joem.models.backbones.weights import load_backbone, normalisation


def _of_timm(name: str, weights: str = "none", stride: int = 16, dense: Dense | None = None) -> Backbone:
    """A network of timm; EfficientNet-lite without a tag, where nothing is downloaded, as joem has it without timm."""
    if name.removeprefix("tu-") in SCALES and weights != "imagenet" and dense is None:
        return Pyramid(name, weights, stride)
    return TimmBackbone(name, weights, stride, dense)


FAMILIES: dict[str, Callable[..., Backbone]] = {"": Pyramid, "tu-": _of_timm}
"""What makes a backbone of its name, weights and output stride, by what its name begins with; the longest that fits."""


def build_backbone(name: str, weights: str = "none", stride: int = 16, dense: Dense | None = None) -> Backbone:
    """The backbone of a name.

    Args:
        name: a name of segmentation-models-pytorch, or tu-NAME for a timm model.
        weights: none, imagenet, wheel, or a file.
        stride: the stride of its last map, where it can be chosen.
        dense: the last map in the space of a text tower, see `joem.models.backbones.dense` (timm models).
    """
    prefix = max((each for each in FAMILIES if name.startswith(each)), key=len)
    if dense is None:
        return FAMILIES[prefix](name, weights, stride)
    if prefix != "tu-":
        raise BadUsage(f"--model.dense is for towers of timm, tu-NAME, got the backbone {name!r}: leave it out.")
    return _of_timm(name, weights, stride, dense)


__all__ = [
    "FAMILIES",
    "Backbone",
    "Dense",
    "Pyramid",
    "TimmBackbone",
    "build_backbone",
    "load_backbone",
    "normalisation",
]
