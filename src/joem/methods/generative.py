"""Systems that make features of unseen classes up from their words, to train an ordinary classifier with them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import KERNELS, fitted_kernels, moment_matching, weighted_cross_entropy
from joem.methods.base import Objective, ObjectiveSettings, group
from joem.methods.classifier import ClassifierMethod
from joem.models import Inputs
from joem.settings import Count, ModelSettings, Size, Weight, settings
from joem.vocabulary import VOID, Vocabulary


@settings
class GeneratorSettings(ObjectiveSettings):
    """Systems that make features of unseen classes up.

    Args:
        noise: size of the noise next to the word vector.
        hidden: size of the generator's hidden layer.
        samples: features per class and batch that are compared or made up.
        fit_kernels: scale the kernels that compare real and made-up features to the distances between real ones;
            ZS3Net's own widths suit its own encoder.
    """

    noise: Size = 300
    hidden: Count = 256
    samples: Count = 128
    fit_kernels: bool = False


@settings
class GenerativeSettings(GeneratorSettings):
    """Those of them that learn generator and classifier together, on the features of a segmentation network.

    Args:
        unseen_weight: weight of made-up unseen features in the classifier's cross entropy.
    """

    unseen_weight: Weight = 10.0


class GenerativeMethod(ClassifierMethod):
    """A segmentation network on the seen classes, then a generator of its features and a new classifier together.

    In the second stage every batch teaches both, as in ZS3Net's code: the generator by the real features, a classifier
    that starts anew by these and by what the generator makes of unseen words. A subclass has a `generator` and says how
    it makes features (`make`) and what it learns by (`generator_terms`).
    """

    stages: tuple[str, ...] = ("segment", "transfer")
    new_class_stages: tuple[str, ...] = ("transfer",)
    uses_unseen_words: ClassVar[bool] = True
    settings: GenerativeSettings
    generator: nn.Module

    def __init__(
        self, model: ModelSettings, settings: GenerativeSettings, vocabulary: Vocabulary, vectors: Tensor
    ) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self._fresh = {name: value.clone() for name, value in self.classifier.state_dict().items()}

    def begin(self, stage: str) -> None:
        """The second stage starts with a fresh classifier, the same in every process."""
        super().begin(stage)
        if stage == "transfer":
            self.classifier.load_state_dict(self._fresh)

    @abstractmethod
    def make(self, classes: Sequence[int], count: int, labels: Tensor) -> Tensor:
        """Features (count, len(classes), C) of some classes; `labels` (B,H,W) is a batch that may give context."""

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy; then the generator's terms beside the weighted cross entropy of real and made-up features."""
        features = self.encoded(inputs)
        if self.stage == "segment":
            return self.segment(features, labels)
        small = losses.resized(labels, features.shape[2:])
        terms, weight = self.classify(features, small)
        # No term has a gradient in what another one teaches: made-up features are constants to the classifier.
        return Objective({**self.generator_terms(features, small), **terms}, weight)

    def generator_terms(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """sqrt(MMD²) between real and made-up features, the mean over the classes of the batch."""
        real = by_class(features, labels, self.settings.samples)
        made = self.make(list(real), self.settings.samples, labels)
        return {"mmd": mean_moment_matching(real, made, self.settings.fit_kernels)}

    def classify(self, features: Tensor, labels: Tensor) -> Objective:
        """Cross entropy over all classes of real pixels of seen and made-up ones of unseen classes."""
        settings, unseen = self.settings, self.vocabulary.unseen_indices
        labelled = labels != VOID
        made = self.make(unseen, settings.samples, labels).detach().flatten(0, 1)
        samples = torch.cat([features.movedim(1, -1)[labelled], made])
        truth = torch.cat([labels[labelled], torch.tensor(unseen, device=labels.device).repeat(settings.samples)])
        weights = torch.ones(len(self.vocabulary), device=features.device)
        weights[list(unseen)] = settings.unseen_weight
        logits = self.classifier(samples[:, :, None, None])[:, :, 0, 0]
        return Objective({"ce": weighted_cross_entropy(logits, truth, weights)}, weights[truth].sum())

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The segmentation network, then the generator and the classifier."""
        if self.stage == "segment":
            return {"visual": self.visual_groups(head_multiplier, self.classifier)}
        return {"visual": group(self.classifier, scale=head_multiplier), "generator": group(self.generator)}


def by_class(features: Tensor, labels: Tensor, most: int) -> dict[int, Tensor]:
    """Features (B,C,H,W) by the label (B,H,W) of their pixel, at most so many per class, drawn at random.

    >>> found = by_class(torch.zeros(1, 3, 2, 2), torch.tensor([[[0, 2], [2, 255]]]), most=5)
    >>> {label: tuple(rows.shape) for label, rows in found.items()}
    {0: (1, 3), 2: (2, 3)}
    """
    rows, flat = features.movedim(1, -1).flatten(0, 2), labels.flatten()
    found = {}
    for label in torch.unique(flat[flat != VOID]).tolist():
        places = (flat == label).nonzero().flatten()
        chosen = torch.randperm(len(places), device=places.device)[:most]
        found[label] = rows[places[chosen]]
    return found


def mean_moment_matching(real: Mapping[int, Tensor], made: Tensor, fit_kernels: bool = False) -> Tensor:
    """sqrt(MMD²) between real features by class and made-up ones (N,K,C) of the same classes, the mean over these."""
    kernels = fitted_kernels(torch.cat(list(real.values()))) if fit_kernels and real else KERNELS
    parts = [moment_matching(rows, made[:, place], kernels) for place, rows in enumerate(real.values())]
    return torch.stack(parts).mean() if parts else 0 * made.sum()


def with_noise(words: Tensor, size: int) -> Tensor:
    """Word vectors (...,D) with uniform noise appended, (...,D+size)."""
    return torch.cat([words, torch.rand(*words.shape[:-1], size, device=words.device)], dim=-1)


class NoisyDropout(nn.Module):
    """Dropout that is never off: to a generator it is noise like any other.

    Moment matching does not care where the spread within a class comes from, and dropout of hidden units gives it at
    once: a generator learns to spread its features by dropout and to ignore its noise. Without dropout, they would then
    collapse to a point per class: on synthetic features, variance between over variance within classes was 32 where
    real ones have 0.09, and 0.08 with dropout.

    Args:
        p: the share of units that is dropped.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs with some of them at zero and the others scaled up."""
        return F.dropout(inputs, self.p, training=True)


def layers(sizes: Sequence[int], dropout: float = 0.5) -> nn.Sequential:
    """Linear layers between sizes, with LeakyReLU .2 and dropout after each but the last.

    ZS3Net's generator is `layers([words + noise, 256, channels])`.
    """
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        modules += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2), *([NoisyDropout(dropout)] if dropout else [])]
    return nn.Sequential(*modules, nn.Linear(sizes[-2], sizes[-1]))
