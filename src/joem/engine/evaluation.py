"""One pass over labelled pictures: rank every pixel's classes once, then score any number of rules."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joem import data, decision, scores
from joem.data import Dataset
from joem.decision import Ranking
from joem.engine.hypercolumns import MapStore
from joem.engine.model import Model
from joem.engine.problem import Problem
from joem.engine.processes import gathered, place, share
from joem.errors import BadUsage
from joem.models import Inputs
from joem.recipe import DecisionSettings
from joem.scores import Scores
from joem.vocabulary import Vocabulary


@dataclass(frozen=True)
class Evaluation:
    """Scores of one rule on one dataset.

    Attributes:
        decision: the rule with its parameters.
        scores: what the confusion matrix says.
        confusion: (K,K) counts, indexed [truth, predicted].
        vocabulary: the classes.
        images: how many pictures.
        seconds: how long the pass took, decisions of all rules included.
    """

    decision: DecisionSettings
    scores: Scores
    confusion: Tensor
    vocabulary: Vocabulary
    images: int
    seconds: float

    def worst_confusions(self, most: int = 5) -> list[tuple[str, str, float]]:
        """The confusions that hurt most: (true name, taken for, share of the true class's pixels in percent)."""
        shares = 100 * self.confusion.double() / self.confusion.sum(dim=1, keepdim=True).clamp(min=1)
        shares.fill_diagonal_(0)
        top = shares.flatten().topk(min(most, shares.numel()))
        names, count = self.vocabulary.names, len(self.vocabulary)
        pairs = [(int(place) // count, int(place) % count, float(share)) for share, place in zip(*top, strict=True)]
        return [(names[true], names[taken], share) for true, taken, share in pairs if share > 0]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        values = self.scores.to_dict()
        per_class = dict(zip(self.vocabulary.names, values.pop("per_class"), strict=True))
        return {
            "rule": self.decision.rule,
            "sigma": self.decision.sigma,
            "gamma": self.decision.gamma,
            "squared": self.decision.squared,
            **values,
            "per_class": per_class,
            "unseen": list(self.vocabulary.unseen),
            "worst_confusions": [
                {"truth": true, "predicted": taken, "percent": share} for true, taken, share in self.worst_confusions()
            ],
            "images": self.images,
            "images_per_second": self.images / self.seconds if self.seconds else None,
        }


def evaluate(
    model: Model,
    problem: Problem,
    decisions: Sequence[DecisionSettings],
    progress: bool = True,
    ranked: Iterable[tuple[Ranking, Tensor]] | None = None,
) -> list[Evaluation]:
    """Score several rules on the evaluation pictures of a problem in one pass.

    Where processes work together, each takes its share of the pictures and all get the sum. `ranked` is what
    `rank_dataset` gave for this process's `share`, if the pass has been made already.
    """
    count = len(problem.vocabulary)
    counts = [torch.zeros(count, count, dtype=torch.int64) for _ in decisions]
    started = time.monotonic()
    for ranking, truth in ranked or rank_dataset(model, problem, share(problem.val), progress):
        for matrix, wish in zip(counts, decisions, strict=True):
            matrix.add_(scores.confusion(truth, decide(ranking, wish), count))
    counts = [sum(parts[1:], parts[0]) for parts in zip(*gathered(counts), strict=True)]
    seconds = time.monotonic() - started
    return [
        Evaluation(
            wish,
            scores.scores(matrix, problem.vocabulary.unseen_indices),
            matrix,
            problem.vocabulary,
            len(problem.val),
            seconds,
        )
        for matrix, wish in zip(counts, decisions, strict=True)
    ]


def decide(ranking: Ranking, wish: DecisionSettings) -> Tensor:
    """Labels of ranked pixels by a rule with its parameters."""
    return decision.decide(ranking, rule=wish.rule, sigma=wish.sigma, gamma=wish.gamma, squared=wish.squared)


@torch.no_grad()
def rank_dataset(
    model: Model, problem: Problem, pictures: Dataset, progress: bool = True, store: MapStore | None = None
) -> Iterator[tuple[Ranking, Tensor]]:
    """Rank the classes of every pixel, picture by picture at its own size; gives (ranking, truth) pairs.

    With a `store` of backbone maps, pictures that are in it are not encoded again.
    """
    from rich.console import Console
    from rich.progress import track

    vocabulary = problem.vocabulary
    if not len(pictures) and place() == (0, 1):  # of few pictures, some process may have none
        raise BadUsage("There is no picture to evaluate on.")
    method = model.method.eval()
    device = next(method.parameters()).device
    transform = data.evaluation(mean=method.visual.mean, std=method.visual.std)
    prototypes = model.prototypes(vocabulary.names)
    console = Console(stderr=True)
    hidden = not (progress and console.is_terminal and place()[0] == 0)
    for index in track(range(len(pictures)), "evaluating", console=console, disable=hidden, transient=True):
        inputs: Inputs
        if store is None:
            sample = pictures[index]
            image, truth = transform(sample.image, sample.labels)
            inputs = image[None].to(device)
        else:
            truth = pictures.labels(index)
            inputs = [each.to(device) for each in store.maps(pictures, index)]
        ranking = decision.rank(method.features(inputs), prototypes, vocabulary.unseen_indices, size=truth.shape)
        yield Ranking(*(field.cpu() for field in ranking)), truth[None]


def rank_stored(
    model: Model, problem: Problem, pictures: Dataset, progress: bool = True
) -> Iterator[tuple[Ranking, Tensor]]:
    """`rank_dataset` with the store of backbone maps that the model was trained on, if it was."""
    cached = model.recipe.train.cache is not None
    store = MapStore.open(model.recipe, model.method.visual) if cached else None
    return rank_dataset(model, problem, pictures, progress, store)
