"""SPNet: logits are products of projected features with fixed unit word vectors (Xian 2019)."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import attenuated_cross_entropy
from joem.methods.base import Objective, ObjectiveSettings, head_channels
from joem.methods.projection import ProjectionMethod
from joem.models import Inputs
from joem.settings import ModelSettings, settings
from joem.vocabulary import Vocabulary


@settings
class SPNetSettings(ObjectiveSettings):
    """SPNet.

    Args:
        uncertainty: let a predicted variance attenuate noisy pixels (Hu 2020).
    """

    name: str = "spnet"
    uncertainty: bool = False


class SPNet(ProjectionMethod):
    """Softmax over products with the word vectors of the seen classes; at test time, of any classes.

    With `settings.uncertainty`, every pixel also predicts a variance that attenuates its loss (Hu 2020).
    """

    settings_class = SPNetSettings
    settings: SPNetSettings
    title: ClassVar[str] = "SPNet"
    rule: ClassVar[str] = "probability"

    def __init__(self, model: ModelSettings, settings: SPNetSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.log_variance = nn.Conv2d(head_channels(model), 1, 1) if settings.uncertainty else None

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy over the seen classes."""
        encoded = self.encoded(inputs)
        units = F.normalize(self.vectors, dim=1)
        logits = F.conv2d(self.projection(encoded), units[:, :, None, None])
        seen = self.vocabulary.seen_indices
        if self.log_variance is None:
            loss = losses.seen_cross_entropy(logits, labels, seen, variant=self.settings.variant)
        else:
            loss = attenuated_cross_entropy(logits, labels, seen, self.log_variance(encoded)[:, 0])
        return Objective.over_pixels({"ce": loss}, labels, encoded.shape[-2:])
