"""A vision-language tower by itself: the cosine between a position's features and a name's vector."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.errors import BadUsage
from joem.methods.experts.expert import Expert, ExpertSettings, Shared, resized
from joem.methods.experts.view import View
from joem.settings import settings


@settings
class TowerSettings(ExpertSettings):
    """The tower's own zero-shot decision: its last map (--model.dense) against the vectors of its text tower."""

    kind: str = "tower"


class Tower(Expert):
    """v is the last map, mu the word vector, both of unit length: the name with the largest cosine is the nearest.

    Masks teach it no feature and no prototype. Alone in a blend it is the tower's own decision, the row that everything
    else on the tower has to beat. What learns is the scale of its cosines in the cross-entropy that is logged.
    """

    settings_class = TowerSettings
    unit: ClassVar[bool] = True

    def __init__(self, settings: TowerSettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        if shared.channels[-1] != shared.dimension:
            raise BadUsage(
                f"The expert tower compares the backbone's last map ({shared.channels[-1]} channels) with word vectors "
                f"({shared.dimension} numbers): set --model.dense, and --semantics.vectors clip:NAME of the same model."
            )
        self.log_scale = nn.Parameter(torch.tensor(3.0))

    def features(self, view: View) -> Tensor:
        """The last map of unit length, at the size of the other experts' features."""
        return F.normalize(resized(view.last, view), dim=1)

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Word vectors of unit length."""
        return F.normalize(vectors, dim=1)

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """The cross-entropy over seen classes, by which the scale of the cosines is fitted."""
        cosines = F.conv2d(self.features(view), self.prototypes(known, known)[:, :, None, None])
        logits = self.log_scale.exp() * cosines
        return {"ce": losses.seen_cross_entropy(logits, labels, self.shared.vocabulary.seen_indices)}

    def semantic_parameters(self) -> list[nn.Parameter]:
        """The scale of the cosines."""
        return [self.log_scale]
