"""JoEm on the unit sphere, taught by names: cross-entropy over cosines, with ImageNet's thousand names as teachers.

Beyond the paper. Sixteen seen classes are few to learn how words map to looks. The backbone's own ImageNet classifier,
applied at every pixel, knows a thousand names without a mask: the student's similarities to the prototypes of these
names follow it.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import imagenet, losses
from joem.errors import BadUsage
from joem.methods.base import Method, Objective, group
from joem.models import HypercolumnHead, Inputs, imagenet_classifier, semantic_encoder
from joem.recipe import MethodSettings, ModelSettings
from joem.semantics import Semantics
from joem.vocabulary import VOID, Vocabulary


class CosineJoEm(Method):
    """Features and prototypes of unit length, L = L_cos + w * L_names.

    L_cos is the cross-entropy of softmax(scale * cos(v, mu_c)) over the seen classes. L_names is the cross-entropy
    between the softmax of the teacher's logits and softmax(scale * cos(v, mu_n)) over ImageNet's names n, of which
    `names: strict` leaves out every kind of an unseen class. Both are means over the labelled pixels.
    """

    title: ClassVar[str] = "JoEm on cosines"
    rule: ClassVar[str] = "cs"

    name_vectors: Tensor

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.semantic = semantic_encoder(model.semantic, vectors.shape[1], model.channels)
        self.teacher: nn.Module | None = None

    def learn_names(self, semantics: Semantics) -> None:
        """Take the word vectors of ImageNet's names and the classifier that teaches them."""
        if self.settings.names == "none":
            return
        model = self.visual.settings
        if not (isinstance(self.visual.head, HypercolumnHead) and model.freeze_backbone):
            raise BadUsage(
                "Names are taught by the classifier of a frozen backbone: set --model.architecture hypercolumn and "
                "--model.freeze_backbone true, or --method.names none."
            )
        self._last = self.visual.head.last
        kept = taught_names(self.settings, self.vocabulary)
        self.teacher = imagenet_classifier(model, kept)
        names = imagenet.names()
        self.register_buffer("name_vectors", semantics.vectors([names[index] for index in kept]), persistent=False)

    def forward(self, inputs: Tensor, labels: Tensor) -> Objective:
        """L_cos and w * L_names on a batch of pictures or hypercolumns."""
        settings, seen = self.settings, self.vocabulary.seen_indices
        if inputs.shape[1] == 3 and self.teacher is not None:
            inputs = HypercolumnHead.gather(self.visual.maps(inputs))
        features = self.features(inputs)
        prototypes = self._place(self.vectors)
        logits = settings.scale * F.conv2d(features, prototypes[:, :, None, None])
        terms = {"ce": losses.seen_cross_entropy(logits, labels, seen)}
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher(inputs[:, self._last]).softmax(dim=1)
            names = settings.scale * F.conv2d(features, self._place(self.name_vectors)[:, :, None, None])
            agreement = (taught * names.log_softmax(dim=1)).sum(dim=1)
            labelled = losses.resized(labels, features.shape[-2:]) != VOID
            terms["names"] = -settings.names_weight * agreement[labelled].sum() / labelled.sum().clamp(min=1)
        weight = losses.labelled_fraction(labels, features.shape[-2:]) * len(labels)
        return Objective(terms, weight)

    def features(self, inputs: Inputs) -> Tensor:
        """Visual features (B,C,H,W) of unit length."""
        return F.normalize(super().features(inputs), dim=1)

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """Prototypes (K,C) of unit length."""
        return self._place(vectors)

    def _place(self, vectors: Tensor) -> Tensor:
        return F.normalize(self.semantic(vectors), dim=1)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The backbone at the base rate, the head faster, the semantic encoder apart."""
        return {"visual": self.visual_groups(head_multiplier), "semantic": group(self.semantic)}


def taught_names(settings: MethodSettings, vocabulary: Vocabulary) -> list[int]:
    """Which of ImageNet's classes teach: all, or with `strict` none that is a kind of an unseen class."""
    hidden: set[int] = set()
    if settings.names == "strict":
        hidden = set().union(*(imagenet.kinds_of(name) for name in (*vocabulary.unseen, *settings.names_without)))
    return [index for index in range(len(imagenet.names())) if index not in hidden]
