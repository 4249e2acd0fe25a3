"""Pictures with masks: datasets, joint transforms, the guard that keeps unseen classes out of training."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joem.data.counts import ClassCount, check, class_pixels, class_presence, describe
from joem.data.dataset import Dataset, Sample, collate
from joem.data.faults import FaultsFound
from joem.data.files import as_pixels, open_image, read_image
from joem.data.guard import TrainingSet, guard, mixed, seen_only
from joem.data.sampler import EpochSampler
from joem.data.transforms import Transform, training
from joem.data.views import Remembered, View, divide, relabel, restrict, showing

if TYPE_CHECKING:
    from joem.data import scenes
    from joem.data.captions import Captioned
    from joem.data.coco_stuff import CocoStuff
    from joem.data.context import Context
    from joem.data.folder import Folder, check_folder, has_lists, write_folder
    from joem.data.importing import FORMATS, Imported, import_masks
    from joem.data.preparation import Piece, Preparation, prepare
    from joem.data.registry import KINDS, open
    from joem.data.scenes import Scenes
    from joem.data.voc import VOC

__all__ = [
    "FORMATS",
    "KINDS",
    "VOC",
    "Captioned",
    "ClassCount",
    "CocoStuff",
    "Context",
    "Dataset",
    "EpochSampler",
    "FaultsFound",
    "Folder",
    "Imported",
    "Piece",
    "Preparation",
    "Remembered",
    "Sample",
    "Scenes",
    "TrainingSet",
    "Transform",
    "View",
    "as_pixels",
    "check",
    "check_folder",
    "class_pixels",
    "class_presence",
    "collate",
    "describe",
    "divide",
    "guard",
    "has_lists",
    "import_masks",
    "mixed",
    "open",
    "open_image",
    "prepare",
    "read_image",
    "relabel",
    "restrict",
    "scenes",
    "seen_only",
    "showing",
    "training",
    "write_folder",
]

_DEFINED_IN = {
    "Captioned": "captions",
    "CocoStuff": "coco_stuff",
    "Context": "context",
    **dict.fromkeys(("Folder", "check_folder", "has_lists", "write_folder"), "folder"),
    **dict.fromkeys(("FORMATS", "Imported", "import_masks"), "importing"),
    **dict.fromkeys(("Piece", "Preparation", "prepare"), "preparation"),
    **dict.fromkeys(("KINDS", "open"), "registry"),
    "Scenes": "scenes",
    "VOC": "voc",
}


def __getattr__(name: str) -> Any:
    """Datasets and importers load when used: a prediction needs none of them."""
    if name in _DEFINED_IN:
        return getattr(import_module(f"joem.data.{_DEFINED_IN[name]}"), name)
    if name == "scenes":
        return import_module("joem.data.scenes")
    raise AttributeError(f"module 'joem.data' has no attribute {name!r}")
