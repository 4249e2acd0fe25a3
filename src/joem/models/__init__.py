"""The two encoders: pictures to (B,C,H,W) features, word vectors to prototypes.

A trunk (a backbone with the pictures it expects) makes `FeatureMaps` of pictures, a head makes features of these. All
take plain arguments; `build_trunk` and `build_encoder` make them of settings.
"""

from joem.models.backbones import Backbone, Pyramid, TimmBackbone, build_backbone, load_backbone
from joem.models.encoder import VisualEncoder, build_encoder, trainable
from joem.models.feature_maps import FeatureMaps, Hypercolumns, Inputs
from joem.models.heads import HEADS, Basis, DeepLabV2Head, DeepLabV3PlusHead, Head, HypercolumnHead, hypercolumn
from joem.models.imagenet_classifier import ImageNetClassifier
from joem.models.semantic import semantic_encoder
from joem.models.timm_classifier import TimmClassifier
from joem.models.trunk import Trunk, build_trunk

__all__ = [
    "HEADS",
    "Backbone",
    "Basis",
    "DeepLabV2Head",
    "DeepLabV3PlusHead",
    "FeatureMaps",
    "Head",
    "HypercolumnHead",
    "Hypercolumns",
    "ImageNetClassifier",
    "Inputs",
    "Pyramid",
    "TimmBackbone",
    "TimmClassifier",
    "Trunk",
    "VisualEncoder",
    "build_backbone",
    "build_encoder",
    "build_trunk",
    "hypercolumn",
    "load_backbone",
    "semantic_encoder",
    "trainable",
]
