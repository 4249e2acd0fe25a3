"""Heads, which make features of the maps of a backbone: one file per kind, a line here, its settings in `settings`."""

from collections.abc import Callable
from typing import Any

from joem.models.heads.deeplab import DeepLabV2Head, DeepLabV3PlusHead
from joem.models.heads.head import Head
from joem.models.heads.hypercolumn import Basis, HypercolumnHead
from joem.models.trunk import Trunk

HEADS: dict[str, Callable[[Any, Trunk], Head]] = {
    "deeplabv3plus": DeepLabV3PlusHead.from_settings,
    "deeplabv2": DeepLabV2Head.from_settings,
    "hypercolumn": HypercolumnHead.from_settings,
}
"""What makes a head of its settings for the maps of a trunk, by its name in recipes."""

__all__ = ["HEADS", "Basis", "DeepLabV2Head", "DeepLabV3PlusHead", "Head", "HypercolumnHead"]
