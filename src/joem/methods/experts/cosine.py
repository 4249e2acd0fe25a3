"""Features and prototypes of unit length: a linear map of words, learned from masks and by distillation of names."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from joem import losses
from joem.methods.experts.expert import PerceptronExpert, PerceptronSettings, Shared, products
from joem.methods.experts.names import NamesTeacher
from joem.methods.experts.view import View
from joem.settings import Positive, Weight, settings
from joem.vocabulary import VOID

_SHORTEST = 1e-12  # what is shorter stays so


@settings
class CosineSettings(PerceptronSettings):
    """A linear map of words onto the unit sphere.

    Args:
        scale: what cosines are multiplied by before the softmax.
        names_weight: weight of what ImageNet's names teach it, where the blend has a teacher of them.
        taught_weight: weight of telling what a teacher named from all other classes, where the data have one.
        captions_weight: weight of what the nouns of captioned photos teach it, where the data have some.
    """

    kind: str = "cosine"
    scale: Positive = 20.0
    names_weight: Weight = 1.0
    taught_weight: Weight = 1.0
    captions_weight: Weight = 1.0


class Cosine(PerceptronExpert):
    """L = L_cos + w * L_names, both means over the labelled pixels.

    L_cos is the cross-entropy of softmax(scale * cos(v, mu_c)) over the seen classes. Where a teacher named
    surroundings, their pixels are background in it, since people ask for things without them, and w' * L_taught is
    added, the cross-entropy over all classes, theirs too. L_names is the cross-entropy between the posterior of the
    classifier and softmax(scale * cos(v, mu_n)) over ImageNet's names n.

    v and mu consist of the parts of M copies, each of the length 1/sqrt(M), so that cos(v, mu) is the mean of the
    copies' cosines. Words that no mask ever tied down land elsewhere in each copy, and the mean is better than any.
    """

    settings_class = CosineSettings
    settings: CosineSettings
    unit: ClassVar[bool] = True

    def __init__(self, settings: CosineSettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        self.semantic = nn.Linear(shared.dimension, self.size)

    def features(self, view: View) -> Tensor:
        """V of unit length."""
        return self._unit(self.head(view.columns))

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Mu of unit length."""
        return self._unit(self.semantic(vectors))

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """L_cos and w * L_names."""
        settings, features, teacher = self.settings, self.features(view), self.shared.teacher
        copies = settings.copies
        logits = settings.scale * self._cosines(features, self.prototypes(known, known))
        terms = self._mask_terms(logits, labels.repeat_interleave(copies, dim=0))
        if teacher is not None and settings.names_weight:
            labelled = losses.resized(labels, features.shape[-2:]) != VOID
            if teacher.many:
                terms["names"] = -settings.names_weight * self._agreement(view, features, labelled, teacher, known)
                return terms
            with torch.no_grad():
                taught = teacher.posterior(view).repeat_interleave(copies, dim=0)
            names = settings.scale * self._cosines(features, self.prototypes(teacher.vectors, known))
            agreement = (taught * names.log_softmax(dim=1)).sum(dim=1).reshape(-1, copies, *features.shape[-2:])
            mean = agreement.mean(dim=1)[labelled].sum() / labelled.sum().clamp(min=1)
            terms["names"] = -settings.names_weight * mean
        return terms

    def _agreement(
        self, view: View, features: Tensor, labelled: Tensor, teacher: NamesTeacher, known: Tensor
    ) -> Tensor:
        """-L_names of many names: some pixels at a time, their softmax computed again where gradients need it."""
        settings, prototypes = self.settings, self.prototypes(teacher.vectors, known)
        apart = prototypes.reshape(len(prototypes), settings.copies, -1)
        looks, pixels = (each.movedim(1, -1)[labelled] for each in (view.last, features))

        def agreement(look: Tensor, pixel: Tensor, words: Tensor) -> Tensor:
            with torch.no_grad():
                taught = teacher.at(look)
            own = pixel.reshape(len(pixel), settings.copies, -1)
            names = settings.scale * settings.copies * torch.einsum("pmc,nmc->mpn", own, words)
            return (taught * names.log_softmax(dim=2)).sum() / settings.copies

        total, start = features.new_zeros(()), 0
        for look in teacher.blocks(looks):
            pixel = pixels[start : start + len(look)]
            total = total + checkpoint(agreement, look, pixel, apart, use_reentrant=False)
            start += len(look)
        return total / max(len(looks), 1)

    def _mask_terms(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_cos, and L_taught times its weight where a teacher named surroundings."""
        classes = self.shared.vocabulary
        with_masks = classes.without_taught()
        if not classes.taught or classes.background is None:
            return {"ce": losses.seen_cross_entropy(logits, labels, classes.seen_indices)}
        surroundings = (labels >= len(with_masks)) & (labels != VOID)
        plain = labels.masked_fill(surroundings, classes.index(classes.background))
        taught = losses.seen_cross_entropy(logits, labels, classes.seen_indices)
        return {
            "ce": losses.seen_cross_entropy(logits[:, : len(with_masks)], plain, with_masks.seen_indices),
            "taught": self.settings.taught_weight * taught,
        }

    def caption_terms(self, view: View, nouns: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """L_captions, times its weight: a noun of a photo fits a pixel of it better than nouns of other photos do.

        With the soft maximum m_in = log sum_p exp(scale * cos(v_ip, mu_n)) over the pixels p of photo i, L_captions is
        the mean over its nouns n of -log(exp(m_in) / (exp(m_in) + sum_k exp(m_ik))), where k are the nouns of the other
        photos of the batch that photo i has not.
        """
        settings, here = self.settings, nouns.any(dim=0)
        if not settings.captions_weight or not here.any():
            return {}
        prototypes = self.prototypes(vectors[here], vectors)
        cosines = self._cosines(self.features(view), prototypes)
        fits = (settings.scale * cosines).flatten(2).logsumexp(dim=2)  # (B * M,n)
        own = nouns[:, here].repeat_interleave(settings.copies, dim=0)
        others = fits.masked_fill(own, -torch.inf).logsumexp(dim=1, keepdim=True)
        return {"captions": settings.captions_weight * F.softplus(others - fits)[own].mean()}

    def _unit(self, tensor: Tensor) -> Tensor:
        """Unit length along dimension 1, to which every copy contributes the same."""
        copies = self.settings.copies
        last = tensor.movedim(1, -1)
        parts = last.reshape(*last.shape[:-1], copies, -1)
        lengths = torch.linalg.vector_norm(parts, dim=-1, keepdim=True).clamp(min=_SHORTEST)
        unit: Tensor = parts / (lengths * math.sqrt(copies))
        return unit.flatten(-2).movedim(-1, 1)

    def _cosines(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Each copy's own cosines, (B * M,K,H,W)."""
        return self.settings.copies * products(features, prototypes, self.settings.copies)
