"""The teacher of names: the backbone's own ImageNet classifier, applied at every pixel."""

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from joem.methods.experts.view import View
from joem.models import ImageNetClassifier
from joem.semantics import Semantics, imagenet
from joem.semantics.giveaways import giveaways
from joem.settings import ModelSettings

Which = Literal["none", "strict", "all"]


class NamesTeacher(nn.Module):
    """Knows a thousand names without a mask; `strict` leaves out those that give an unseen class away.

    Args:
        channels: those of the backbone's last map.
        names: which of ImageNet's classes it tells apart.
        dimension: D, the size of a word vector.
        saved: whether its weights are part of the trained model, because it is used at test time too.

    Attributes:
        vectors: word vectors of the names, (N,D), for training.
    """

    vectors: Tensor

    def __init__(self, channels: int, names: Sequence[int], dimension: int, saved: bool) -> None:
        super().__init__()
        self.names = list(names)
        self.classifier = ImageNetClassifier(channels, self.names, saved)
        self.register_buffer("vectors", torch.zeros(len(self.names), dimension), persistent=False)

    def learn_names(self, semantics: Semantics, model: ModelSettings) -> None:
        """Take the weights that the backbone was published with, and the word vectors of the names."""
        self.classifier.take_weights(model)
        self.vectors.copy_(semantics.vectors([imagenet.names()[index] for index in self.names]))

    def posterior(self, view: View, temperature: float = 1.0) -> Tensor:
        """How likely each name is at every position of the last map, (B,N,h,w)."""
        logits = view.once(NamesTeacher, lambda: self.classifier(view.last))
        return (logits / temperature).softmax(dim=1)


def left_out(unseen: Iterable[str]) -> tuple[int, ...]:
    """The classes of ImageNet that `strict` leaves out because they give an unseen class away."""
    return tuple(sorted(set().union(*(giveaways(name) for name in unseen))))
