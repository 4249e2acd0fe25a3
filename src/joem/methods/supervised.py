"""The upper bound: a plain segmentation network that sees the masks of every class. Not zero-shot."""

from typing import ClassVar

from joem.methods.base import ObjectiveSettings
from joem.methods.classifier import ClassifierMethod


class Supervised(ClassifierMethod):
    """A visual encoder and a classifier over all classes, trained with the masks of the unseen ones too."""

    settings_class = ObjectiveSettings
    title: ClassVar[str] = "supervised (sees every mask)"
    sees_every_mask: ClassVar[bool] = True
