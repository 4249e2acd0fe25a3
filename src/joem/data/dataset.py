"""What every dataset gives: pictures with one class index per pixel."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Sample(NamedTuple):
    """One picture with its labels.

    Attributes:
        image: (3, H, W) uint8, RGB.
        labels: (H, W) int64, the class index of every pixel, 255 where nobody labelled.
        name: what to call the picture in reports and file names.
    """

    image: Tensor
    labels: Tensor
    name: str


class Dataset(Protocol):
    """Anything with these seven members is a dataset; it must be hashable and survive pickling.

    Pickling serves loader workers, hashing lets the counts of a scan be kept; plain classes do both.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in index order."""

    @property
    def background(self) -> str | None:
        """The name of the background class, if there is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...

    def labels(self, index: int, /) -> Tensor:
        """The labels of one picture, without reading the picture."""

    def name(self, index: int, /) -> str:
        """What the picture is called, without reading it."""

    def version(self, index: int, /) -> str:
        """A text that changes when the picture of this name does, so that nothing computed from an old one is used."""


def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Stack (image, labels) pairs of one size into images (B, 3, H, W) and labels (B, H, W).

    >>> images, labels = collate([(torch.zeros(3, 4, 5), torch.zeros(4, 5).long())] * 2)
    >>> images.shape, labels.shape
    (torch.Size([2, 3, 4, 5]), torch.Size([2, 4, 5]))
    """
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.stack(labels)
