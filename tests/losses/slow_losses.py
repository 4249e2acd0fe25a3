"""The paper's losses by loops over pixels and classes, in float64, straight from the equations; and random problems."""

import math

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import nn

from joem.losses import boundary_aware_regression
from joem.vocabulary import VOID

a_few = settings(deadline=None, max_examples=40)
batches = st.integers(1, 3)
sides = st.integers(1, 7)
seeds = st.integers(0, 10_000)


def nearest(image, height, width):
    """torch's mode="nearest": the source of i is floor(i * in / out), with the ratio in float32."""

    def source(i, size_in, size_out):
        return min(math.floor(np.float32(i) * np.float32(size_in / size_out)), size_in - 1)

    rows, columns = len(image), len(image[0])
    return [[image[source(i, rows, height)][source(j, columns, width)] for j in range(width)] for i in range(height)]


def bilinear(image, height, width, corners=False):
    """Corners aligned, or pixel centres (align_corners=False), borders repeated; the values may be vectors."""

    def neighbours(i, size_in, size_out):
        if corners:
            x = i * (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
        else:
            x = max(0.0, (i + 0.5) * size_in / size_out - 0.5)
        low = min(math.floor(x), size_in - 1)
        return low, min(low + 1, size_in - 1), x - low

    result = []
    for i in range(height):
        top, bottom, down = neighbours(i, len(image), height)
        row = []
        for j in range(width):
            left, right, across = neighbours(j, len(image[0]), width)
            upper = (1 - across) * image[top][left] + across * image[top][right]
            lower = (1 - across) * image[bottom][left] + across * image[bottom][right]
            row.append((1 - down) * upper + down * lower)
        result.append(row)
    return result


def reference_cross_entropy(logits, labels, seen, variant):
    total, count = 0.0, 0
    for image, labelled in zip(logits.numpy().transpose(0, 2, 3, 1), labels.tolist(), strict=True):
        if variant == "paper":
            classes, scores, mask = seen, image, nearest(labelled, len(image), len(image[0]))
        else:
            classes, mask = range(logits.shape[1]), labelled
            scores = bilinear(image, len(mask), len(mask[0]), corners=True)
        for i, row in enumerate(mask):
            for j, label in enumerate(row):
                if label in seen:
                    total -= scores[i][j][label] - math.log(sum(math.exp(scores[i][j][c]) for c in classes))
                    count += 1
    return total / max(count, 1)


def reference_regression(features, labels, vectors, encode, r, variant):
    channels, height, width = features.shape[1:]
    small = max(1, height // r), max(1, width // r)
    words = dict(enumerate(vectors.numpy())) | {VOID: np.zeros(vectors.shape[1])}
    total, count = 0.0, 0
    for v, mask in zip(features.numpy(), labels.tolist(), strict=True):
        fine = nearest(mask, height, width)
        coarse = nearest(fine if variant == "paper" else mask, *small)
        stacked = bilinear([[words[label] for label in row] for row in coarse], height, width)
        for i in range(height):
            for j in range(width):
                if fine[i][j] == VOID:
                    continue
                squared = sum((v[c, i, j] - encode(stacked[i][j])[c]) ** 2 for c in range(channels))
                total += math.sqrt(squared) if variant == "paper" else squared / channels
                count += 1
    return total / max(count, 1)


def reference_consistency(vectors, prototypes, tau_s, tau_mu):
    def relations(points, tau):
        near = [[math.exp(-tau * math.dist(a, b)) for b in points] for a in points]
        return [[value / sum(row) for value in row] for row in near]

    r, r_hat = relations(vectors.tolist(), tau_s), relations(prototypes.tolist(), tau_mu)
    n = len(r)
    return -sum(r[i][j] * math.log(r_hat[i][j] / r[i][j]) for i in range(n) for j in range(n))


def random_labels(generator, batch, size, count, void=0.25):
    labels = torch.randint(0, count, (batch, *size), generator=generator)
    return labels.masked_fill(torch.rand(labels.shape, generator=generator) < void, VOID)


class Problem:
    """Random features, labels, word vectors and a linear encoder, in float64."""

    def __init__(self, seed=0, batch=2, size=(6, 5), image=(9, 8), classes=4, words=5, channels=3, void=0.25):
        generator = torch.Generator().manual_seed(seed)
        self.features = torch.randn(batch, channels, *size, generator=generator, dtype=torch.float64)
        self.labels = random_labels(generator, batch, image, classes, void)
        self.vectors = torch.randn(classes, words, generator=generator, dtype=torch.float64)
        self.encoder = nn.Linear(words, channels, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.encoder.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def encode(self, word):
        weight, bias = self.encoder.weight.detach().numpy(), self.encoder.bias.detach().numpy()
        return weight @ word + bias

    def loss(self, encoder=None, **options):
        return boundary_aware_regression(self.features, self.labels, self.vectors, encoder or self.encoder, **options)

    def gradients(self, encoder=None, **options):
        """Of the features, the vectors, the weight and the bias."""
        inputs = (self.features, self.vectors, *self.encoder.parameters())
        for tensor in inputs:
            tensor.requires_grad_()
        return torch.autograd.grad(self.loss(encoder, **options), inputs)
