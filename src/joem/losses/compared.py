"""The losses of the systems that JoEm is compared with, one pure function per term.

Shapes: B batch, C channels, H W feature size, K classes, D word-vector size, N M numbers of samples. Void pixels never
count; where no pixel counts, a loss is an exact 0 that can still be differentiated.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.losses.labels import resized
from joem.losses.objective import seen_targets
from joem.vocabulary import VOID, Classes

KERNELS = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
"""The widths s of ZS3Net's kernels exp(-|x - y|² / (2 s))."""

CAGNET_KERNELS = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""Those of CaGNet, whose features lie between 0 and 1."""


def cosine_regression(features: Tensor, labels: Tensor, vectors: Tensor) -> Tensor:
    """DeViSE's regression as adapted by Bucher 2019, the mean over labelled pixels of 1 - cos(v(p), s(p)).

    Args:
        features: projected features, (B,D,H,W).
        labels: (B,Ho,Wo) of any size.
        vectors: word vectors (K,D).

    >>> features = torch.tensor([1.0, 1.0]).reshape(1, 2, 1, 1)
    >>> cosine_regression(features, torch.zeros(1, 1, 1).long(), torch.tensor([[2.0, 0.0]]))  # 1 - cos 45 degrees
    tensor(0.2929)
    """
    small = resized(labels, features.shape[2:])
    labelled = small != VOID
    cosines = F.cosine_similarity(features.movedim(1, -1)[labelled], vectors[small[labelled]], dim=1)
    return (1 - cosines).sum() / labelled.sum().clamp(min=1)


def attenuated_cross_entropy(logits: Tensor, labels: Tensor, seen: Classes, log_variance: Tensor) -> Tensor:
    """Cross entropy over the seen classes, attenuated by a predicted variance (Hu 2020, after Kendall and Gal 2017).

        L = 1/N Σ_p  exp(-u(p)) CE(p) + u(p) / 2,   u = log σ²

    Noisy pixels can lower their loss by a larger variance, at the price of the second term.

    Args:
        logits: (B,K,H,W).
        labels: (B,Ho,Wo) of any size.
        seen: the classes of S, as indices or as K booleans.
        log_variance: u, (B,H,W).

    >>> zero = torch.zeros(1, 1, 1)
    >>> attenuated_cross_entropy(torch.zeros(1, 2, 1, 1), zero.long(), [0, 1], zero)  # log 2, as without variance
    tensor(0.6931)
    """
    over_seen, targets = seen_targets(logits, labels, seen)
    pixels, counted = F.cross_entropy(over_seen, targets, reduction="none"), targets >= 0
    attenuated = torch.where(counted, pixels * (-log_variance).exp() + log_variance / 2, 0)
    return attenuated.sum() / counted.sum().clamp(min=1)


def open_set_cross_entropy(logits: Tensor, unknown: Tensor, labels: Tensor, seen: Classes) -> Tensor:
    """Cross entropy over the seen classes and "not seen", the mean over labelled pixels.

    Args:
        logits: (B,K,H,W).
        unknown: the logit of "not seen", (B,H,W).
        labels: (B,Ho,Wo) of any size.
        seen: the classes of S, as indices or as K booleans.

    >>> open_set_cross_entropy(torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1).long(), [0, 1])
    tensor(1.0986)
    """
    over_seen, targets = seen_targets(logits, labels, seen)
    every = torch.cat([over_seen, unknown[:, None].to(over_seen.dtype)], dim=1)
    counted = targets >= 0
    pixels = F.cross_entropy(every, targets.clamp(min=0), reduction="none")
    return torch.where(counted, pixels, 0).sum() / counted.sum().clamp(min=1)


def rejection_loss(logits: Tensor, unknown: Tensor, labels: Tensor, seen: Classes) -> Tensor:
    """The same where a pixel's own class is not to be had: "not seen" must win over the other seen classes.

        L = -1/N Σ_p  log( e^{u(p)} / (e^{u(p)} + Σ_{c∈S, c≠y(p)} e^{l_c(p)}) )

    See `open_set_cross_entropy` for the arguments.

    >>> rejection_loss(torch.zeros(1, 3, 1, 1), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1).long(), [0, 1, 2])  # log 3
    tensor(1.0986)
    """
    over_seen, targets = seen_targets(logits, labels, seen)
    counted = targets >= 0
    others = over_seen.scatter(1, targets.clamp(min=0)[:, None], -torch.inf)
    every = torch.cat([others, unknown[:, None].to(over_seen.dtype)], dim=1)
    pixels = every.logsumexp(dim=1) - every[:, -1]
    return torch.where(counted, pixels, 0).sum() / counted.sum().clamp(min=1)


def squared_mmd(x: Tensor, y: Tensor, kernels: Sequence[float] = KERNELS) -> Tensor:
    """The squared maximum mean discrepancy between two samples, the sum over several Gaussian kernels.

        MMD² = 1/N² Σ_ij k(x_i, x_j) - 2/(NM) Σ_ij k(x_i, y_j) + 1/M² Σ_ij k(y_i, y_j)
        k(a, b) = Σ_s exp(-|a - b|² / (2 s))

    Args:
        x: (N,C).
        y: (M,C).
        kernels: the widths s.

    >>> squared_mmd(torch.zeros(1, 1), torch.tensor([[2.0]]), kernels=[2.0])  # 2 - 2 / e
    tensor(1.2642)
    """
    both = torch.cat([x, y]).to(torch.promote_types(x.dtype, torch.float32))
    signs = torch.cat([both.new_full((len(x),), 1 / len(x)), both.new_full((len(y),), -1 / len(y))])
    products = both @ both.T
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None] - 2 * products).clamp(min=0)
    values = torch.stack([(-distances / (2 * width)).exp() for width in kernels]).sum(dim=0)
    return signs @ values @ signs


def moment_matching(real: Tensor, made: Tensor, kernels: Sequence[float] = KERNELS) -> Tensor:
    """The loss of a generative moment matching network, sqrt(MMD²), with a gradient that stays finite at 0.

    >>> moment_matching(torch.zeros(1, 1), torch.tensor([[2.0]]), kernels=[2.0])
    tensor(1.1244)
    """
    return squared_mmd(real, made, kernels).clamp(min=1e-8).sqrt()


def fitted_kernels(features: Tensor) -> tuple[float, ...]:
    """ZS3Net's kernel widths times m / 20, m the mean squared distance between the features (N,C).

    The widths then go from a tenth of m to four times m. Kernels much narrower than the distances between features are
    zero everywhere, and a generator learns nothing from them.

    >>> fitted_kernels(torch.tensor([[0.0], [20.0]]))  # m = (0 + 400 + 400 + 0) / 4
    (20.0, 50.0, 100.0, 200.0, 400.0, 800.0)
    """
    mean_square = 2 * float(features.detach().float().var(dim=0, correction=0).sum())
    return tuple(width * mean_square / 20 for width in KERNELS) if mean_square > 0 else KERNELS


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Cross entropy of samples (N,K) with a weight per class, Σ_i w(y_i) CE_i / Σ_i w(y_i).

    >>> weighted_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), torch.ones(4))  # log 4
    tensor(1.3863)
    """
    total = F.cross_entropy(logits, labels, weight=weights, reduction="sum")
    return total / weights[labels].sum().clamp(min=1e-12)


