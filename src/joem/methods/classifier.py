"""Systems whose last step is a linear classifier, in the form that the decision rules take."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.errors import BadUsage
from joem.methods.base import Method, Objective, ObjectiveSettings, head_channels
from joem.models import Inputs
from joem.settings import ModelSettings
from joem.vocabulary import Vocabulary


class ClassifierMethod(Method):
    """A visual encoder and one weight vector and bias per class of the vocabulary.

    The rules compare distances, so `features` and `prototypes` give the nearest-prototype problem with the same
    answer, see `as_prototypes`.
    """

    settings: ObjectiveSettings

    def __init__(
        self, model: ModelSettings, settings: ObjectiveSettings, vocabulary: Vocabulary, vectors: Tensor
    ) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.classifier = nn.Conv2d(head_channels(model), len(vocabulary), 1)

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """As a plain segmentation network."""
        return self.segment(self.encoded(inputs), labels)

    def segment(self, features: Tensor, labels: Tensor) -> Objective:
        """Cross entropy over the classes with masks."""
        masks = range(len(self.vocabulary)) if self.sees_every_mask else self.vocabulary.seen_indices
        logits = self.classifier(features)
        cross_entropy = losses.seen_cross_entropy(logits, labels, masks, variant=self.settings.variant)
        return Objective.over_pixels({"ce": cross_entropy}, labels, features.shape[-2:])

    def features(self, inputs: Inputs) -> Tensor:
        """(v, 0), (B,C+1,H,W)."""
        return F.pad(self.encoded(inputs), (0, 0, 0, 0, 0, 1))

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """The classifier's rows of the names as prototypes (K,C+1); it has rows for its own vocabulary only."""
        unknown = [name for name in names if name not in self.vocabulary.names]
        if unknown:
            raise BadUsage(f"{', '.join(unknown)}: no such class in this model's classifier. {self._how_to_add()}")
        rows = as_prototypes(self.classifier.weight.flatten(1), cast(Tensor, self.classifier.bias))
        return rows[[self.vocabulary.index(name) for name in names]]

    def _how_to_add(self) -> str:
        if self.sees_every_mask:
            return f"{self.settings.name} needs masks of a class and a whole new training to learn it."
        stages = " and ".join(repr(stage) for stage in self.new_class_stages)
        return (
            f"{self.settings.name} has to train its stage {stages} again to take a new class: run "
            "joem.engine.add_class(model, name, problem), or train with the name among --data.unseen."
        )


def as_prototypes(weights: Tensor, biases: Tensor) -> Tensor:
    """Prototypes (K,C+1) whose nearest one to (v, 0) is the class with the largest logit w_c . v + b_c.

        mu_c = (w_c, t_c),   t_c = sqrt(M - 2 b_c - |w_c|^2),   M = max_j 2 b_j + |w_j|^2

    for then |(v, 0) - mu_c|^2 = |v|^2 + M - 2 (w_c . v + b_c).

    Args:
        weights: (K,C).
        biases: (K,).

    >>> as_prototypes(torch.tensor([[3.0], [0.0]]), torch.tensor([0.0, 4.0]))
    tensor([[3., 0.],
            [0., 1.]])
    """
    shares = 2 * biases + weights.square().sum(dim=1)
    heights = (shares.max() - shares).sqrt()
    return torch.cat([weights, heights[:, None]], dim=1)
