"""What trained classes look like to a model, so that examples are compared with what is like them."""

import torch
from torch import Tensor

from joem import data, losses
from joem.engine.evaluation import encoded
from joem.engine.problem import Problem
from joem.examples import TrainedFeatures
from joem.model import Model
from joem.vocabulary import VOID

_PICTURES, _PIXELS = 300, 100
_DIRECTIONS = 128
_SHRINKAGE = 0.5
"""How much of every direction's variance is the mean one; chosen on folds, see docs/log/examples.md."""


def trained_features(model: Model, problem: Problem, seed: int = 0) -> TrainedFeatures | None:
    """Mean and spread of the features of seen classes, from some pixels of training pictures; None if there are none.

    Args:
        model: what encodes the pictures.
        problem: its training pictures, without unseen classes as in training, and its classes.
        seed: of the pictures and pixels.
    """
    pictures = data.seen_only(problem.train, problem.vocabulary, problem.rule)
    generator = torch.Generator().manual_seed(seed)
    indices = sorted(torch.randperm(len(pictures), generator=generator)[:_PICTURES].tolist())
    features, labels = [], []
    for _, found, truth in encoded(model, pictures, indices, "trained features"):
        data.guard(truth, problem.vocabulary)
        small = losses.resized(truth[None], found.shape[-2:]).flatten()
        labelled = (small != VOID).nonzero().flatten()
        if len(labelled):
            drawn = labelled[torch.randint(len(labelled), (_PIXELS,), generator=generator)]
            features.append(found.cpu().flatten(2)[0, :, drawn].T)
            labels.append(small[drawn])
    return spread(torch.cat(features), torch.cat(labels)) if features else None


def spread(features: Tensor, labels: Tensor) -> TrainedFeatures:
    """The centres of classes, and the directions in which pixels (N,C) spread around them most."""
    counts = torch.bincount(labels)
    index = (counts > 0).cumsum(0)[labels] - 1  # among the classes that there are
    counts = counts[counts > 0].unsqueeze(1)
    centres = torch.zeros(len(counts), features.shape[1]).index_add_(0, index, features) / counts
    within = (features - centres[index]).double()
    variances, axes = torch.linalg.eigh(within.T @ within / len(within))
    kept = min(_DIRECTIONS, len(variances) - 1)
    most, others = variances.flip(0)[:kept], variances.flip(0)[kept:].mean()
    floor = _SHRINKAGE * variances.mean() + torch.finfo(torch.float32).tiny
    scales = ((1 - _SHRINKAGE) * torch.cat([most, others[None]]).clamp(min=0) + floor).rsqrt()
    return TrainedFeatures(centres, axes.flip(1)[:, :kept].T.float().contiguous(), scales.float())
