"""What every expert offers to the blend."""

import copy
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from joem.methods.experts.names import NamesTeacher
from joem.methods.experts.view import View
from joem.models import HypercolumnHead
from joem.models.inference import replaced
from joem.semantics import Semantics
from joem.settings import Count, Positive, settings
from joem.vocabulary import Vocabulary

_SAME = 0.9999  # words with a larger cosine are one word


class Shared(NamedTuple):
    """What all experts of a blend are made with.

    Attributes:
        vocabulary: the classes; labels are its indices.
        dimension: D, the size of a word vector.
        channels: those of the backbone's maps, finest first.
        strides: of these maps.
        teacher: who teaches names, if anybody does; the blend owns its weights.
    """

    vocabulary: Vocabulary
    dimension: int
    channels: list[int]
    strides: tuple[int, ...]
    teacher: NamesTeacher | None = None


@settings
class ExpertSettings:
    """What every expert has.

    Args:
        kind: which expert.
        weight: how much its distance counts.
    """

    kind: str
    weight: Positive = 1.0


class Expert(nn.Module, ABC):
    """One opinion about pixels and words: d_k(v, mu) of the blend's d^2 = sum_k w_k d_k^2 / sum_k w_k.

    Args:
        settings: its own, of its `settings_class`.
        shared: what the others are made with too.

    Attributes:
        settings_class: the settings it has.
        weight: w_k.
        unit: whether its features and prototypes have unit length.
        reads_names: whether it asks the teacher of names at test time too.
    """

    settings_class: ClassVar[type[ExpertSettings]]
    unit: ClassVar[bool]
    reads_names: ClassVar[bool] = False

    def __init__(self, settings: ExpertSettings, shared: Shared) -> None:
        super().__init__()
        self.settings, self.shared, self.weight = settings, shared, settings.weight

    @abstractmethod
    def features(self, view: View) -> Tensor:
        """v_k, (B,C_k,H,W)."""

    @abstractmethod
    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """mu_k of words, (n,C_k).

        Args:
            vectors: word vectors of the classes asked for, (n,D).
            known: word vectors of the vocabulary, (K,D).
        """

    def gate(self, view: View) -> Tensor | None:
        """How many times its weight it counts at every pixel, (B,1,H,W); None where that is always once.

        Only for experts whose prototypes have unit length.
        """
        return None

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """What it learns by, each term a mean over the labelled pixels; nothing if it does not learn."""
        return {}

    def caption_terms(self, view: View, nouns: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        """What it learns by from captioned photos, each term a mean over their nouns.

        Args:
            view: pixels of the photos.
            nouns: which nouns each photo has, (B,N).
            vectors: word vectors of the nouns, (N,D).
        """
        return {}

    def learn_names(self, semantics: Semantics) -> None:
        """A chance, before training, to take word vectors beyond those of the vocabulary."""

    def for_inference(self, teacher: NamesTeacher | None) -> "Expert":
        """One with the same opinion, but for rounding, that has it quicker.

        Args:
            teacher: the form for inference of the one that teaches names.
        """
        quick = copy.copy(self)
        quick.shared = self.shared._replace(teacher=teacher)
        return quick

    def visual_parameters(self) -> list[nn.Parameter]:
        """What learns with the optimiser of the visual side."""
        return []

    def semantic_parameters(self) -> list[nn.Parameter]:
        """What learns with the optimiser of the semantic side."""
        return []


@settings
class PerceptronSettings(ExpertSettings):
    """Experts that learn perceptrons on hypercolumns.

    Args:
        copies: how many perceptrons learn apart from different starts and are averaged.
        hidden: size of the hidden layer of each.
        channels: size of the space of each.
    """

    copies: Count = 3
    hidden: Count = 256
    channels: Count = 128


class PerceptronExpert(Expert):
    """An expert with perceptrons of its own; `size` is that of all copies together."""

    settings: PerceptronSettings

    def __init__(self, settings: PerceptronSettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        self.head = HypercolumnHead(
            shared.channels, shared.strides, settings.channels, settings.hidden, copies=settings.copies
        )
        self.size = settings.channels * settings.copies

    def for_inference(self, teacher: NamesTeacher | None) -> Expert:
        """With quicker perceptrons."""
        return replaced(super().for_inference(teacher), head=self.head.for_inference())

    def visual_parameters(self) -> list[nn.Parameter]:
        """The perceptrons'."""
        return list(self.head.parameters())

    def semantic_parameters(self) -> list[nn.Parameter]:
        """All others."""
        return [weight for name, weight in self.named_parameters() if not name.startswith("head.")]


def products(features: Tensor, prototypes: Tensor, copies: int) -> Tensor:
    """Each copy's own v . mu: (B,C,H,W) and (K,C) -> (B * M,K,H,W), the copies of a picture together."""
    count = len(prototypes)
    kernels = prototypes.reshape(count, copies, -1).transpose(0, 1).flatten(0, 1)
    return F.conv2d(features, kernels[:, :, None, None], groups=copies).reshape(-1, count, *features.shape[-2:])


def trained(vectors: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Which words (n,D) are those of classes with masks (S,D), and to which of these each is nearest: (n,), (n,)."""
    nearest, row = (F.normalize(vectors, dim=1) @ F.normalize(seen, dim=1).T).max(dim=1)
    return nearest > _SAME, row


def attend(looks: Tensor, values: Tensor, sharpness: float) -> Tensor:
    """Values (B,N,h,w) of positions that look alike, mixed by a softmax over `sharpness` times the looks' cosine."""
    unit = F.normalize(looks, dim=1)
    keys, own = (each.flatten(2).transpose(1, 2).unsqueeze(1) for each in (unit, values))
    # One head, which ONNX wants to see.
    mixed = F.scaled_dot_product_attention(keys, keys, own, scale=sharpness)
    batch, _, height, width = values.shape
    return mixed.reshape(batch, height, width, -1).movedim(-1, 1)


def resized(coarse: Tensor, view: View) -> Tensor:
    """A map at the size of the features that every expert gives."""
    return F.interpolate(coarse, view.size, mode="bilinear", align_corners=False)
