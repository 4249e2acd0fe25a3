"""Systems that carry visual features into the space of the word vectors, where these are the prototypes."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from joem.methods.base import Method, head_channels
from joem.models import Inputs
from joem.settings import MethodSettings, ModelSettings
from joem.vocabulary import Vocabulary


class ProjectionMethod(Method):
    """A visual encoder and a linear map from its C channels to the D of the word vectors."""

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.projection = nn.Conv2d(head_channels(model), vectors.shape[1], 1)

    def features(self, inputs: Inputs) -> Tensor:
        """Projected features (B,D,H,W)."""
        projected: Tensor = self.projection(self.encoded(inputs))
        return projected

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """Word vectors of unit length: the nearest one is then the one with the largest product."""
        return F.normalize(vectors, dim=1)
