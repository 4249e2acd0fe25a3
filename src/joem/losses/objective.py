"""The losses of the paper, one pure function per equation.

The objective is L = L_ce + L_bar + λ L_sc. Every loss takes `variant`: "paper" follows the equations,
"official" what the authors' code computes where the two differ. Void pixels never count; where no pixel
counts, a loss is an exact 0 that can still be differentiated. Everything is computed in at least float32,
also under autocast.

For a batch on one device, the values and gradients of "official" are those of the authors' code, but for PASCAL
Context, where their L_sc adds 1e-8 to the squared distances between prototypes before the root and this one does not.

Shapes: B batch, C channels, H W feature size, Ho Wo image size, K classes, D word-vector size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from joem.errors import BadUsage, choose
from joem.losses.labels import resized
from joem.vocabulary import VOID, Classes, class_mask

VARIANTS = ("paper", "official")

_IGNORED = -100  # cross_entropy's own label for pixels that do not count; no class can have it
_MAPS, _ROWS = ("batch", "channels", "height", "width"), ("classes", "size of a vector")


def seen_cross_entropy(logits: Tensor, labels: Tensor, seen: Classes, *, variant: str = "paper") -> Tensor:
    """L_ce, the cross entropy over the seen classes S.

        L_ce = - 1 / Σ_{c∈S} |R_c|  Σ_{c∈S} Σ_{p∈R_c}  log( exp(w_c·v(p)) / Σ_{j∈S} exp(w_j·v(p)) )

    `paper`: labels are resized to the logits (nearest) and the softmax runs over S.
    `official`: logits are resized to the labels (bilinear, corners aligned) and the softmax runs over all K classes,
    so that the unseen ones are negatives. Either way only pixels labelled with a class of S count.

    Args:
        logits: w·v for every class, (B,K,H,W).
        labels: (B,Ho,Wo) of any size.
        seen: the classes of S, as indices or as K booleans.
        variant: "paper" or "official".

    >>> labels = torch.tensor([[[0, 1], [255, 0]]])
    >>> seen_cross_entropy(torch.zeros(1, 3, 2, 2), labels, seen=[0, 1])  # log 2, as S has two classes
    tensor(0.6931)
    """
    over_seen, targets = seen_targets(logits, labels, seen, variant)
    return F.cross_entropy(over_seen, targets, reduction="sum") / (targets >= 0).sum().clamp(min=1)


def seen_targets(logits: Tensor, labels: Tensor, seen: Classes, variant: str = "paper") -> tuple[Tensor, Tensor]:
    """The logits that `seen_cross_entropy` compares, and the classes they should say; -100 where none counts."""
    choose("variant", variant, VARIANTS)
    _check_dimensions("logits", logits, _MAPS)
    count = logits.shape[1]
    _check_labels(labels, len(logits))
    is_seen = class_mask(seen, count).to(logits.device)
    if not is_seen.any():
        raise BadUsage("seen is empty: cross entropy needs at least one class with masks.")
    logits = _full_precision(logits)
    if variant == "paper":
        labels = resized(labels, logits.shape[2:])
        logits = logits[:, is_seen]
        position = is_seen.cumsum(0) - 1
    else:
        logits = F.interpolate(logits, size=labels.shape[1:], mode="bilinear", align_corners=True)
        position = torch.arange(count, device=logits.device)
    position = F.pad(position.masked_fill(~is_seen, _IGNORED), (0, 1), value=_IGNORED)
    return logits, position[_void_last(labels, count)]


def center_regression(
    features: Tensor, labels: Tensor, vectors: Tensor, encoder: nn.Module, *, variant: str = "paper"
) -> Tensor:
    """L_center, the mean distance of a pixel's feature to the prototype of its class.

        L_center = 1 / Σ_{c∈S} |R_c|  Σ_{c∈S} Σ_{p∈R_c}  d( v(p), μ(p) ),   μ(p) = μ_c for p ∈ R_c

    It is `boundary_aware_regression` with r = 1; see there for the arguments.

    >>> features = torch.tensor([3.0, 4.0]).reshape(1, 2, 1, 1)
    >>> center_regression(features, torch.zeros(1, 1, 1).long(), torch.zeros(1, 2), torch.nn.Identity())
    tensor(5.)
    """
    return boundary_aware_regression(features, labels, vectors, encoder, r=1, variant=variant)


def boundary_aware_regression(
    features: Tensor,
    labels: Tensor,
    vectors: Tensor,
    encoder: nn.Module,
    r: int = 4,
    *,
    variant: str = "paper",
) -> Tensor:
    """L_bar, the mean distance of a pixel's feature to its prototype, interpolated across boundaries.

        L_bar = 1 / Σ_{c∈S} |R_c|  Σ_{c∈S} Σ_{p∈R_c}  d( v(p), μ~(p) )

    where μ~ = encoder(s~), and s~ is the map of word vectors stacked by the labels at 1/r of the size and
    resized back to H x W (bilinear). Void pixels stack the zero vector.

    `paper`: labels go to H x W and from there to 1/r, both by nearest, and d is the Euclidean distance.
    `official`: labels go to 1/r straight from the image size, and d is the squared error averaged over C.

    With a linear encoder (`nn.Linear`) the D-channel map s~ is never built: bilinear weights sum to one, so
    μ~(p) = Σ_k w_k(p) μ_k with w the resized one-hot map of the labels, and void one more class, encoder(0).

    Args:
        features: v, (B,C,H,W).
        labels: (B,Ho,Wo) of any size.
        vectors: the word vectors of all classes in index order, (K,D).
        encoder: the semantic encoder, a module from (...,D) to (...,C).
        r: how many times smaller the labels are made; 1 gives L_center.
        variant: "paper" or "official".

    >>> features = torch.zeros(1, 2, 4, 4)
    >>> labels = torch.tensor([[[0, 1], [0, 1]]])
    >>> words = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    >>> boundary_aware_regression(features, labels, words, torch.nn.Identity(), r=2)  # 0, 1/4, 3/4, 1 times 5
    tensor(2.5000)
    """
    choose("variant", variant, VARIANTS)
    _check_dimensions("features", features, _MAPS)
    _check_dimensions("vectors", vectors, _ROWS)
    _check_labels(labels, len(features))
    if r < 1:
        raise BadUsage(f"r is how many times smaller the labels are made, at least 1, got {r}.")
    size = features.shape[2:]
    fine = resized(labels, size)
    labelled = _void_last(fine, len(vectors)) < len(vectors)
    coarse = resized(fine if variant == "paper" else labels, [max(1, side // r) for side in size])
    coarse = _void_last(coarse, len(vectors))
    words = torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])])
    # A subclass of Linear may do anything in its forward, so only Linear itself is taken as linear.
    distances_of = _distances_linear if type(encoder) is nn.Linear else _distances
    with torch.autocast(features.device.type, enabled=False):
        distances = distances_of(_full_precision(features), coarse, words, encoder)
    if variant == "official":
        distances = distances.square() / features.shape[1]
    return distances.masked_fill(~labelled, 0).sum() / labelled.sum().clamp(min=1)


def semantic_consistency(
    vectors: Tensor,
    prototypes: Tensor,
    tau_s: float = 5.0,
    tau_mu: float = 1.0,
    *,
    variant: str = "paper",
    background: int | None = None,
    per_pair: bool = False,
) -> Tensor:
    """L_sc, how far the relations between prototypes are from those between word vectors.

        r_ij = softmax_j( -τ_s d(s_i, s_j) ),   r^_ij = softmax_j( -τ_μ d(μ_i, μ_j) ),   i, j ∈ S
        L_sc = - Σ_i Σ_j  r_ij log( r^_ij / r_ij )

    `paper`: the sums as they stand, i = j included. `official`: without the background, and divided by the
    number of classes.

    Args:
        vectors: the word vectors s of the seen classes, (K,D).
        prototypes: the prototypes μ of the same classes, (K,C).
        tau_s: temperature of the word vectors' relations.
        tau_mu: temperature of the prototypes' relations.
        variant: "paper" or "official".
        background: the row that `official` leaves out, if any.
        per_pair: `official` divides by K² instead of K, as the authors do on PASCAL Context.

    >>> words = torch.tensor([[0.0], [1.0], [3.0]])
    >>> semantic_consistency(words, 5 * words)  # the same relations
    tensor(0.)
    """
    choose("variant", variant, VARIANTS)
    _check_dimensions("vectors", vectors, _ROWS)
    _check_dimensions("prototypes", prototypes, _ROWS)
    count = len(vectors)
    if len(prototypes) != count:
        raise BadUsage(f"vectors and prototypes must be of the same classes, got {count} and {len(prototypes)} rows.")
    if background is not None and not 0 <= background < count:
        raise BadUsage(f"background must be a row of vectors, 0 to {count - 1}, or None, got {background}.")
    if variant == "official" and background is not None:
        kept = torch.arange(count, device=vectors.device) != background
        vectors, prototypes = vectors[kept], prototypes[kept]
    divergence = F.kl_div(
        _log_relations(prototypes, tau_mu), _log_relations(vectors, tau_s), reduction="sum", log_target=True
    )
    if variant == "paper":
        return divergence
    return divergence / max(1, len(vectors) ** (2 if per_pair else 1))


def relations(points: Tensor, tau: float) -> Tensor:
    """r_ij = softmax_j( -τ d(x_i, x_j) ), how near each point is to every other: (K,D) -> (K,K).

    >>> relations(torch.tensor([[0.0], [0.0]]), tau=5.0)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    return _log_relations(points, tau).exp()


