"""CaGNet: features made from words and a code of the surroundings, against a discriminator (Gu 2020)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from joem import losses
from joem.losses.compared import (
    CAGNET_KERNELS,
    discriminator_loss,
    divergence_from_normal,
    fitted_kernels,
    fooling_loss,
    modulated,
    moment_matching,
    weighted_cross_entropy,
)
from joem.methods.base import Objective, group, head_channels
from joem.methods.classifier import ClassifierMethod
from joem.methods.generative import GeneratorSettings, by_class, layers
from joem.models import Inputs
from joem.settings import Count, ModelSettings, Weight, settings
from joem.vocabulary import VOID, Vocabulary

_GENERATOR_TERMS = ("content", "adversarial", "kl")


@settings
class CaGNetSettings(GeneratorSettings):
    """CaGNet.

    Args:
        noise: size of the contextual code next to the word vector.
        deep: hidden layers of a deeper generator, in its code 1024, 960, 864, 784, 720; one of `hidden` if none.
        content_weight: weight of the content term.
        adversarial_weight: weight of the adversarial term.
        kl_weight: weight of the KL term of the contextual code.
        unseen_weight: weight of made-up unseen features in the classifier's cross entropy.
        alternate: batches between real and made-up features in the last stage.
    """

    name: str = "cagnet"
    noise: Count = 300
    deep: tuple[Count, ...] = ()
    content_weight: Weight = 50.0
    adversarial_weight: Weight = 1.0
    kl_weight: Weight = 100.0
    unseen_weight: Weight = 10.0
    alternate: Count = 10


class CaGNet(ClassifierMethod):
    """Everything learns from real features of seen classes; then the classifier learns from made-up ones by turns.

    A feature is sigmoid(h + h . sigmoid(z)): the encoded pixel h, modulated by the code z of its surroundings. The
    generator's terms never reach the visual encoder, which is frozen in the second stage.
    """

    settings_class = CaGNetSettings
    settings: CaGNetSettings
    title: ClassVar[str] = "CaGNet"
    stages: tuple[str, ...] = ("train", "finetune")
    new_class_stages: tuple[str, ...] = ("finetune",)
    uses_unseen_words: ClassVar[bool] = True
    rests: ClassVar[bool] = True  # the generator, while the classifier learns from made-up features
    needs_maps = True
    batches: Tensor

    def __init__(self, model: ModelSettings, settings: CaGNetSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        channels, hidden = head_channels(model), settings.deep or (settings.hidden,)
        self.context = ContextualModule(channels, settings.noise)
        self.modulation = nn.Conv2d(settings.noise, channels, 1)
        sizes = [vectors.shape[1] + settings.noise, *hidden, channels]
        self.generator = nn.Sequential(*layers(sizes, dropout=0.2 if settings.deep else 0.0), nn.Sigmoid())
        self.discriminator = layers([channels, settings.hidden, 1], dropout=0.0)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))  # of finetuning, so far

    def begin(self, stage: str) -> None:
        """Finetuning starts with made-up features."""
        super().begin(stage)
        self.batches.zero_()

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """All terms of real features; in the second stage, by turns, the cross entropy of made-up ones."""
        if self.stage == "finetune":
            turn = int(self.batches) // self.settings.alternate
            self.batches += 1
            if turn % 2 == 0:
                return self._made_up()
        return self._real(super().encoded(inputs), labels)

    def encoded(self, inputs: Inputs) -> Tensor:
        """The features of pixels, modulated by the mean of the code of their surroundings."""
        encoded = super().encoded(inputs)
        return modulated(encoded, self.modulation(self.context(encoded)[0]))

    def words(self, classes: Tensor) -> Tensor:
        """Word vectors (...,D) of classes, as long as a code of N(0, 1) is on average: shorter ones drown beside it."""
        return F.normalize(self.vectors[classes], dim=-1) * math.sqrt(self.settings.noise)

    def make(self, classes: Sequence[int], count: int, labels: Tensor | None = None) -> Tensor:
        """Features (count, len(classes), C) of some classes, from words and random codes."""
        words = self.words(torch.tensor(classes, device=self.vectors.device)).expand(count, -1, -1)
        code = torch.randn(*words.shape[:2], self.settings.noise, device=words.device)
        made: Tensor = self.generator(torch.cat([words, code], dim=2))
        return made

    def _made_up(self) -> Objective:
        """Weighted cross entropy of as many made-up features of every class, seen or not."""
        count, samples, device = len(self.vocabulary), self.settings.samples, self.vectors.device
        truth = torch.arange(count, device=device).repeat(samples)
        made = self.make(range(count), samples).detach().flatten(0, 1)
        weights = torch.ones(count, device=device)
        weights[list(self.vocabulary.unseen_indices)] = self.settings.unseen_weight
        logits = self.classifier(made[:, :, None, None])[:, :, 0, 0]
        others = dict.fromkeys(_GENERATOR_TERMS, torch.zeros((), device=device))
        cross_entropy = weighted_cross_entropy(logits, truth, weights)
        return Objective({"ce": cross_entropy, **others}, torch.ones((), device=device))

    def _real(self, encoded: Tensor, labels: Tensor) -> Objective:
        """Cross entropy, content (MMD), adversarial and KL terms."""
        settings = self.settings
        small = losses.resized(labels, encoded.shape[2:])
        labelled = small != VOID
        mean, log_variance = self.context(encoded)
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        features = modulated(encoded, self.modulation(code))
        terms, weight = self.segment(features, labels)
        # The code teaches the generator and learns from it; the visual encoder does not.
        mean, log_variance = (each.movedim(1, -1)[labelled] for each in self.context(encoded.detach()))
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        truth, true = small[labelled], features.detach().movedim(1, -1)[labelled]
        made = self.generator(torch.cat([self.words(truth), code], dim=1))
        if not len(truth):
            nothing = 0 * (made.sum() + self.discriminator(true).sum())
            return Objective(terms | dict.fromkeys(_GENERATOR_TERMS, nothing), weight)
        # One backward pass for both players: the generator meets a discriminator whose weights are constants.
        constants = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        fooling = fooling_loss(functional_call(self.discriminator, constants, (made,)))
        judging = discriminator_loss(self.discriminator(true), self.discriminator(made.detach()))
        terms |= {
            "content": settings.content_weight * self._content(true, made, truth),
            "adversarial": settings.adversarial_weight * (fooling + judging),
            "kl": settings.kl_weight * divergence_from_normal(mean, log_variance),
        }
        return Objective(terms, weight)

    def _content(self, real: Tensor, made: Tensor, truth: Tensor) -> Tensor:
        """sqrt(MMD²) between the real and made-up features of the same pixels, the mean over the classes."""
        both = torch.cat([real, made], dim=1).T[None, :, None]
        chosen = by_class(both, truth[None, None], self.settings.samples).values()
        pairs = [pixels.chunk(2, dim=1) for pixels in chosen]
        kernels = fitted_kernels(real) if self.settings.fit_kernels else CAGNET_KERNELS
        return torch.stack([moment_matching(one, other, kernels) for one, other in pairs]).mean()

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Everything, then everything that makes no features of pixels."""
        everything = self.visual_groups(head_multiplier, self.classifier, self.modulation)
        players = [self.generator, self.discriminator]
        if self.stage == "finetune":
            return {"visual": group(self.classifier, scale=head_multiplier), "generator": group(*players)}
        return {"visual": everything, "generator": group(self.context, *players)}


class ContextualModule(nn.Module):
    """A Gaussian code of every pixel's surroundings: features (B,C,H,W) to mean and log variance (B,Z,H,W).

    Three 3x3 convolutions one after the other, with dilations 1, 2 and 5, see larger and larger surroundings; a gate
    weighs the three scales at every pixel.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=d, dilation=d) for d in (1, 2, 5))
        self.gate = nn.Conv2d(3 * channels, 3, 1)
        self.code = nn.Conv2d(3 * channels, 2 * size, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the code."""
        maps = []
        for convolution in self.scales:
            features = F.leaky_relu(convolution(features), 0.2)
            maps.append(features)
        gates = self.gate(torch.cat(maps, dim=1)).softmax(dim=1).chunk(3, dim=1)
        gated = torch.cat([gate * one for gate, one in zip(gates, maps, strict=True)], dim=1)
        mean, log_variance = self.code(gated).chunk(2, dim=1)
        return mean, log_variance
