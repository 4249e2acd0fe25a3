"""Features and prototypes of unit length: a linear map of words, learned from masks and by distillation of names."""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.methods.experts.expert import Expert, View, products
from joem.methods.experts.names import NamesTeacher
from joem.models import HypercolumnHead
from joem.settings import Count, Positive, Weight, settings
from joem.vocabulary import VOID, Vocabulary


@settings
class CosineSettings:
    """A linear map of words onto the unit sphere.

    Args:
        kind: cosine.
        weight: how much its distance counts.
        copies: how many perceptrons learn apart from different starts and are averaged.
        hidden: size of the hidden layer of each.
        channels: size of the space of each.
        scale: what cosines are multiplied by before the softmax.
        names_weight: weight of what ImageNet's names teach it, where the blend has a teacher of them.
    """

    kind: Literal["cosine"] = "cosine"
    weight: Positive = 1.0
    copies: Count = 3
    hidden: Count = 256
    channels: Count = 128
    scale: Positive = 20.0
    names_weight: Weight = 1.0


class Cosine(Expert):
    """L = L_cos + w * L_names, both means over the labelled pixels.

    L_cos is the cross-entropy of softmax(scale * cos(v, mu_c)) over the seen classes. L_names is the cross-entropy
    between the posterior of the teacher and softmax(scale * cos(v, mu_n)) over ImageNet's names n.

    v and mu consist of the parts of M copies, each of the length 1/sqrt(M), so that cos(v, mu) is the mean of the
    copies' cosines. Words that no mask ever tied down land elsewhere in each copy, and the mean is better than any.
    """

    unit: ClassVar[bool] = True

    def __init__(
        self,
        settings: CosineSettings,
        vocabulary: Vocabulary,
        dimension: int,
        channels: list[int],
        teacher: NamesTeacher | None,
    ) -> None:
        super().__init__(vocabulary, settings.weight)
        self.settings, self._teacher = settings, [teacher]  # in a list: the blend owns the teacher's weights
        self.head = HypercolumnHead(channels, settings.hidden, settings.channels, settings.copies)
        self.semantic = nn.Linear(dimension, settings.channels * settings.copies)

    def features(self, view: View) -> Tensor:
        """V of unit length."""
        return self._unit(self.head(view.columns))

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Mu of unit length."""
        return self._unit(self.semantic(vectors))

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """L_cos and w * L_names."""
        settings, features, (teacher,) = self.settings, self.features(view), self._teacher
        copies = settings.copies
        logits = settings.scale * self._cosines(features, self.prototypes(known, known))
        seen = self.vocabulary.seen_indices
        terms = {"ce": losses.seen_cross_entropy(logits, labels.repeat_interleave(copies, dim=0), seen)}
        if teacher is not None and settings.names_weight:
            labelled = losses.resized(labels, features.shape[-2:]) != VOID
            with torch.no_grad():
                taught = teacher.posterior(view.last).repeat_interleave(copies, dim=0)
            names = settings.scale * self._cosines(features, self.prototypes(teacher.vectors, known))
            agreement = (taught * names.log_softmax(dim=1)).sum(dim=1).reshape(-1, copies, *features.shape[-2:])
            mean = agreement.mean(dim=1)[labelled].sum() / labelled.sum().clamp(min=1)
            terms["names"] = -settings.names_weight * mean
        return terms

    def _unit(self, tensor: Tensor) -> Tensor:
        """Unit length along dimension 1, to which every copy contributes the same."""
        parts = tensor.reshape(len(tensor), self.settings.copies, -1, *tensor.shape[2:])
        return F.normalize(parts, dim=2).flatten(1, 2) / math.sqrt(self.settings.copies)

    def _cosines(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Each copy's own cosines, (B * M,K,H,W)."""
        return self.settings.copies * products(features, prototypes, self.settings.copies)

    def visual_parameters(self) -> list[nn.Parameter]:
        """The perceptrons'."""
        return list(self.head.parameters())

    def semantic_parameters(self) -> list[nn.Parameter]:
        """The map of words."""
        return list(self.semantic.parameters())
