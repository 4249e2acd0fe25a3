"""JoEm with mixed prototypes: an unseen class lies between the seen classes whose words are near its own.

Beyond the paper, from masks alone. A map from words to looks that is learned from sixteen classes goes astray between
them. A mean of learned class centres, weighted by how near the words are, cannot leave the space they span.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from joem import losses
from joem.methods.base import Method, Objective, group
from joem.methods.centres import Centres
from joem.recipe import MethodSettings, ModelSettings
from joem.vocabulary import Vocabulary


class MixtureJoEm(Method):
    """Features near the centre of their class, prototypes between the centres, L = L_ce + L_centre of `Centres`.

    A pixel that is as much like horse as like sheep is nearest to a word between them. Such a prototype is in the
    midst of the others, so that unseen classes need little calibration or none.

    With `model.members` M, v and mu consist of M parts that learn apart, and |v - mu|^2 is the sum of theirs.
    """

    title: ClassVar[str] = "JoEm with mixed prototypes"

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.centres = Centres(vocabulary, model.channels, model.members)

    def forward(self, inputs: Tensor, labels: Tensor) -> Objective:
        """L_ce and L_centre."""
        features = self.features(inputs)
        weight = losses.labelled_fraction(labels, features.shape[-2:]) * len(labels)
        return Objective(self.centres.terms(features, labels), weight)

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """The centre of a seen class by its word, a mixture of centres for any other word."""
        return self.centres.prototypes(vectors, self.vectors)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The backbone at the base rate, the head faster, the centres apart."""
        return {"visual": self.visual_groups(head_multiplier), "semantic": group(self.centres)}
