"""What training pictures look like to a model: to tell what is new, and for examples to be compared with."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from joem import data, losses
from joem.engine.evaluation import encoded, read
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
    pictures, indices, generator = _drawn(problem, seed)
    encodings = encoded(model, pictures, indices, "trained features")
    found = list(_labelled(((maps, truth) for _, maps, truth in encodings), problem, generator))
    return spread(*(torch.cat(each) for each in zip(*found, strict=True))) if found else None


@torch.no_grad()
def learn_looks(model: Model, problem: Problem, seed: int = 0) -> None:
    """Show a trained method some pixels of its training pictures, if it wants to know them.

    Args:
        model: what was trained.
        problem: its training pictures, without unseen classes as in training, and its classes.
        seed: of the pictures and pixels.
    """
    if not model.method.wants_looks:
        return
    pictures, indices, generator = _drawn(problem, seed)
    inputs = read(model, pictures, indices, "looks of training pictures")
    looks = ((model.method.looks(each), truth) for _, each, truth in inputs)
    found = [pixels for pixels, _ in _labelled(looks, problem, generator)]
    if len(found) > 1:
        model.method.learn_looks(found)


def _drawn(problem: Problem, seed: int) -> tuple[data.Dataset, list[int], torch.Generator]:
    """The training pictures as training sees them, which of them to look at, and what draws their pixels."""
    pictures = data.seen_only(problem.train, problem.vocabulary, problem.rule)
    generator = torch.Generator().manual_seed(seed)
    return pictures, sorted(torch.randperm(len(pictures), generator=generator)[:_PICTURES].tolist()), generator


def _labelled(
    maps: Iterable[tuple[Tensor, Tensor]], problem: Problem, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Some labelled pixels of maps (1,C,h,w), (P,C), and their labels (P,); nothing of a picture that has none."""
    for found, truth in maps:
        data.guard(truth, problem.vocabulary)
        small = losses.resized(truth[None], found.shape[-2:]).flatten()
        labelled = (small != VOID).nonzero().flatten()
        if len(labelled):
            drawn = labelled[torch.randint(len(labelled), (_PIXELS,), generator=generator)]
            yield found.cpu().flatten(2)[0, :, drawn].T, small[drawn]


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
