"""CaGNet: features made from words and a code of the surroundings, against a discriminator (Gu 2020)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from joem import losses
from joem.losses.compared import (
    KERNELS,
    discriminator_loss,
    divergence_from_normal,
    fitted_kernels,
    fooling_loss,
    moment_matching,
)
from joem.methods.base import Objective, group, head_channels
from joem.methods.classifier import ClassifierMethod
from joem.methods.generative import GeneratorSettings, by_class, hidden_and_output
from joem.models import Inputs
from joem.settings import Count, ModelSettings, Weight, settings
from joem.vocabulary import VOID, Vocabulary

_GENERATOR_TERMS = ("content", "adversarial", "kl")


@settings
class CaGNetSettings(GeneratorSettings):
    """CaGNet.

    Args:
        noise: size of the contextual code next to the word vector.
        adversarial_weight: weight of the adversarial term.
        kl_weight: weight of the KL term of the contextual code.
        alternate: batches between real and made-up features in the last stage.
    """

    name: str = "cagnet"
    noise: Count = 300
    adversarial_weight: Weight = 1.0
    kl_weight: Weight = 100.0
    alternate: Count = 10


class CaGNet(ClassifierMethod):
    """Everything learns from real features of seen classes; then the classifier learns from made-up ones by turns.

    The generator's terms never reach the visual encoder, which is frozen in the second stage.
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
        channels, hidden = head_channels(model), settings.hidden
        self.context = ContextualModule(channels, settings.noise)
        self.generator = hidden_and_output(vectors.shape[1] + settings.noise, hidden, channels, dropout=0)
        self.discriminator = hidden_and_output(channels, hidden, 1, dropout=0)
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
        return self._real(self.encoded(inputs), labels)

    def make(self, classes: Sequence[int], count: int, labels: Tensor | None = None) -> Tensor:
        """Features (count, len(classes), C) of some classes, from words and random codes."""
        words = self.vectors[list(classes)].expand(count, -1, -1)
        code = torch.randn(*words.shape[:2], self.settings.noise, device=words.device)
        made: Tensor = self.generator(torch.cat([words, code], dim=2))
        return made

    def _made_up(self) -> Objective:
        """Cross entropy of as many made-up features of every class, seen or not."""
        count, samples = len(self.vocabulary), self.settings.samples
        truth = torch.arange(count, device=self.vectors.device).repeat(samples)
        made = self.make(range(count), samples).detach().flatten(0, 1)
        logits = self.classifier(made[:, :, None, None])[:, :, 0, 0]
        others = dict.fromkeys(_GENERATOR_TERMS, torch.zeros((), device=made.device))
        return Objective({"ce": F.cross_entropy(logits, truth), **others}, torch.ones((), device=made.device))

    def _real(self, features: Tensor, labels: Tensor) -> Objective:
        """Cross entropy, content (MMD), adversarial and KL terms."""
        settings, real = self.settings, features.detach()
        small = losses.resized(labels, features.shape[2:])
        labelled = small != VOID
        mean, log_variance = (code.movedim(1, -1)[labelled] for code in self.context(real))
        code = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        truth = small[labelled]
        made = self.generator(torch.cat([self.vectors[truth], code], dim=1))
        true = real.movedim(1, -1)[labelled]
        terms, weight = self.segment(features, labels)
        if not len(truth):
            nothing = 0 * (made.sum() + self.discriminator(true).sum())
            return Objective(terms | dict.fromkeys(_GENERATOR_TERMS, nothing), weight)
        # One backward pass for both players: the generator meets a discriminator whose weights are constants.
        constants = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        fooling = fooling_loss(functional_call(self.discriminator, constants, (made,)))
        judging = discriminator_loss(self.discriminator(true), self.discriminator(made.detach()))
        terms |= {
            "content": self._content(true, made, truth),
            "adversarial": settings.adversarial_weight * (fooling + judging),
            "kl": settings.kl_weight * divergence_from_normal(mean, log_variance),
        }
        return Objective(terms, weight)

    def _content(self, real: Tensor, made: Tensor, truth: Tensor) -> Tensor:
        """sqrt(MMD²) between the real and made-up features of the same pixels, the mean over the classes."""
        both = torch.cat([real, made], dim=1).T[None, :, None]
        chosen = by_class(both, truth[None, None], self.settings.samples).values()
        pairs = [pixels.chunk(2, dim=1) for pixels in chosen]
        kernels = fitted_kernels(real) if self.settings.fit_kernels else KERNELS
        return torch.stack([moment_matching(one, other, kernels) for one, other in pairs]).mean()

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Everything, then everything but the visual encoder."""
        everything = self.visual_groups(head_multiplier, self.classifier)
        return {
            "visual": group(self.classifier, scale=head_multiplier) if self.stage == "finetune" else everything,
            "generator": group(self.context, self.generator, self.discriminator),
        }


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
