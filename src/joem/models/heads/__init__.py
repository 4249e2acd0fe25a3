"""Heads, which make features of the maps of a backbone: one file per kind, with its settings, and a line here."""

from joem.models.heads.deeplab import DeepLabV2Head, DeepLabV2Settings, DeepLabV3PlusHead, DeepLabV3PlusSettings
from joem.models.heads.head import Head
from joem.models.heads.hypercolumn import Basis, HypercolumnHead, HypercolumnSettings

HEADS: dict[str, type[Head]] = {
    "deeplabv3plus": DeepLabV3PlusHead,
    "deeplabv2": DeepLabV2Head,
    "hypercolumn": HypercolumnHead,
}
"""Every head by its name in recipes."""

__all__ = [
    "HEADS",
    "Basis",
    "DeepLabV2Head",
    "DeepLabV2Settings",
    "DeepLabV3PlusHead",
    "DeepLabV3PlusSettings",
    "Head",
    "HypercolumnHead",
    "HypercolumnSettings",
]
