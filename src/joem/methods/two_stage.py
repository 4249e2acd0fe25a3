"""S->V: JoEm in two stages, first the visual encoder alone, then the semantic encoder on its features."""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from joem.methods.base import Objective
from joem.methods.joem import JoEm, JoEmSettings
from joem.settings import MethodSettings, settings


@settings
class TwoStageSettings(JoEmSettings):
    """S->V.

    Args:
        fit_tau: scale tau_mu to the distances between the frozen features, which have no reason to be those that tau_s
            and tau_mu suit.
    """

    name: str = "two_stage"
    fit_tau: bool = True


class TwoStage(JoEm):
    """JoEm's parts and losses, but the visual encoder is trained without the words.

    L_bar + lambda * L_sc as the settings say; r = 1 and sc_weight = 0 give the variant with L_center.
    """

    settings_class: ClassVar[type[MethodSettings]] = TwoStageSettings
    settings: TwoStageSettings
    title: ClassVar[str] = "S->V"
    stages: tuple[str, ...] = ("visual", "semantic")

    def objective(self, features: Tensor, labels: Tensor) -> Objective:
        """L_ce in the first stage, the other terms in the second."""
        terms, weight = super().objective(features, labels)
        cross_entropy = terms.pop("ce")
        return Objective({"ce": cross_entropy} if self.stage == "visual" else terms, weight)

    def consistency_settings(self, features: Tensor) -> JoEmSettings:
        """The temperatures; with `fit_tau`, distances between prototypes count relative to those between features."""
        if not self.settings.fit_tau:
            return self.settings
        vectors = self.vectors[list(self.vocabulary.seen_indices)]
        count = len(vectors)
        apart = float(torch.cdist(vectors, vectors).sum()) / max(1, count * (count - 1))
        # The mean squared distance between two features is twice the sum of their variances.
        spread = (
            float(2 * features.detach().float().movedim(1, -1).flatten(0, -2).var(dim=0, correction=0).sum()) ** 0.5
        )
        return replace(self.settings, tau_mu=self.settings.tau_s * apart / spread) if spread > 0 else self.settings

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """One encoder per stage, which bears the name of its optimiser."""
        return {self.stage: super().parameter_groups(head_multiplier)[self.stage]}
