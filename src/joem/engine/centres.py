"""Where trained classes lie among the features, so that examples are compared with what is like them."""

import torch
from torch import Tensor

from joem import data, losses
from joem.engine.evaluation import encoded
from joem.engine.model import Model
from joem.engine.problem import Problem
from joem.vocabulary import VOID

_PICTURES = 200  # a mean over a class needs no more


def visual_centres(model: Model, problem: Problem, seed: int = 0) -> Tensor:
    """The mean feature (n,C) of every seen class that some training pictures show; unseen classes have none.

    A word's prototype lies further from the pixels of its class than a feature does, so what is nearest to an example
    cannot be told from prototypes.

    Args:
        model: what encodes the pictures.
        problem: its training pictures, without unseen classes as in training, and its classes.
        seed: of the pictures.
    """
    pictures = data.seen_only(problem.train, problem.vocabulary, problem.rule)
    generator = torch.Generator().manual_seed(seed)
    indices = sorted(torch.randperm(len(pictures), generator=generator)[:_PICTURES].tolist())
    count = len(problem.vocabulary)
    sums: Tensor | None = None
    pixels = torch.zeros(count, dtype=torch.float64)
    for _, features, truth in encoded(model, pictures, indices, "centres"):
        data.guard(truth, problem.vocabulary)
        labels = losses.resized(truth[None], features.shape[-2:]).flatten()
        marked = torch.nn.functional.one_hot(labels.where(labels != VOID, count), count + 1)[:, :count].double()
        found = marked.T @ features[0].flatten(1).T.double().cpu()
        sums = found if sums is None else sums + found
        pixels += marked.sum(0)
    if sums is None:
        return torch.zeros(0, 0)
    shown = pixels > 0
    return (sums[shown] / pixels[shown, None]).float()
