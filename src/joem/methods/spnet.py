"""SPNet: logits are products of projected features with fixed unit word vectors (Xian 2019)."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import attenuated_cross_entropy
from joem.methods.base import Objective, ObjectiveSettings, head_channels
from joem.methods.projection import ProjectionMethod
from joem.methods.self_training import agreeing, pseudo_labels, surest
from joem.models import Inputs
from joem.settings import ModelSettings, Share, settings
from joem.vocabulary import VOID, Vocabulary


@settings
class SPNetSettings(ObjectiveSettings):
    """SPNet.

    Args:
        uncertainty: let a predicted variance attenuate noisy pixels (Hu 2020).
        self_training: the share of the void pixels on which the mirror image and other scales agree (STRICT) that get
            the label of an unseen class in one more stage, those where it lags least behind the seen ones; 0 is off.
    """

    name: str = "spnet"
    uncertainty: bool = False
    self_training: Share = 0.0


class SPNet(ProjectionMethod):
    """Softmax over products with the word vectors of the seen classes; at test time, of any classes.

    With `settings.uncertainty`, every pixel also predicts a variance that attenuates its loss (Hu 2020).
    """

    settings_class = SPNetSettings
    settings: SPNetSettings
    title: ClassVar[str] = "SPNet"
    rule: ClassVar[str] = "probability"

    def __init__(self, model: ModelSettings, settings: SPNetSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        if settings.self_training > 0:  # it names pixels by the words of unseen classes, and learns from that
            self.uses_unseen_words = True  # type: ignore[misc]
            self.stages, self.needs_maps = (*self.stages, "self_train"), True
        super().__init__(model, settings, vocabulary, vectors)
        self.log_variance = nn.Conv2d(head_channels(model), 1, 1) if settings.uncertainty else None

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy over the seen classes; in self-training over all, with pseudo-labels where nothing is known."""
        encoded = self.encoded(inputs)
        units = F.normalize(self.vectors, dim=1)
        logits = F.conv2d(self.projection(encoded), units[:, :, None, None])
        seen: Sequence[int] = self.vocabulary.seen_indices
        if self.stage == "self_train":
            labels = self._pseudo_labels(inputs, logits, losses.resized(labels, logits.shape[2:]))
            seen = range(len(self.vocabulary))
        if self.log_variance is None:
            loss = losses.seen_cross_entropy(logits, labels, seen, variant=self.settings.variant)
        else:
            loss = attenuated_cross_entropy(logits, labels, seen, self.log_variance(encoded)[:, 0])
        return Objective.over_pixels({"ce": loss}, labels, encoded.shape[-2:])

    @torch.no_grad()
    def _pseudo_labels(self, inputs: Inputs, logits: Tensor, labels: Tensor) -> Tensor:
        """Labels (B,H,W) where void pixels that several views name alike have an unseen class."""
        unseen, seen = (list(each) for each in (self.vocabulary.unseen_indices, self.vocabulary.seen_indices))
        units = F.normalize(self.vectors[unseen], dim=1)[:, :, None, None]
        classes = torch.tensor(unseen, device=labels.device)

        def best_unseen(view: Inputs) -> Tensor:
            return classes[F.conv2d(self.projection(self.encoded(view)), units).argmax(dim=1)]

        probabilities = logits.softmax(dim=1)
        named = classes[logits[:, unseen].argmax(dim=1)]
        lead = probabilities[:, unseen].amax(dim=1) - probabilities[:, seen].amax(dim=1)
        candidates = (labels == VOID) & agreeing(best_unseen, inputs, named)
        return pseudo_labels(labels, named, surest(lead, candidates, self.settings.self_training))
