"""Pixels of one picture that may be of one class share their features: a thing is named as a whole.

A student that never met a cow takes its head for a dog's and its back for a horse's. What all of its pixels together
look like names it better than what each looks like alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from joem.settings import Positive, Share, Weight, settings


@settings
class RegionSettings:
    """How far the pixels of a thing share their features.

    Args:
        share: how much of a pixel's feature is that of its region; 0 leaves each pixel its own.
        scale: what squared distances are multiplied by to judge which class a pixel may be of; the larger it is, the
            sooner two pixels are of different things.
        gamma: how much nearer classes without masks count where things are told from background.
    """

    share: Share = 0.8
    scale: Positive = 40.0
    gamma: Weight = 0.05


def share_features(
    features: Tensor, prototypes: Tensor, seen: Sequence[int], rest: Sequence[int], settings: RegionSettings
) -> Tensor:
    """Features v of things, moved towards the mean of what may be the same thing; the rest stays as it is.

        v'_i = (1 - s) v_i + s sum_j a_ij v_j / sum_j a_ij,    a_ij = t_j sum_c sqrt(p_ic p_jc)

    where i is a pixel of a thing, t_j is 1 for pixels of things and 0 for others, s the share, and p_i the softmax over
    the seen classes c of -scale * d(v_i, mu_c)^2. Two pixels that are surely of different seen classes share nothing
    (the sum is the Bhattacharyya coefficient). A pixel is of a thing unless its nearest class is one of the rest, those
    without masks being gamma nearer. a is a product of two matrices of as many columns as there are seen classes, so
    no table of pixel pairs is ever made.

    Args:
        features: v, (B,C,H,W).
        prototypes: mu of the known classes, (K,C).
        seen: which of them have masks.
        rest: which of them are no things, such as the background; with none, every pixel is of a thing.
        settings: s, scale and gamma.

    Returns:
        (B,C,H,W).
    """
    with torch.autocast(features.device.type, enabled=False):
        pixels = features.float().flatten(2).transpose(1, 2)  # (B,N,C)
        points = prototypes.float()
        squares = pixels.square().sum(2, keepdim=True) - 2 * pixels @ points.T + points.square().sum(1)
        chances = (-settings.scale * squares[..., list(seen)]).softmax(dim=2).sqrt()
        things = _things(squares.clamp(min=0).sqrt(), seen, rest, settings.gamma).unsqueeze(2)
        counted = (chances * things).transpose(1, 2)  # (B,S,N)
        sums, weights = chances @ (counted @ pixels), chances @ counted.sum(2, keepdim=True)
        # A thing's pixel counts itself, so its weight is 1 or more but for rounding.
        moved = pixels + settings.share * things * (sums / weights.clamp(min=0.5) - pixels)
    return moved.transpose(1, 2).reshape(features.shape).to(features.dtype)


def _things(distances: Tensor, seen: Sequence[int], rest: Sequence[int], gamma: float) -> Tensor:
    """1 where the nearest class is a thing and 0 elsewhere, (B,N), from the distances (B,N,K)."""
    if not rest:
        return torch.ones_like(distances[..., 0])
    count = distances.shape[2]
    bonus = distances.new_tensor([0.0 if index in seen else gamma for index in range(count)])
    nearer = distances - bonus
    others = [index for index in range(count) if index not in rest]
    if not others:
        return torch.zeros_like(distances[..., 0])
    return (nearer[..., others].amin(dim=2) < nearer[..., list(rest)].amin(dim=2)).to(distances.dtype)
