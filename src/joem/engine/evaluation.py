"""One pass over labelled pictures: every picture is ranked once, and any number of evaluators look at it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from joem import data, decision, parallel, progress, scores
from joem.data import Dataset
from joem.decision import Decision, Ranking
from joem.engine.problem import Problem, open_problem
from joem.engine.stored_maps import MapStore
from joem.errors import BadUsage, JoemError
from joem.model import Model
from joem.models import FeatureMaps
from joem.scores import Scores
from joem.vocabulary import VOID, Vocabulary


class Evaluator(Protocol):
    """What looks at ranked pictures one after another; a `calibration.Sweep` is one."""

    def update(self, index: int, ranking: Ranking, truth: Tensor) -> None:
        """Look at the picture of that index: its ranking and its labels, (1,Ho,Wo) each, on the model's device."""

    def merge(self, other: Self) -> None:
        """Add what its like found on other pictures."""


@torch.no_grad()
def run(model: Model, problem: Problem, evaluators: Sequence[Evaluator], pictures: Dataset | None = None) -> float:
    """Rank every picture once, at its own size, and show it to the evaluators; gives the seconds that took.

    Where the model was trained on stored maps, those are read instead of pictures. Where processes work together, each
    ranks its share of the pictures, and afterwards the evaluators of each know all of them.

    Args:
        model: what ranks the pixels.
        problem: the classes and who is unseen.
        evaluators: what looks at the rankings.
        pictures: labelled by the problem's classes; its evaluation pictures if None.
    """
    pictures = problem.val if pictures is None else pictures
    if not len(pictures):
        raise BadUsage("There is no picture to evaluate on.")
    started, (rank, world) = time.monotonic(), parallel.rank_and_world()
    vocabulary = problem.vocabulary.without_taught()
    # What only a teacher taught is background here, where there is one.
    rest = () if vocabulary.background is None else model.vocabulary.taught
    rest = tuple(name for name in rest if name not in vocabulary.names)
    prototypes = model.prototypes((*vocabulary.names, *rest))
    owners = torch.tensor([*range(len(vocabulary)), *(vocabulary.index(vocabulary.background or "") for _ in rest)])
    error: JoemError | None = None
    try:
        for index, features, truth in encoded(model, pictures, range(rank, len(pictures), world)):
            ranking = decision.rank(features, prototypes, vocabulary.unseen_indices, truth.shape, owners=owners)
            if problem.vocabulary.taught and vocabulary.background is not None:  # pictures with the labels of teachers
                taught = (truth >= len(vocabulary)) & (truth != VOID)
                truth = truth.masked_fill(taught, vocabulary.index(vocabulary.background))  # noqa: PLW2901
            on_device = truth[None].to(prototypes.device)
            for evaluator in evaluators:
                evaluator.update(index, ranking, on_device)
    except JoemError as found:
        error = found
    found_by_all = parallel.gathered((error, list(evaluators)))
    for each, _ in found_by_all:
        if each is not None:  # what one process cannot read, none of them goes on without
            raise each
    for process, (_, others) in enumerate(found_by_all):
        if process != rank:
            for own, other in zip(evaluators, others, strict=True):
                own.merge(other)
    return time.monotonic() - started


