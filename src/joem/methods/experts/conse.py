"""The classifier's posterior read as a mean of name vectors (ConSE), which learns nothing from masks.

What was learned on training pictures says little of things they never show; the classifier has seen them.
"""

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.errors import BadUsage
from joem.methods.experts.expert import Expert, ExpertSettings, Shared, attend, resized
from joem.methods.experts.names import NamesTeacher
from joem.methods.experts.view import View
from joem.models.inference import FusedConv2d, replaced
from joem.semantics import Semantics
from joem.settings import Positive, Weight, settings
from joem.vocabulary import VOID


@settings
class ConSESettings(ExpertSettings):
    """The posterior over names as a mean of name vectors.

    Args:
        temperature: what the classifier's logits are divided by; below 1 sharpens its posterior.
        attention: mix the posteriors of positions that look alike, by a softmax over this many times the cosine of
            their last maps; 0 leaves each position its own.
        gate: count the more, the rarer what the classifier sees was in training.
    """

    kind: str = "conse"
    temperature: Positive = 1.0
    attention: Weight = 0.0
    gate: bool = False


class ConSE(Expert):
    """v is the mean of the names' meanings weighted by the posterior, of unit length; mu is the word vector itself.

    A meaning is the vector of a name with its dictionary entry ("ox" alone is near no animal), less the mean of all.

    With a gate the expert counts a(p) times its weight at pixel p, a = sum_n p_n (median(q) / q_n)^2, where p is the
    posterior and q its mean over the batches of training pixels (of the first process, if there are several).
    """

    settings_class = ConSESettings
    settings: ConSESettings
    unit: ClassVar[bool] = True
    reads_names: ClassVar[bool] = True
    meanings: Tensor
    frequencies: Tensor
    batches: Tensor
    reader: FusedConv2d | None

    def __init__(self, settings: ConSESettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        count = len(self._teacher.names)
        self.register_buffer("meanings", torch.zeros(count, shared.dimension))
        if settings.gate:
            self.register_buffer("frequencies", torch.full((count,), 1 / count))
            self.register_buffer("batches", torch.tensor(0))
        self.register_module("reader", None)  # a form for inference has one
        # The statistics of the training pixels, for looks to be compared by.
        self.norm = nn.BatchNorm2d(shared.channels[-1], affine=False) if settings.attention else None

    def learn_names(self, semantics: Semantics) -> None:
        """Take the meanings of the names."""
        meanings = semantics.vectors(self._teacher.meanings)
        self.meanings.copy_(F.normalize(meanings - meanings.mean(dim=0), dim=1))

    @torch.no_grad()
    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """Nothing to learn by; what attention and the gate need to know of the training pixels is counted."""
        labelled = losses.resized(labels, view.size) != VOID
        if self.training and self.norm is not None:
            self.norm(view.last)
        if self.training and self.settings.gate and labelled.any():
            looks = view.last.movedim(1, -1)[labelled]
            if self._teacher.many:
                seen = torch.stack([self._teacher.at(block).sum(dim=0) for block in self._teacher.blocks(looks)])
                seen = seen.sum(dim=0) / len(looks)
            else:
                seen = self._teacher.posterior(view).movedim(1, -1)[labelled].mean(dim=0)
            self.batches += 1
            self.frequencies += (seen - self.frequencies) / self.batches
        return {}

    def features(self, view: View) -> Tensor:
        """The mean of the meanings by the posterior, at the size of the other experts' features."""
        return resized(F.normalize(self._read(view)[:, : self.meanings.shape[1]], dim=1), view)

    def gate(self, view: View) -> Tensor | None:
        """a(p), if there is a gate."""
        if not self.settings.gate:
            return None
        return resized(self._read(view)[:, -1:], view)

    def _rarity(self) -> Tensor:
        """(median(q) / q_n)^2 of every name."""
        middle = self.frequencies.sort().values[(len(self.frequencies) - 1) // 2]  # ONNX knows no median
        return (middle / self.frequencies).square()

    def _read(self, view: View) -> Tensor:
        """The posterior's mean of the meanings, and of the rarities where there is a gate; both share it.

        Attention mixes posteriors of positions, which commutes with the mean: the means, which are fewer, are mixed.
        """
        return view.once(self, lambda: self._attend(view, self._means(view)))

    def _means(self, view: View) -> Tensor:
        """The same without attention."""
        temperature = self.settings.temperature
        if self._teacher.many:
            return self._teacher.read(view, self._columns(), temperature)
        posterior = self._teacher.posterior(view, temperature)
        if self.reader is not None:
            return cast(Tensor, self.reader(posterior))
        return (posterior.movedim(1, -1) @ self._columns()).movedim(-1, 1)

    def _columns(self) -> Tensor:
        """What the posterior weighs: the meanings, and the rarities where there is a gate, (N,D)."""
        return torch.cat([self.meanings, self._rarity()[:, None]], dim=1) if self.settings.gate else self.meanings

    def for_inference(self, teacher: NamesTeacher | None) -> Expert:
        """With a convolution for the mean, which takes half the time of a matrix product."""
        quick = super().for_inference(teacher)
        if self._teacher.many:
            return quick
        return replaced(quick, reader=FusedConv2d(self._columns().T[:, :, None, None]))

    @property
    def _teacher(self) -> NamesTeacher:
        if self.shared.teacher is None:
            raise BadUsage("The expert conse reads a classifier of names: set --method.names strict or all.")
        return self.shared.teacher

    def _attend(self, view: View, values: Tensor) -> Tensor:
        """Values (B,N,h,w) of positions that look alike, mixed by attention if there is one."""
        if self.norm is None:
            return values
        return attend(self.norm(view.last), values, self.settings.attention)

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Word vectors of unit length."""
        return F.normalize(vectors, dim=1)