def pairwise_relations(vectors: Tensor, means: Tensor) -> Tensor:
    """CSRL-style pair-wise term, how far the similarities of made-up classes are from those of their words.

        L = 2 / (K (K - 1))  Σ_{i<j} ( cos(s_i - s, s_j - s) - cos(m_i - m, m_j - m) )²

    with s and m the means over the K classes: without them, features after a ReLU would all be similar.

    Args:
        vectors: word vectors (K,D).
        means: mean made-up features of the same classes (K,C).

    >>> words = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> pairwise_relations(words, 2 * words + 1) < 1e-12  # the same similarities
    tensor(True)
    """
    similarities = []
    for rows in (vectors, means):
        units = F.normalize(rows - rows.mean(dim=0), dim=1)
        similarities.append(units @ units.T)
    above = torch.ones_like(similarities[0]).triu(diagonal=1).bool()
    differences = (similarities[0] - similarities[1])[above]
    return differences.square().sum() / above.sum().clamp(min=1)


def discriminator_loss(real: Tensor, made: Tensor) -> Tensor:
    """Least-squares loss of a discriminator's scores, mean (1 - D(x))² + mean D(x~)².

    >>> discriminator_loss(torch.tensor([0.5]), torch.tensor([0.5]))
    tensor(0.5000)
    """
    return (1 - real).square().mean() + made.square().mean()


def fooling_loss(made: Tensor) -> Tensor:
    """Least-squares loss of a generator, mean (1 - D(x~))².

    >>> fooling_loss(torch.tensor([0.0, 1.0]))
    tensor(0.5000)
    """
    return (1 - made).square().mean()


def modulated(features: Tensor, code: Tensor) -> Tensor:
    """CaGNet's features, sigmoid(h + h . sigmoid(z)) with h and z of one shape.

    >>> modulated(torch.tensor([1.0]), torch.tensor([0.0]))  # sigmoid(1.5)
    tensor([0.8176])
    """
    return (features + features * code.sigmoid()).sigmoid()


def divergence_from_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL( N(mean, σ²) || N(0, 1) ) = (mean² + σ² - log σ² - 1) / 2, averaged over all elements.

    >>> divergence_from_normal(torch.tensor([1.0]), torch.tensor([0.0]))
    tensor(0.5000)
    """
    return (mean.square() + log_variance.exp() - log_variance - 1).mean() / 2


def squared_distance_to_centres(features: Tensor, labels: Tensor, centres: Tensor, classes: Tensor) -> Tensor:
    """L_centre of mixed prototypes: |v - m_c|^2 over the pixels of some classes, per labelled pixel of any.

    Args:
        features: v, (B,C,H,W).
        labels: (B,Ho,Wo) of any size.
        centres: m, (K,C).
        classes: which of the K classes are drawn to their centres.

    >>> features, labels = torch.zeros(1, 2, 1, 2), torch.tensor([[[0, 1]]])
    >>> squared_distance_to_centres(features, labels, torch.tensor([[3.0, 4.0], [1.0, 1.0]]), classes=torch.tensor([0]))
    tensor(12.5000)
    """
    labels = resized(labels, features.shape[-2:])
    drawn = torch.isin(labels, classes)
    apart = features.movedim(1, -1)[drawn].to(centres.dtype) - centres[labels[drawn]]
    return apart.square().sum() / (labels != VOID).sum().clamp(min=1)
