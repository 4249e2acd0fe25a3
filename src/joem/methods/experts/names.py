"""The teacher of names: the backbone's own ImageNet classifier, applied at every pixel."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from joem.methods.experts.view import View
from joem.models import ImageNetClassifier, TimmClassifier
from joem.models.backbones.efficientnet_lite import SCALES
from joem.models.inference import replaced
from joem.semantics import Semantics, imagenet
from joem.semantics.giveaways import giveaways
from joem.settings import ModelSettings

Which = Literal["none", "strict", "all"]

MANY = 4096
"""Beyond so many names, posteriors are computed for some positions at a time and never kept for all of them."""

BLOCK = 1 << 24
"""Numbers of a posterior that are computed at once, where there are many names."""


class NamesTeacher(nn.Module):
    """Knows ImageNet's names without a mask; `strict` leaves out those that give an unseen class away.

    Args:
        channels: those of the backbone's last map.
        names: which of the classes it tells apart.
        dimension: D, the size of a word vector.
        saved: whether its weights are part of the trained model, because it is used at test time too.
        subset: which ImageNet the classifier is for, see `joem.semantics.imagenet.entries_of`.
        backbone: whose classifier it is.

    Attributes:
        vectors: word vectors of the names, (N,D), for training.
    """

    vectors: Tensor

    def __init__(
        self,
        channels: int,
        names: Sequence[int],
        dimension: int,
        saved: bool,
        subset: str = imagenet.FIRST,
        backbone: str = "",
    ) -> None:
        super().__init__()
        self.names, self.subset = list(names), subset
        self.classifier: ImageNetClassifier | TimmClassifier
        if not backbone or (backbone.removeprefix("tu-") in SCALES and subset == imagenet.FIRST):
            self.classifier = ImageNetClassifier(channels, self.names, saved)
        else:
            self.classifier = TimmClassifier(backbone, len(imagenet.entries_of(subset)), self.names, saved)
        self.register_buffer("vectors", torch.zeros(len(self.names), dimension), persistent=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The first name of every class it tells apart."""
        return tuple(imagenet.entries_of(self.subset)[index].names[0] for index in self.names)

    @property
    def meanings(self) -> tuple[str, ...]:
        """These names with their definitions."""
        entries = imagenet.entries_of(self.subset)
        return tuple(imagenet.meaning(entries[index]) for index in self.names)

    @property
    def many(self) -> bool:
        """Whether posteriors of all positions together would take too much memory."""
        return len(self.names) > MANY

    def learn_names(self, semantics: Semantics, model: ModelSettings) -> None:
        """Take the weights that the backbone was published with, and the word vectors of the names."""
        self.classifier.take_weights(model)
        self.vectors.copy_(semantics.vectors(self.words))

    def for_inference(self) -> "NamesTeacher":
        """One that gives the same posteriors, but for rounding, quicker."""
        return replaced(self, classifier=self.classifier.for_inference())

    def posterior(self, view: View, temperature: float = 1.0) -> Tensor:
        """How likely each name is at every position of the last map, (B,N,h,w)."""
        logits = view.once(NamesTeacher, lambda: self.classifier(view.last))
        # With the names last: a softmax over a middle dimension takes several times as long.
        return (logits.movedim(1, -1) / temperature).softmax(dim=-1).movedim(-1, 1)

    def at(self, looks: Tensor, temperature: float = 1.0) -> Tensor:
        """How likely each name is where the last map is `looks` (P,C): (P,N)."""
        logits: Tensor = self.classifier(looks[:, :, None, None])[:, :, 0, 0]
        return (logits / temperature).softmax(dim=1)

    def blocks(self, looks: Tensor) -> Iterator[Tensor]:
        """Positions (P,C), so many at a time as the memory for their posteriors allows."""
        yield from torch.split(looks, max(1, BLOCK // len(self.names)))

    def read(self, view: View, columns: Tensor, temperature: float = 1.0) -> Tensor:
        """sum_n p_n columns_n at every position, (B,D,h,w) of columns (N,D), some positions at a time."""
        looks = view.last.movedim(1, -1).flatten(0, 2)
        found = torch.cat([self.at(block, temperature) @ columns for block in self.blocks(looks)])
        batch, _, height, width = view.last.shape
        return found.reshape(batch, height, width, -1).movedim(-1, 1)


def left_out(unseen: Iterable[str], subset: str = imagenet.FIRST) -> tuple[int, ...]:
    """The classes of an ImageNet that `strict` leaves out because they give an unseen class away."""
    return tuple(sorted(set().union(*(giveaways(name, subset) for name in unseen))))
