"""ZS3Net: a moment matching generator of features, and a classifier on real and made-up ones (Bucher 2019)."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from joem.methods.base import Objective, head_channels
from joem.methods.generative import GenerativeMethod, GenerativeSettings, layers, with_noise
from joem.methods.self_training import pseudo_labels, surest
from joem.settings import MethodSettings, ModelSettings, Share, settings
from joem.vocabulary import VOID, Vocabulary


@settings
class ZS3NetSettings(GenerativeSettings):
    """ZS3Net.

    Args:
        self_training: the share of the void pixels taken for an unseen class, the most confident ones, that get a
            pseudo-label in one more stage; 0 is off. With data.transductive, pictures of unseen classes are void.
        graph_context: generate from the graph of which classes touch in a picture.
    """

    name: str = "zs3net"
    self_training: Share = 0.0
    graph_context: bool = False


class ZS3Net(GenerativeMethod):
    """Options: the graph of touching classes as the generator's context, and self-training on void pixels."""

    settings_class: ClassVar[type[MethodSettings]] = ZS3NetSettings
    settings: ZS3NetSettings
    title: ClassVar[str] = "ZS3Net"

    def __init__(self, model: ModelSettings, settings: ZS3NetSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        sizes = vectors.shape[1] + settings.noise, settings.hidden, head_channels(model)
        self.generator: nn.Module
        if settings.graph_context:
            self.generator = _GraphConvolutions(*sizes)
        else:
            self.generator = layers(sizes)
        if settings.self_training > 0:
            self.stages = (*self.stages, "self_train")
            self.new_class_stages = (*self.new_class_stages, "self_train")
        # The graph needs neighbours, self-training the void pixels.
        self.needs_maps = self.needs_maps or settings.graph_context or settings.self_training > 0

    def make(self, classes: Sequence[int], count: int, labels: Tensor) -> Tensor:
        """Features (count, len(classes), C) from words and noise."""
        if self.settings.graph_context:
            # Where nothing is labelled, any class, so that the generator has a gradient, of zeros, all the same.
            parts = [self._make_in_context(label, count, labels) for label in classes or (0,)]
            return torch.stack(parts, dim=1)[:, : len(classes)]
        words = self.vectors[list(classes)].expand(count, -1, -1)
        made: Tensor = self.generator(with_noise(words, self.settings.noise))
        return made

    def _make_in_context(self, label: int, count: int, labels: Tensor) -> Tensor:
        """Features (count, C) of a class as a node of a picture's graph; an unseen one takes a random node's place."""
        showing = (labels == label).flatten(1).any(dim=1).nonzero().flatten()
        places = showing if len(showing) else (labels != VOID).flatten(1).any(dim=1).nonzero().flatten()
        if not len(places):  # nothing is labelled anywhere: a node on its own
            nodes, adjacency = torch.tensor([label], device=labels.device), torch.ones(1, 1, device=labels.device)
        else:
            nodes, adjacency = touching(labels[places[torch.randint(len(places), ())]])
        at = (nodes == label).nonzero().flatten()
        place = int(at[0]) if len(at) else int(torch.randint(len(nodes), ()))
        nodes[place] = label
        words = self.vectors[nodes].expand(count, -1, -1)
        made: Tensor = self.generator(with_noise(words, self.settings.noise), adjacency)
        return made[:, place]

    def classify(self, features: Tensor, labels: Tensor) -> Objective:
        """As every generative method; in self-training, confident void pixels count with their predicted label."""
        if self.stage == "self_train":
            labels = self._pseudo_labels(features, labels)
        return super().classify(features, labels)

    @torch.no_grad()
    def _pseudo_labels(self, features: Tensor, labels: Tensor) -> Tensor:
        """Labels (B,H,W) where the share of void pixels most confidently unseen have their predicted class."""
        confidence, predicted = self.classifier(features).softmax(dim=1).max(dim=1)
        unseen = torch.isin(predicted, torch.tensor(self.vocabulary.unseen_indices, device=labels.device))
        candidates = unseen & (labels == VOID)
        return pseudo_labels(labels, predicted, surest(confidence, candidates, self.settings.self_training))


class _GraphConvolutions(nn.Module):
    """Two graph convolutions around the generator's activation and dropout: x (...,N,in), adjacency (N,N)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        both = layers([inputs, hidden, outputs])
        self.first, self.last = both[:-1], both[-1]

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        result: Tensor = self.last(adjacency @ self.first(adjacency @ nodes))
        return result


def touching(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The classes of one picture (H,W) and which of them touch: (N,) labels and (N,N) rows that sum to one.

    Every class touches itself; void touches nothing.

    >>> touching(torch.tensor([[0, 0, 2], [0, 0, 5]]))
    (tensor([0, 2, 5]), tensor([[0.3333, 0.3333, 0.3333],
            [0.3333, 0.3333, 0.3333],
            [0.3333, 0.3333, 0.3333]]))
    """
    nodes = torch.unique(labels[labels != VOID])
    adjacency = torch.eye(len(nodes), device=labels.device)
    for one, other in ((labels[1:], labels[:-1]), (labels[:, 1:], labels[:, :-1])):
        both = (one != VOID) & (other != VOID)
        a, b = torch.searchsorted(nodes, one[both]), torch.searchsorted(nodes, other[both])
        adjacency[a, b] = adjacency[b, a] = 1.0
    return nodes, adjacency / adjacency.sum(dim=1, keepdim=True)
