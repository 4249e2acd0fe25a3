"""S->V: JoEm in two stages, first the visual encoder alone, then the semantic encoder on its features."""

from typing import Any, ClassVar

from torch import Tensor

from joem.methods.base import Objective
from joem.methods.joem import JoEm


class TwoStage(JoEm):
    """JoEm's parts and losses, but the visual encoder is trained without the words.

    L_bar + lambda * L_sc as the settings say; r = 1 and sc_weight = 0 give the variant with L_center.
    """

    title: ClassVar[str] = "S->V"
    stages: tuple[str, ...] = ("visual", "semantic")

    def objective(self, features: Tensor, labels: Tensor) -> Objective:
        """L_ce in the first stage, the other terms in the second."""
        terms, weight = super().objective(features, labels)
        cross_entropy = terms.pop("ce")
        return Objective({"ce": cross_entropy} if self.stage == "visual" else terms, weight)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """One encoder per stage, which bears the name of its optimiser."""
        return {self.stage: super().parameter_groups(head_multiplier)[self.stage]}
