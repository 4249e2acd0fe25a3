"""Other ways to look at a dataset: some of its pictures, other labels, kept in memory."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from joem.data.counts import class_pixels, class_presence
from joem.data.dataset import Dataset, Sample
from joem.vocabulary import VOID

_NO_CLASS = 254  # what a label without translation becomes, so that the guard finds it


class View:
    """Some pictures of a dataset, with their labels translated.

    Args:
        dataset: the pictures.
        indices: which of them.
        names: the classes after translation.
        labels: the new label of every old one (all stay if None); void stays void.
    """

    def __init__(
        self,
        dataset: Dataset,
        indices: Sequence[int],
        names: tuple[str, ...] | None = None,
        labels: dict[int, int] | None = None,
    ) -> None:
        self.names = dataset.names if names is None else names
        self.background = dataset.background if dataset.background in self.names else None
        self._dataset, self._indices = dataset, list(indices)
        self._table: Tensor | None = None
        if labels is not None:
            self._table = torch.full((VOID + 1,), _NO_CLASS)
            self._table[VOID] = VOID
            for old, new in labels.items():
                self._table[old] = new

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Sample:
        sample = self._dataset[self._indices[index]]
        return sample._replace(labels=self._translate(sample.labels))

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, without reading the picture."""
        return self._translate(self._dataset.labels(self._indices[index]))

    def name(self, index: int) -> str:
        """What the picture is called."""
        return self._dataset.name(self._indices[index])

    def version(self, index: int) -> str:
        """A text that changes when the picture does."""
        return self._dataset.version(self._indices[index])

    def class_pixels(self) -> Tensor:
        """Pixels per picture and class, (N, K), from the counts of the whole dataset."""
        counts = class_pixels(self._dataset)[self._indices]
        if self._table is None:
            return counts
        result = torch.zeros(len(counts), VOID + 1, dtype=counts.dtype)
        result.index_add_(1, self._table[: counts.shape[1]], counts)
        return result[:, : len(self.names)]

    def _translate(self, labels: Tensor) -> Tensor:
        if self._table is None:
            return labels
        return self._table.index_select(0, labels.flatten()).view(labels.shape)  # a fifth of the time of table[labels]


class Unlabelled(View):
    """A view in which some pictures have no label at all: every pixel of them is void.

    Args:
        dataset: the pictures.
        indices: which of them.
        names: the classes after translation.
        labels: the new label of every old one (all stay if None); void stays void.
        without: which of the view's pictures have no label.
    """

    def __init__(
        self,
        dataset: Dataset,
        indices: Sequence[int],
        names: tuple[str, ...] | None = None,
        labels: dict[int, int] | None = None,
        without: Iterable[int] = (),
    ) -> None:
        super().__init__(dataset, indices, names, labels)
        self._without = frozenset(without)

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        return sample._replace(labels=torch.full_like(sample.labels, VOID)) if index in self._without else sample

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, all void where it has none."""
        found = super().labels(index)
        return torch.full_like(found, VOID) if index in self._without else found

    def class_pixels(self) -> Tensor:
        """Pixels per picture and class, (N, K)."""
        counts = super().class_pixels()
        counts[sorted(self._without)] = 0
        return counts


class Remembered:
    """A dataset whose pictures stay in memory once made; for small ones that are slow to make, such as scenes."""

    def __init__(self, dataset: Dataset) -> None:
        self.names, self.background = dataset.names, dataset.background
        self._dataset = dataset
        self._samples: dict[int, Sample] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        if index not in self._samples:
            sample = self._dataset[index]
            self._samples[index] = sample._replace(labels=sample.labels.to(torch.uint8))  # an eighth of the memory
        kept = self._samples[index]
        return kept._replace(labels=kept.labels.long())

    def labels(self, index: int) -> Tensor:
        """The labels of one picture."""
        return self._samples[index].labels.long() if index in self._samples else self._dataset.labels(index)

    def name(self, index: int) -> str:
        """What the picture is called."""
        return self._dataset.name(index)

    def version(self, index: int) -> str:
        """A text that changes when the picture does."""
        return self._dataset.version(index)


def restrict(dataset: Dataset, names: Iterable[str]) -> View:
    """The pictures that show nothing but the given classes (and void), labelled by their order.

    >>> from joem.data.scenes import Scenes
    >>> pictures = restrict(Scenes(30, classes=["red circle", "blue star"]), ["background", "blue star"])
    >>> pictures.names, 0 < len(pictures) < 30
    (('background', 'blue star'), True)
    """
    kept = tuple(names)
    new = {dataset.names.index(name): label for label, name in enumerate(kept)}
    others = [label for label in range(len(dataset.names)) if label not in new]
    clean = ~class_presence(dataset)[:, others].any(dim=1)
    return View(dataset, clean.nonzero().flatten().tolist(), kept, new)


def relabel(dataset: Dataset, names: Iterable[str]) -> Dataset:
    """All pictures, labelled by the order of the given classes; pixels of other classes become void.

    >>> from joem.data.scenes import Scenes
    >>> relabel(Scenes(1, classes=["red circle"]), ["red circle"]).labels(0).unique()
    tensor([  0, 255])
    """
    kept = tuple(names)
    if kept == dataset.names:
        return dataset
    new = {label: kept.index(name) if name in kept else VOID for label, name in enumerate(dataset.names)}
    return View(dataset, range(len(dataset)), kept, new)


def showing(dataset: Dataset, names: Iterable[str]) -> View:
    """The pictures that show at least one of the given classes.

    >>> from joem.data.scenes import Scenes
    >>> len(showing(Scenes(5, classes=["red circle"]), ["red circle"]))
    5
    """
    labels = [dataset.names.index(name) for name in names]
    return View(dataset, class_presence(dataset)[:, labels].any(dim=1).nonzero().flatten().tolist())


def divide(dataset: Dataset, unseen: Iterable[str] = ()) -> tuple[View, View]:
    """The pictures to train on and those to keep back for evaluation, the same whenever it is asked.

    Every picture that shows an unseen class is kept back, since it cannot teach. Of the others it is every fifth, in
    the order of the rarest class that each shows, so that all classes have their share. The only picture of a class
    stays.

    Args:
        dataset: all pictures.
        unseen: classes no mask of which may teach; empty where their pictures are trained on too.

    >>> from joem.data.scenes import Scenes
    >>> pictures = Scenes(20, classes=["red circle", "blue star"], only=["red circle"])
    >>> [len(part) for part in divide(pictures)], [len(part) for part in divide(pictures, ["red circle"])]
    ([16, 4], [0, 20])
    """
    shown = class_presence(dataset)
    back = shown[:, [dataset.names.index(name) for name in unseen]].any(dim=1)
    counts = shown[~back].sum(dim=0)
    fewest, rarest = torch.where(shown, counts, len(dataset) + 1).min(dim=1)
    order = torch.argsort(rarest, stable=True)
    usable = order[~back[order] & (fewest[order] > 1)]
    back[usable[4::5]] = True
    return View(dataset, (~back).nonzero().flatten().tolist()), View(dataset, back.nonzero().flatten().tolist())
