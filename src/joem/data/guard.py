"""Zero-shot stays zero-shot: rules that keep unseen classes out of training, and a guard that checks."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from joem.data.files import listed
from joem.data.samples import Dataset, Sample
from joem.data.transforms import Transform
from joem.errors import BadUsage, JoemError, LeakageError, choose
from joem.vocabulary import VOID, Vocabulary

Rule = Literal["exclude", "ignore"]

_scanned: WeakKeyDictionary[Dataset, Tensor] = WeakKeyDictionary()


def class_pixels(dataset: Dataset) -> Tensor:
    """How many pixels of every class every picture has: (N, K) int64; void does not count.

    Reads all masks once, in threads, and remembers the answer as long as the dataset lives.
    """
    if dataset not in _scanned:
        classes = len(dataset.names)

        def count(index: int) -> Tensor:
            return torch.bincount(dataset.labels(index).flatten(), minlength=VOID + 1)[:classes]

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            counts = track(
                pool.map(count, range(len(dataset))),
                "Reading masks",
                total=len(dataset),
                console=Console(stderr=True),
                transient=True,
                disable=len(dataset) < 1000,
            )
            _scanned[dataset] = torch.stack(list(counts))
    return _scanned[dataset]


def class_presence(dataset: Dataset) -> Tensor:
    """Which classes every picture shows: (N, K) bool.

    >>> from joem.data.scenes import Scenes
    >>> class_presence(Scenes(5, classes=["red circle"])).all()
    tensor(True)
    """
    return class_pixels(dataset) > 0


class ClassCount(NamedTuple):
    """How much of a class a dataset holds."""

    name: str
    unseen: bool
    images: int
    pixels: int


def describe(dataset: Dataset, vocabulary: Vocabulary | None = None) -> list[ClassCount]:
    """Count images and pixels per class, in index order; `vocabulary` says which are unseen.

    >>> from joem.data.scenes import Scenes
    >>> [row.images for row in describe(Scenes(5, classes=["red circle", "blue star"], only=["blue star"]))]
    [5, 0, 5]
    """
    unseen = vocabulary.unseen if vocabulary is not None else ()
    pixels = class_pixels(dataset)
    images = (pixels > 0).sum(dim=0).tolist()
    counts = zip(dataset.names, images, pixels.sum(dim=0).tolist(), strict=True)
    return [ClassCount(name, name in unseen, shown, covered) for name, shown, covered in counts]


class SeenOnly:
    """A view of a dataset in which unseen classes have no labels; made by `seen_only`."""

    def __init__(self, dataset: Dataset, indices: list[int], hidden: tuple[int, ...]) -> None:
        self.names, self.background = dataset.names, dataset.background
        self._dataset, self._indices = dataset, indices
        self._hidden = torch.tensor(hidden, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Sample:
        sample = self._dataset[self._indices[index]]
        return sample._replace(labels=self._hide(sample.labels))

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, without reading the picture."""
        return self._hide(self._dataset.labels(self._indices[index]))

    def _hide(self, labels: Tensor) -> Tensor:
        return labels.masked_fill(torch.isin(labels, self._hidden), VOID) if len(self._hidden) else labels


