"""The upper bound: a plain segmentation network that sees the masks of every class. Not zero-shot."""

from typing import Any, ClassVar

from torch import Tensor

from joem import losses
from joem.methods.base import Objective, ObjectiveSettings
from joem.methods.classifier import ClassifierMethod
from joem.models import Inputs


class Supervised(ClassifierMethod):
    """A visual encoder and a classifier over all classes, trained with the masks of the unseen ones too."""

    settings_class = ObjectiveSettings
    title: ClassVar[str] = "supervised (sees every mask)"
    sees_every_mask: ClassVar[bool] = True

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy over all classes."""
        features = self.encoded(inputs)
        every = range(len(self.vocabulary))
        cross_entropy = losses.seen_cross_entropy(
            self.classifier(features), labels, every, variant=self.settings.variant
        )
        weight = losses.labelled_fraction(labels, features.shape[-2:]) * len(labels)
        return Objective({"ce": cross_entropy}, weight)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Everything is the visual side."""
        return {"visual": self.visual_groups(head_multiplier, self.classifier)}
