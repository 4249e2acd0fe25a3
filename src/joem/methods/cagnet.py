"""CaGNet: features made from words and a code of the surroundings, against a discriminator (Gu 2020)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

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
from joem.models import Hypercolumns, Inputs
from joem.settings import Count, ModelSettings, Weight, settings
from joem.vocabulary import VOID, Vocabulary

_OTHER_TERMS = ("kl", "content", "adversarial")
_DILATIONS = (1, 2, 5)  # of the contextual module


@settings
class CaGNetSettings(GeneratorSettings):
    """CaGNet.

    Args:
        noise: size of the contextual code next to the word vector.
        hidden: size of the hidden layers of generator, discriminator and contextual module.
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

    A feature is sigmoid(h + h . sigmoid(z)): the encoded pixel h, modulated by the code z of its surroundings, which
    learns by cross entropy and KL. What generator and discriminator learn by reaches neither; in the second stage both
    are frozen.
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
        self.context = ContextualModule(channels, settings.hidden, settings.noise)
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
        return self._real(*self._in_context(inputs), labels)

    def encoded(self, inputs: Inputs) -> Tensor:
        """The features of pixels, modulated by the mean of the code of their surroundings."""
        encoded, mean, _ = self._in_context(inputs)
        return modulated(encoded, self.modulation(mean))

    def _in_context(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """The encoded pixels h, and mean and log variance of the code z of their surroundings.

        Surroundings are counted in positions of the backbone's last map, at which squares of stored maps are taken: so
        a code means the same where features are finer.
        """
        encoded = super().encoded(inputs)
        step = 1 if isinstance(inputs, Hypercolumns) else max(1, self.trunk.strides[-1] // self.stride)
        return encoded, *self.context(encoded, step)

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
        others = dict.fromkeys(_OTHER_TERMS, torch.zeros((), device=device))
        cross_entropy = weighted_cross_entropy(logits, truth, weights)
        return Objective({"ce": cross_entropy, **others}, torch.ones((), device=device))

    def _real(self, encoded: Tensor, mean: Tensor, log_variance: Tensor, labels: Tensor) -> Objective:
        """Cross entropy, content (MMD), adversarial and KL terms."""
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        features = modulated(encoded, self.modulation(code))
        terms, weight = self.segment(features, labels)
        small = losses.resized(labels, encoded.shape[2:])
        moments = [each.movedim(1, -1)[small != VOID] for each in (mean, log_variance)]
        kl = divergence_from_normal(*moments) if len(moments[0]) else 0 * mean.sum()
        terms["kl"] = self.settings.kl_weight * kl
        return Objective(terms | self._players(features.detach(), code.detach(), small), weight)

    def _players(self, features: Tensor, code: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Content and adversarial terms of some pixels of every class, which teach generator and discriminator alone.

        Args:
            features: real ones (B,C,H,W), constants as in CaGNet's code.
            code: what they were modulated by (B,Z,H,W), likewise.
            labels: (B,H,W).
        """
        settings, sizes = self.settings, [features.shape[1], code.shape[1]]
        chosen = by_class(torch.cat([features, code], dim=1), labels, settings.samples)
        counts = [len(rows) for rows in chosen.values()]
        rows = torch.cat([features.new_empty(0, sum(sizes)), *chosen.values()])
        real, codes = torch.split(rows, sizes, dim=1)
        truth = [label for label, count in zip(chosen, counts, strict=True) for _ in range(count)]
        words = self.words(torch.tensor(truth, dtype=torch.int64, device=codes.device))
        made = self.generator(torch.cat([words, codes], dim=1))
        if not chosen:
            nothing = 0 * (made.sum() + self.discriminator(real).sum())  # other processes wait for a gradient
            return dict.fromkeys(("content", "adversarial"), nothing)
        kernels = fitted_kernels(real) if settings.fit_kernels else CAGNET_KERNELS
        pairs = zip(torch.split(real, counts), torch.split(made, counts), strict=True)
        content = torch.stack([moment_matching(*pair, kernels) for pair in pairs]).mean()
        # One backward pass for both players: the generator meets a discriminator whose weights are constants.
        constants = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        fooling = fooling_loss(functional_call(self.discriminator, constants, (made,)))
        judging = discriminator_loss(self.discriminator(real), self.discriminator(made.detach()))
        return {
            "content": settings.content_weight * content,
            "adversarial": settings.adversarial_weight * (fooling + judging),
        }

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Everything, then everything that makes no features of pixels."""
        players = group(self.generator, self.discriminator)
        if self.stage == "finetune":
            return {"visual": group(self.classifier, scale=head_multiplier), "generator": players}
        features = self.visual_groups(head_multiplier, self.classifier, self.context, self.modulation)
        return {"visual": features, "generator": players}


class ContextualModule(nn.Module):
    """A Gaussian code of every pixel's surroundings: features (B,C,H,W) to mean and log variance (B,Z,H,W).

    Three 3x3 convolutions one after the other, with dilations 1, 2 and 5, see larger and larger surroundings; a gate
    weighs the three scales at every pixel.
    """

    def __init__(self, channels: int, hidden: int, size: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(nn.Conv2d(each, hidden, 3) for each in (channels, hidden, hidden))
        self.gate = nn.Conv2d(3 * hidden, 3, 1)
        self.code = nn.Conv2d(3 * hidden, 2 * size, 1)

    def forward(self, features: Tensor, step: int = 1) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the code; a dilation of 1 is `step` positions."""
        maps = []
        for convolution, dilation in zip(self.scales, _DILATIONS, strict=True):
            weight, bias = cast(Tensor, convolution.weight), cast(Tensor, convolution.bias)
            apart = dilation * step
            features = F.leaky_relu(F.conv2d(features, weight, bias, padding=apart, dilation=apart), 0.2)
            maps.append(features)
        gates = self.gate(torch.cat(maps, dim=1)).softmax(dim=1).chunk(3, dim=1)
        gated = torch.cat([gate * one for gate, one in zip(gates, maps, strict=True)], dim=1)
        mean, log_variance = self.code(gated).chunk(2, dim=1)
        return mean, log_variance
