"""Systems that make features of unseen classes up from their words, to train an ordinary classifier with them."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import KERNELS, fitted_kernels, moment_matching, weighted_cross_entropy
from joem.methods.base import Objective, ObjectiveSettings, group
from joem.methods.classifier import ClassifierMethod
from joem.models import Inputs
from joem.settings import Count, Size, Weight, settings
from joem.vocabulary import VOID


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
    """Those of them that learn in three stages.

    Args:
        unseen_weight: weight of made-up unseen features in the classifier's cross entropy.
    """

    unseen_weight: Weight = 10.0


class GenerativeMethod(ClassifierMethod):
    """Three stages: a segmentation network on the seen classes, a generator of its features, a new classifier.

    A subclass has a `generator` and says how it makes features (`make`) and what it learns by (`generator_terms`).
    """

    stages: tuple[str, ...] = ("segment", "generate", "classify")
    new_class_stages: tuple[str, ...] = ("classify",)
    uses_unseen_words: ClassVar[bool] = True
    settings: GenerativeSettings
    generator: nn.Module

    @abstractmethod
    def make(self, classes: Sequence[int], count: int, labels: Tensor) -> Tensor:
        """Features (count, len(classes), C) of some classes; `labels` (B,H,W) is a batch that may give context."""

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """Cross entropy, the generator's terms, or weighted cross entropy of real and made-up features."""
        features = self.encoded(inputs)
        if self.stage == "segment":
            return self.segment(features, labels)
        small = losses.resized(labels, features.shape[2:])
        if self.stage == "generate":
            return Objective(self.generator_terms(features, small), torch.ones((), device=features.device))
        return self.classify(features, small)

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
        """The segmentation network, the generator, the classifier: one per stage."""
        if self.stage == "segment":
            return {"visual": self.visual_groups(head_multiplier, self.classifier)}
        if self.stage == "generate":
            return {"generator": group(self.generator)}
        return {"visual": group(self.classifier, scale=head_multiplier)}


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


def hidden_and_output(inputs: int, hidden: int, outputs: int, dropout: float = 0.5) -> nn.Sequential:
    """ZS3Net's generator: linear, LeakyReLU .2, dropout, linear."""
    between = [nn.LeakyReLU(0.2), nn.Dropout(dropout)] if dropout else [nn.LeakyReLU(0.2)]
    return nn.Sequential(nn.Linear(inputs, hidden), *between, nn.Linear(hidden, outputs))
