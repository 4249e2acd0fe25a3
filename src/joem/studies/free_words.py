"""How well a model finds what words ask for, on pictures that it was not made for, per kind of word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from joem import progress, scores
from joem.data import Dataset
from joem.segmenter import Segmenter
from joem.semantics import lexicon

KINDS = {
    "masks": "trained with masks",
    "teacher": "taught by another network",
    "names": "a name of ImageNet's classifier",
    "captions": "a noun of captions",
    "never": "never heard",
}
"""How a model may have come to know a word, the strongest first."""


def kind(segmenter: Segmenter, word: str) -> str:
    """How a model knows a word, one of `KINDS`; other words for the same thing count."""
    vocabulary = segmenter.vocabulary
    meant = lexicon.meant(word, vocabulary.seen)
    if meant is not None:
        return "teacher" if meant in vocabulary.taught else "masks"
    heard = {each.how: each.words for each in segmenter.model.teaching}
    return next((how for how in ("names", "captions") if lexicon.meant(word, heard.get(how, ())) is not None), "never")


@dataclass(frozen=True)
class FreeWords:
    """What was found.

    Attributes:
        names: the classes, by the words that were asked for.
        kinds: how the model knows each; None for the background.
        confusion: (K,K) counts, indexed [truth, predicted].
        images: how many pictures.
    """

    names: tuple[str, ...]
    kinds: tuple[str | None, ...]
    confusion: Tensor
    images: int

    @property
    def ious(self) -> dict[str, float]:
        """IoU in percent of every class that the pictures show."""
        found = scores.scores(self.confusion, ()).per_class
        shown = self.confusion.sum(dim=1) > 0
        return {name: value for name, value, there in zip(self.names, found, shown.tolist(), strict=True) if there}

    def mean(self, kind: str | None = None) -> float | None:
        """Mean IoU over the classes of a kind, over all but the background if None; None where there is none."""
        own = dict(zip(self.names, self.kinds, strict=True))
        found = [value for name, value in self.ious.items() if own[name] is not None and kind in {None, own[name]}]
        return sum(found) / len(found) if found else None

    @property
    def accuracy(self) -> float:
        """Share of the labelled pixels that are right, in percent."""
        return float(100 * self.confusion.diag().sum() / self.confusion.sum().clamp(min=1))

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        means = {"all": self.mean(), **{kind: self.mean(kind) for kind in KINDS}}
        per_class = {
            name: {"iou": value, "kind": kind}
            for name, kind in zip(self.names, self.kinds, strict=True)
            for value in [self.ious.get(name)]
            if value is not None
        }
        return {"mean_iou": means, "accuracy": self.accuracy, "per_class": per_class, "images": self.images}


def evaluate(
    segmenter: Segmenter, pictures: Dataset, words: Sequence[str] | None = None, workers: int = 0, **options: Any
) -> FreeWords:
    """Ask for all classes of labelled pictures at once, by their words.

    Args:
        segmenter: the model.
        pictures: pictures with masks.
        words: what to call the classes, one for each; their names in the data if None.
        workers: how many threads read pictures ahead.
        options: of `Scene.segment`.
    """
    asked = tuple(pictures.names if words is None else words)
    question = segmenter.classes(asked)
    # Two names of one class are one answer; the truth of both is compared with it.
    owner = {text: number for number, texts in enumerate(question.asked) for text in texts.split("|")}
    places = torch.tensor([owner[name] for name in asked])
    count = len(question.names)
    confusion = torch.zeros(count, count, dtype=torch.int64)
    for sample in progress.in_threads(pictures.__getitem__, range(len(pictures)), "free words", workers):
        found = segmenter(sample.image, asked, **options).labels
        labelled = sample.labels < len(places)
        truth = torch.where(labelled, places[sample.labels.clamp(max=len(places) - 1)], sample.labels)
        confusion += scores.confusion(truth[None], found[None], count)
    kinds = tuple(None if name == question.rest else kind(segmenter, name) for name in question.names)
    return FreeWords(question.names, kinds, confusion, len(pictures))
