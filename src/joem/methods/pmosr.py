"""PMOSR-style: prototypes projected from words, and a detector of "not seen" (after Zhang and Ding 2021).

There is no public code; docs/concepts/systems.md lists what was chosen here.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.losses.compared import open_set_cross_entropy, rejection_loss
from joem.methods.base import Method, Objective, ObjectiveSettings, group, head_channels
from joem.models import Inputs, semantic_encoder
from joem.settings import ModelSettings, Positive, Weight, settings
from joem.vocabulary import Vocabulary


@settings
class PMOSRSettings(ObjectiveSettings):
    """PMOSR-style.

    Args:
        scale: what cosines are multiplied by before the softmax.
        reject_weight: weight of the term that teaches the detector.
        naming: by how much the likeness to an unseen name may move the verdict of the detector; small, it only ranks
            unseen names where a pixel is rejected.
    """

    name: str = "pmosr"
    scale: Positive = 20.0
    reject_weight: Weight = 0.5
    naming: Positive = 0.05


class PMOSR(Method):
    """A pixel is one of the seen classes or none of them; only in the second case unseen names are compared.

    With unit features v, unit prototypes mu and a detector n . v + b of "not seen", the logits are mu_c . v for a seen
    class and n . v + b + e (mu_u . v) for an unseen one, e small. They are linear in (v, v), so the rules take them as
    distances: |(v, v, 0) - p_c|² = |(v, v)|² + M - 2 logit_c, see `prototypes`.
    """

    settings_class = PMOSRSettings
    settings: PMOSRSettings
    title: ClassVar[str] = "PMOSR-style"
    rule: ClassVar[str] = "cs"  # the detector's threshold

    def __init__(self, model: ModelSettings, settings: PMOSRSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        channels = head_channels(model)
        self.semantic = semantic_encoder(model.semantic, vectors.shape[1], channels, model.init)
        self.detector = nn.Linear(channels, 1)

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy of the seen classes and "not seen"; the same without a pixel's own class, which is then not."""
        settings, seen = self.settings, self.vocabulary.seen_indices
        units = F.normalize(self.encoded(inputs), dim=1)
        known = F.normalize(self.semantic(self.vectors), dim=1)
        logits = settings.scale * torch.einsum("bchw,kc->bkhw", units, known)
        unknown = settings.scale * self.detector(units.movedim(1, -1))[..., 0]
        terms = {"ce": open_set_cross_entropy(logits, unknown, labels, seen)}
        if settings.reject_weight > 0:
            terms["reject"] = settings.reject_weight * rejection_loss(logits, unknown, labels, seen)
        return Objective.over_pixels(terms, labels, units.shape[-2:])

    def features(self, inputs: Inputs) -> Tensor:
        """(v, v, 0), (B,2C+1,H,W), with v of unit length."""
        units = F.normalize(self.encoded(inputs), dim=1)
        return F.pad(torch.cat([units, units], dim=1), (0, 0, 0, 0, 0, 1))

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """(mu_c, 0, t) of seen classes and (n, e mu_u, t) of all others, (K,2C+1).

        t = sqrt(M - 2 b_c - |w_c|²) with w_c the other coordinates and b_c the bias, b or 0: distances then differ by
        the logits alone. M is that of the model, whatever names are asked for.
        """
        units, settings = F.normalize(self.semantic(vectors), dim=1), self.settings
        detector, bias = self.detector.weight, self.detector.bias
        of_unseen = 2 * bias + detector.square().sum() + settings.naming**2
        largest = torch.maximum(of_unseen, torch.ones_like(of_unseen))
        is_seen = torch.tensor([name in self.vocabulary.seen for name in names], device=units.device)[:, None]
        first = torch.where(is_seen, units, detector.expand_as(units))
        second = torch.where(is_seen, torch.zeros_like(units), settings.naming * units)
        height = torch.where(is_seen, largest - 1, largest - of_unseen).clamp(min=0).sqrt()
        return torch.cat([first, second, height], dim=1)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The visual side with the detector, and the semantic encoder apart."""
        return {"visual": self.visual_groups(head_multiplier, self.detector), "semantic": group(self.semantic)}
