"""The classifier's posterior read as a mean of name vectors (ConSE), which learns nothing from masks.

What was learned on training pictures says little of things they never show; the classifier has seen them.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.errors import BadUsage
from joem.methods.experts.expert import Expert, View
from joem.methods.experts.names import NamesTeacher
from joem.semantics import Semantics, imagenet
from joem.settings import Positive, settings
from joem.vocabulary import VOID, Vocabulary

_TEMPERATURE = 0.6  # sharpens the posterior
_KINSHIP = 8.0  # what the cosine of two positions' looks is multiplied by before the softmax over a picture


@settings
class ConSESettings:
    """The posterior over names as a mean of name vectors.

    Args:
        kind: conse.
        weight: how much its distance counts.
    """

    kind: Literal["conse"] = "conse"
    weight: Positive = 0.3


class ConSE(Expert):
    """v is the mean of the names' meanings weighted by the posterior, of unit length; mu is the word vector itself."""

    unit: ClassVar[bool] = True

    meanings: Tensor
    frequencies: Tensor
    batches: Tensor

    def __init__(
        self,
        settings: ConSESettings,
        vocabulary: Vocabulary,
        dimension: int,
        channels: list[int],
        teacher: NamesTeacher | None,
    ) -> None:
        super().__init__(vocabulary, settings.weight)
        if teacher is None:
            raise BadUsage("The expert conse reads a classifier of names: set --method.names strict or all.")
        self._teacher = [teacher]  # in a list: the blend owns the teacher's weights
        count = len(teacher.names)
        self.register_buffer("meanings", torch.zeros(count, dimension))
        self.register_buffer("frequencies", torch.full((count,), 1 / count))
        self.register_buffer("batches", torch.tensor(0))
        self.norm = nn.BatchNorm2d(channels[-1], affine=False)  # the statistics of the training pixels

    def learn_names(self, semantics: Semantics) -> None:
        """Take the meanings of the names: their vectors with dictionary entries, less the mean of all."""
        meanings = semantics.vectors([imagenet.meanings()[index] for index in self._teacher[0].names])
        self.meanings.copy_(F.normalize(meanings - meanings.mean(dim=0), dim=1))

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """Nothing to learn by; how often each name is seen in training is counted."""
        labelled = losses.resized(labels, view.size) != VOID
        if self.training and labelled.any():
            with torch.no_grad():
                self.norm(view.last)
                seen = self._teacher[0].posterior(view.last).movedim(1, -1)[labelled].mean(dim=0)
                self.batches += 1
                self.frequencies += (seen - self.frequencies) / self.batches
        return {}

    def features(self, view: View) -> Tensor:
        """The mean of the meanings by the posterior, at the size of the other experts' features."""
        return self._read(view)[0]

    def gate(self, view: View) -> Tensor:
        """How much more than its weight it counts: the rarer what it sees was in training, the more."""
        return self._read(view)[1]

    def _read(self, view: View) -> tuple[Tensor, Tensor]:
        looks = F.normalize(self.norm(view.last), dim=1)
        chances = _over_lookalikes(looks, self._teacher[0].posterior(view.last, _TEMPERATURE))
        middle = self.frequencies.sort().values[(len(self.frequencies) - 1) // 2]  # ONNX knows no median
        rarity = F.conv2d(chances, (middle / self.frequencies).square()[None, :, None, None])
        opinion = F.normalize(F.conv2d(chances, self.meanings.T[:, :, None, None]), dim=1)
        both = F.interpolate(torch.cat((rarity, opinion), 1), view.size, mode="bilinear", align_corners=False)
        return both[:, 1:], both[:, :1]

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Word vectors of unit length."""
        return F.normalize(vectors, dim=1)


def _over_lookalikes(looks: Tensor, values: Tensor) -> Tensor:
    """The mean of values (B,V,H,W) over the positions of a picture, weighted by how alike their looks (B,L,H,W) are."""
    keys, mixed = (each.flatten(2).transpose(1, 2).unsqueeze(1) for each in (looks, values))
    attended = F.scaled_dot_product_attention(keys, keys, mixed, scale=_KINSHIP)  # one head, which ONNX wants to see
    return attended.squeeze(1).transpose(1, 2).reshape(values.shape)
