"""Other ways to look at a dataset: some of its pictures, other labels, kept in memory."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from joem.data.samples import Dataset, Sample
from joem.vocabulary import VOID


class View:
    """Some pictures of a dataset, with their labels translated.

    Args:
        dataset: the pictures.
        indices: which of them.
        names: the classes after translation.
        labels: the new label of every old one; void stays void.
    """

    def __init__(
        self, dataset: Dataset, indices: Sequence[int], names: tuple[str, ...], labels: Sequence[int]
    ) -> None:
        self.names = names
        self.background = dataset.background if dataset.background in names else None
        self._dataset, self._indices = dataset, list(indices)
        self._table = torch.full((VOID + 1,), VOID)
        self._table[: len(labels)] = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Sample:
        sample = self._dataset[self._indices[index]]
        return sample._replace(labels=self._table[sample.labels])

    def labels(self, index: int) -> Tensor:
        """The labels of one picture, without reading the picture."""
        return self._table[self._dataset.labels(self._indices[index])]


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
            # 8 bits hold every label and void
            self._samples[index] = sample._replace(labels=sample.labels.to(torch.uint8))
        return self._samples[index]._replace(labels=self._samples[index].labels.long())

    def labels(self, index: int) -> Tensor:
        """The labels of one picture."""
        return self._samples[index].labels.long() if index in self._samples else self._dataset.labels(index)