class _DistancesToMixtures(torch.autograd.Function):
    """|v(p) - Σ_k w_k(p) μ_k| for every pixel, (B,N), from v (B,C,N), μ (K,C) and w (B,K,N).

    Composed by autograd, the same steps take 1.4 to 4 times as long and keep C-channel maps until backward.
    Here the differences are computed again instead, in place and in the memory layout of v.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
        distances = _differences(features, prototypes, weights).square_().sum(dim=1).sqrt()
        ctx.save_for_backward(features, prototypes, weights, distances)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        features, prototypes, weights, distances = ctx.saved_tensors
        # A distance has no gradient at zero: take 0, not NaN.
        scale = torch.where(distances > 0, gradient / distances, 0)
        to_features = _differences(features, prototypes, weights).mul_(scale[:, None])
        to_prototypes = torch.bmm(weights, to_features.transpose(1, 2)).sum(dim=0).neg()
        return to_features, to_prototypes, None


def _differences(features: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    # On a clone it keeps the layout of v; baddbmm turns channels last into contiguous, ten times slower.
    return features.clone().baddbmm_(prototypes.T.expand(len(features), -1, -1), weights, alpha=-1)


def _distances_linear(features: Tensor, coarse: Tensor, words: Tensor, encoder: nn.Module) -> Tensor:
    """d(v, μ~) for every pixel, (B,H,W), by mixing the prototypes of the classes that are there."""
    size = features.shape[2:]
    present = torch.unique(coarse)
    one_hot = (coarse[:, None] == present[:, None, None]).to(features.dtype)
    weights = F.interpolate(one_hot, size=size, mode="bilinear", align_corners=False)
    prototypes = _encode(encoder, words[present], features)
    distances: Tensor = _DistancesToMixtures.apply(features.flatten(2), prototypes, weights.flatten(2))
    return distances.reshape(len(features), *size)


def _distances(features: Tensor, coarse: Tensor, words: Tensor, encoder: nn.Module) -> Tensor:
    """d(v, μ~) for every pixel, (B,H,W), by the definition, through a D-channel map."""
    stacked = words[coarse].movedim(-1, 1)
    interpolated = F.interpolate(stacked, size=features.shape[2:], mode="bilinear", align_corners=False)
    virtual_prototypes = _encode(encoder, interpolated.movedim(1, -1), features)
    distances: Tensor = torch.linalg.vector_norm(features - virtual_prototypes.movedim(-1, 1), dim=1)
    return distances


def _encode(encoder: nn.Module, words: Tensor, features: Tensor) -> Tensor:
    prototypes: Tensor = encoder(words)
    if prototypes.shape[-1] != features.shape[1]:
        raise BadUsage(
            f"The semantic encoder gives {prototypes.shape[-1]} channels but the features have "
            f"{features.shape[1]}: both encoders must share one embedding space."
        )
    return prototypes.to(features.dtype)


def _log_relations(points: Tensor, tau: float) -> Tensor:
    points = _full_precision(points)
    # Through a matrix product, near points would lose most digits of their distance.
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return F.log_softmax(-tau * distances, dim=1)


def _void_last(labels: Tensor, count: int) -> Tensor:
    """Labels 0 to K-1 as they are and void as K, so that they can index K+1 rows."""
    void = labels == VOID
    wrong = labels[((labels < 0) | (labels >= count)) & ~void]
    if len(wrong):
        raise BadUsage(
            f"labels hold {int(wrong[0])}, expected 0 to {count - 1} for {count} classes or {VOID} for void: "
            "check that the masks belong to these class names."
        )
    return labels.masked_fill(void, count)


def _full_precision(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _check_dimensions(name: str, values: Tensor, meaning: tuple[str, ...]) -> None:
    if values.ndim != len(meaning):
        wanted = f"{len(meaning)} dimensions ({', '.join(meaning)})"
        raise BadUsage(f"{name} must have {wanted}, got {tuple(values.shape)}.")


def _check_labels(labels: Tensor, batch: int) -> None:
    if labels.ndim != 3 or len(labels) != batch:
        raise BadUsage(f"labels must have 3 dimensions (batch of {batch}, height, width), got {tuple(labels.shape)}.")
    if labels.dtype != torch.int64:
        raise BadUsage(f"labels must be int64 tensors, got {labels.dtype}: use labels.long().")