def seen_only(dataset: Dataset, vocabulary: Vocabulary, rule: Rule) -> SeenOnly:
    """Apply a training rule, so that no label of an unseen class is left.

    Args:
        dataset: pictures labelled with all classes.
        vocabulary: the same classes, and which of them are unseen.
        rule: "exclude" drops every picture that holds an unseen pixel (ZS3 setting); "ignore" keeps all
            pictures and turns unseen and background pixels to void (SPNet setting).

    >>> from joem.data import scenes
    >>> len(seen_only(scenes.Scenes(50), scenes.vocabulary(), "exclude")) < 50
    True
    """
    choose("training rule", rule, ("exclude", "ignore"))
    if dataset.names != vocabulary.names:
        raise BadUsage(
            f"The dataset has the classes {', '.join(dataset.names)}, the vocabulary has "
            f"{', '.join(vocabulary.names)}: both must list the same names in the same order."
        )
    background = [] if vocabulary.background is None else [vocabulary.index(vocabulary.background)]
    unseen = list(vocabulary.unseen_indices)
    pixels = class_pixels(dataset)
    keep = torch.ones(len(dataset), dtype=torch.bool)
    if rule == "exclude":
        keep = (pixels[:, unseen] == 0).all(dim=1)
    foreground = [index for index in vocabulary.seen_indices if index not in background]
    if not pixels[keep][:, foreground].any():
        raise JoemError(
            f"No seen class left after rule {rule!r}: {int(keep.sum())} of {len(dataset)} pictures stay, "
            "without a labelled pixel of a seen class other than the background "
            f"(unseen: {listed(vocabulary.unseen)}). "
            "Hold out fewer classes, add pictures without the unseen ones, or check that the masks hold the "
            f"labels 0 to {len(vocabulary) - 1}, for {VOID} is void."
        )
    hidden = (*unseen, *background) if rule == "ignore" else ()
    return SeenOnly(dataset, keep.nonzero().flatten().tolist(), hidden)


def guard(labels: Tensor, vocabulary: Vocabulary) -> None:
    """Raise `LeakageError` if labels hold anything but seen classes and void.

    >>> guard(torch.tensor([[0, 255]]), Vocabulary(("cow", "dog"), unseen=("dog",)))
    """
    counts = torch.bincount(labels.flatten().clamp(min=-1) + 1, minlength=VOID + 2)  # bin 0: negative labels
    counts[[index + 1 for index in (*vocabulary.seen_indices, VOID)]] = 0
    if not counts.any():
        return
    found = []
    for bin_index in counts.nonzero().flatten().tolist():
        label = bin_index - 1
        known = 0 <= label < len(vocabulary)
        what = f"unseen class {vocabulary.names[label]!r}" if known else f"label {label}, which is no class"
        found.append(f"{what} ({int(counts[bin_index])} pixels)")
    raise LeakageError(
        f"Training labels hold {'; '.join(found)}. Only the seen classes and void ({VOID}) may reach a loss: "
        "make the training set with joem.data.seen_only, and check the masks it reads."
    )


class TrainingSet:
    """Seen-only, guarded, transformed samples, the same for the same (seed, epoch, index) in any process.

    Args:
        dataset: pictures labelled with all classes.
        vocabulary: the same classes, and which of them are unseen.
        rule: what to do with unseen masks, see `seen_only`.
        transform: what to do with each picture and its labels, see `joem.data.training`.
        seed: another seed, other crops.

    >>> from joem.data import scenes, training
    >>> transform = training(64, mean=(127, 127, 127), std=(128, 128, 128))
    >>> pictures = scenes.Scenes(20, only=["red circle"])
    >>> image, labels = TrainingSet(pictures, scenes.vocabulary(), "exclude", transform, seed=0)[3, 7]
    >>> image.shape, labels.unique()
    (torch.Size([3, 64, 64]), tensor([0, 1]))
    """

    def __init__(
        self, dataset: Dataset, vocabulary: Vocabulary, rule: Rule, transform: Transform, *, seed: int
    ) -> None:
        self.samples = seen_only(dataset, vocabulary, rule)
        self.vocabulary, self.transform, self.seed = vocabulary, transform, seed

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The image (3, h, w) and labels (h, w) of the picture at (epoch, index)."""
        epoch, index = key
        sample = self.samples[index]
        guard(sample.labels, self.vocabulary)
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also reseed the GPUs, which dropout draws from.
            torch.default_generator.manual_seed(_mixed(self.seed, epoch, index))
            return self.transform(sample.image, sample.labels)


def _mixed(*numbers: int) -> int:
    """One seed from several numbers, without patterns between neighbours."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
