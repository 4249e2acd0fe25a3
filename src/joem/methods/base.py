"""What every method offers to the engine and to the decision rules."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from joem.models import VisualEncoder
from joem.recipe import MethodSettings, ModelSettings
from joem.semantics import Semantics
from joem.vocabulary import Vocabulary


class Objective(NamedTuple):
    """What a batch gives: the terms whose sum is minimised, already weighted, and how much the batch counts.

    The terms are means over the labelled pixels of the batch. `weight` is proportional to their number, so that
    parts of a batch, on one device after the other or on several at once, add up to the whole.
    """

    terms: dict[str, Tensor]
    weight: Tensor


class Method(nn.Module, ABC):
    """A system that learns from seen masks and segments any names.

    Calling it with a batch gives its objective. `features` and `prototypes` are what the
    decision rules compare at test time.

    Args:
        model: settings of the encoders.
        settings: settings of the objective.
        vocabulary: the classes; labels are its indices.
        vectors: (K,D) word vectors. Rows of unseen classes are dropped here: no method ever holds them.
    """

    vectors: Tensor

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = vocabulary
        self.visual = VisualEncoder(model)
        known = torch.zeros_like(vectors)
        seen = list(vocabulary.seen_indices)
        known[seen] = vectors[seen]
        self.register_buffer("vectors", known, persistent=False)

    @abstractmethod
    def forward(self, inputs: Tensor, labels: Tensor) -> Objective:
        """The objective on a batch of normalised pictures, or of hypercolumns, and their labels."""

    @abstractmethod
    def prototypes(self, vectors: Tensor) -> Tensor:
        """Prototypes (K,C) of classes given by their word vectors (K,D)."""

    def learn_names(self, semantics: Semantics) -> None:
        """A chance, before training, to take word vectors beyond those of the vocabulary; most methods need none."""

    def features(self, inputs: Tensor) -> Tensor:
        """Visual features (B,C,H,W) of normalised pictures, or of hypercolumns gathered from a frozen backbone."""
        features: Tensor = self.visual(inputs)
        return features

    @abstractmethod
    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Parameters by the optimiser that trains them, "visual" or "semantic", in torch's group form.

        A group's `scale` multiplies the learning rate of its optimiser.
        """