@torch.no_grad()
def encoded(
    model: Model, pictures: Dataset, indices: Sequence[int] | None = None, title: str = "evaluating"
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The index, the features (1,C,H,W) and the labels (Ho,Wo) of pictures, one after another; of all if None.

    Where the model was trained on stored maps, those are read instead of pictures. As many threads read ahead as the
    model's recipe has `data.workers`.
    """
    for index, inputs, truth in read(model, pictures, indices, title):
        yield index, model.method.features(inputs), truth


def read(
    model: Model, pictures: Dataset, indices: Sequence[int] | None = None, title: str = "reading"
) -> Iterator[tuple[int, Tensor | FeatureMaps, Tensor]]:
    """The index, what the method encodes and the labels (Ho,Wo) of pictures, one after another; of all if None."""
    reader, method = _Reader(model, pictures), model.method.eval()
    device, wanted = next(method.parameters()).device, range(len(pictures)) if indices is None else indices
    for index, inputs, truth in progress.in_threads(reader.read, wanted, title, model.recipe.data.workers):
        yield index, inputs.to(device), truth


def evaluate(model: Model, problem: Problem, decisions: Sequence[Decision]) -> "list[Evaluation]":
    """Score several rules on the evaluation pictures of a problem in one pass."""
    scorings = [Scoring(each, problem.vocabulary.without_taught()) for each in decisions]
    seconds = run(model, problem, scorings)
    return [scoring.result(seconds) for scoring in scorings]


def validate(model: Model, most: int = 200) -> "Evaluation":
    """A short look at the evaluation pictures of a model's own data, by its own rule; `BadUsage` where there are none.

    Args:
        model: a trained one.
        most: how many pictures, evenly spread over them.
    """
    problem = open_problem(model.recipe.data, needed=("val",))
    if not len(problem.val):
        raise BadUsage("There are too few pictures. Add some with masks, or list some in splits/val.txt.")
    (found,) = evaluate(model, replace(problem, val=spread_over(problem.val, most)), [model.recipe.decision])
    return found


def spread_over(pictures: Dataset, most: int) -> Dataset:
    """At most so many pictures of a dataset, evenly spread over it."""
    count = len(pictures)
    kept = sorted({index * count // min(count, most) for index in range(min(count, most))})
    return data.View(pictures, kept)


class _Reader:
    """Gives what the method encodes of a picture, and its labels."""

    def __init__(self, model: Model, pictures: Dataset) -> None:
        self._trunk, self._pictures = model.method.trunk, pictures
        self._store = MapStore.open(model.recipe, self._trunk) if model.recipe.train.cache is not None else None

    def read(self, index: int) -> tuple[int, Tensor | FeatureMaps, Tensor]:
        """The index, stored maps or the normalised picture (1,3,Ho,Wo), and the labels (Ho,Wo)."""
        if self._store is not None:
            return index, self._store.maps(self._pictures, index), self._pictures.labels(index)
        sample = self._pictures[index]
        return index, self._trunk.normalised(sample.image)[None], sample.labels


class Scoring:
    """Scores of one rule, from one confusion matrix over all pictures.

    Args:
        decision: the rule with its parameters.
        vocabulary: the classes.
    """

    def __init__(self, decision: Decision, vocabulary: Vocabulary) -> None:
        self.decision, self.vocabulary, self.images = decision, vocabulary, 0
        self.confusion = torch.zeros(len(vocabulary), len(vocabulary), dtype=torch.int64)

    def update(self, index: int, ranking: Ranking, truth: Tensor) -> None:
        """Count the pixels of a picture."""
        self.confusion += scores.confusion(truth, self.decision.decide(ranking), len(self.vocabulary)).cpu()
        self.images += 1

    def merge(self, other: "Scoring") -> None:
        """Add what was counted on other pictures."""
        self.confusion += other.confusion
        self.images += other.images

    def result(self, seconds: float = 0.0) -> "Evaluation":
        """The scores; `seconds` is how long the pass took."""
        found = scores.scores(self.confusion, self.vocabulary.unseen_indices)
        return Evaluation(self.decision, found, self.confusion, self.vocabulary, self.images, seconds)


class PictureScores:
    """Mean IoU of every picture over the classes that it shows.

    Args:
        decision: the rule with its parameters.
        count: the number of classes K.
    """

    def __init__(self, decision: Decision, count: int) -> None:
        self.decision, self.count = decision, count
        self._means: dict[int, float] = {}

    def update(self, index: int, ranking: Ranking, truth: Tensor) -> None:
        """Score a picture."""
        counts = scores.confusion(truth, self.decision.decide(ranking), self.count).cpu()
        shown = counts.sum(1) > 0
        self._means[index] = float(torch.tensor(scores.scores(counts, ()).per_class)[shown].nanmean())

    def merge(self, other: "PictureScores") -> None:
        """Add other pictures."""
        self._means |= other._means

    def result(self) -> Tensor:
        """(N,) in percent, in the order of the pictures; nan where all is void."""
        return torch.tensor([self._means[index] for index in sorted(self._means)])


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

    decision: Decision
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
        pairs = [(*divmod(int(cell), count), float(share)) for share, cell in zip(*top, strict=True)]
        return [(names[true], names[taken], share) for true, taken, share in pairs if share > 0]

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        values = self.scores.to_dict()
        per_class = dict(zip(self.vocabulary.names, values.pop("per_class"), strict=True))
        return {
            **self.decision.to_dict(),
            **values,
            "per_class": per_class,
            "unseen": list(self.vocabulary.unseen),
            "worst_confusions": [
                {"truth": true, "predicted": taken, "percent": share} for true, taken, share in self.worst_confusions()
            ],
            "images": self.images,
            "images_per_second": self.images / self.seconds if self.seconds else None,
        }
