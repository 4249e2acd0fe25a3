"""V->S: JoEm without a semantic encoder, features regress the word vectors themselves (JoEm's analysis)."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from joem import losses
from joem.methods.base import Objective, ObjectiveSettings, head_channels
from joem.methods.projection import ProjectionMethod
from joem.models import Inputs
from joem.settings import Count, ModelSettings, settings
from joem.vocabulary import Vocabulary


@settings
class VisualToSemanticSettings(ObjectiveSettings):
    """L_ce + L_bar on word vectors.

    Args:
        r: down- and upsampling factor of the boundary-aware loss; 1 gives L_center.
    """

    name: str = "visual_to_semantic"
    r: Count = 4


class VisualToSemantic(ProjectionMethod):
    """Features projected onto fixed word vectors by L_ce + L_bar; the paper saw everything become background."""

    settings_class = VisualToSemanticSettings
    settings: VisualToSemanticSettings
    title: ClassVar[str] = "V->S"
    rule: ClassVar[str] = "ac"
    needs_maps = True  # as for JoEm

    def __init__(
        self, model: ModelSettings, settings: VisualToSemanticSettings, vocabulary: Vocabulary, vectors: Tensor
    ) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.classifier = nn.Conv2d(head_channels(model), len(vocabulary), 1)

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """L_ce on the visual features and L_bar between their projection and the word vectors."""
        encoded, settings = self.encoded(inputs), self.settings
        seen = self.vocabulary.seen_indices
        terms = {
            "ce": losses.seen_cross_entropy(self.classifier(encoded), labels, seen, variant=settings.variant),
            "bar": losses.boundary_aware_regression(
                self.projection(encoded), labels, self.vectors, nn.Identity(), r=settings.r, variant=settings.variant
            ),
        }
        return Objective.over_pixels(terms, labels, encoded.shape[-2:])

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """The word vectors as they are."""
        return vectors
