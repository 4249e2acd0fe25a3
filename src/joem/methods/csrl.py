"""CSRL-style: a generator over the graph of all classes that keeps the relations of their words (after Li 2020).

There is no public code; docs/concepts/systems.md lists what was chosen here.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import pairwise_relations
from joem.methods.base import head_channels
from joem.methods.generative import (
    GenerativeMethod,
    GenerativeSettings,
    NoisyDropout,
    by_class,
    mean_moment_matching,
    with_noise,
)
from joem.settings import ModelSettings, Weight, settings
from joem.vocabulary import Vocabulary


@settings
class CSRLSettings(GenerativeSettings):
    """CSRL-style.

    Args:
        pair_weight: weight of the pair-wise relation term.
        list_weight: weight of the list-wise relation term.
        tau_s: temperature of the relations between word vectors.
        tau_mu: temperature of the relations between made-up features.
    """

    name: str = "csrl"
    pair_weight: Weight = 1.0
    list_weight: Weight = 1.0
    tau_s: Weight = 5.0
    tau_mu: Weight = 1.0


class CSRL(GenerativeMethod):
    """Point-wise (real against made up), pair-wise and list-wise (words against made up) terms.

    The graph and the relations span seen and unseen classes: a new class means a new generator.
    """

    settings_class = CSRLSettings
    settings: CSRLSettings
    title: ClassVar[str] = "CSRL-style"

    def __init__(self, model: ModelSettings, settings: CSRLSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self.generator = _ClassGraph(vectors.shape[1] + settings.noise, settings.hidden, head_channels(model))

    def make(self, classes: Sequence[int], count: int, labels: Tensor) -> Tensor:
        """Features (count, len(classes), C) of nodes of the class graph."""
        nodes = with_noise(self.vectors.expand(count, -1, -1), self.settings.noise)
        made: Tensor = self.generator(nodes, relations(self.vectors, self.settings.tau_s))
        return made[:, list(classes)]

    def generator_terms(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The moment matching of seen classes, and the relations of the mean features of all classes."""
        settings, count = self.settings, len(self.vocabulary)
        real = by_class(features, labels, settings.samples)
        made = self.make(range(count), settings.samples, labels)
        means = made.mean(dim=0)
        divergence = losses.semantic_consistency(self.vectors, means, settings.tau_s, settings.tau_mu)
        return {
            "point": mean_moment_matching(real, made[:, list(real)], settings.fit_kernels),
            "pair": settings.pair_weight * pairwise_relations(self.vectors, means),
            "list": settings.list_weight * divergence / count,
        }


class _ClassGraph(nn.Module):
    """A node's own input and the mean of its neighbours', then the rest of ZS3Net's generator."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, hidden)
        self.neighbours = nn.Linear(inputs, hidden, bias=False)
        self.dropout = NoisyDropout(0.5)
        self.last = nn.Linear(hidden, outputs)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = F.leaky_relu(self.own(nodes) + self.neighbours(edges @ nodes), 0.2)
        result: Tensor = self.last(self.dropout(hidden))
        return result


def relations(vectors: Tensor, tau: float) -> Tensor:
    """Edges of the class graph (K,K), softmax_j(-tau d(s_i, s_j)) over the other classes j.

    >>> relations(torch.tensor([[0.0], [0.0], [9.0]]), 1.0)[0].round(decimals=2)
    tensor([0., 1., 0.])
    """
    if len(vectors) < 2:
        return torch.zeros(len(vectors), len(vectors), device=vectors.device)
    distances = torch.cdist(vectors, vectors).fill_diagonal_(torch.inf)
    return (-tau * distances).softmax(dim=1)
