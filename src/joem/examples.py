"""Classes from examples: what pictures show inside a mask or around a point, as prototypes beside those of words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.errors import BadUsage, JoemError
from joem.io import read_tensors, write_tensors

Point = tuple[int, int] | tuple[int, int, bool]
"""Column, row, and False if what is there is NOT of the class."""

Points = Mapping[str, Sequence[Point]]
"""Points on a picture by the names of their classes."""

_PREFIX = "trained_features."

Examples = Mapping[str, Tensor]
"""Prototypes (n,C) of examples by the names of their classes; those of "not:" are of nothing that is asked for."""


@dataclass(frozen=True)
class TrainedFeatures:
    """Where trained classes lie among the features, and how pixels spread around them, which no word tells.

    The covariance within classes is U diag(l) U' + s (I - U U'), with k directions U and the same spread s elsewhere.

    Attributes:
        centres: (n,C), the mean feature of each class.
        directions: U', (k,C) of unit length, at right angles.
        scales: (k+1,), 1 / sqrt(l) for each direction, and 1 / sqrt(s) last.
    """

    centres: Tensor
    directions: Tensor
    scales: Tensor

    def whitened(self, features: Tensor) -> Tensor:
        """Features (...,C) as they are compared: pixels of a class spread alike in all directions."""
        shared = self.scales[-1]
        return shared * features + (features @ self.directions.T * (self.scales[:-1] - shared)) @ self.directions

    def tensors(self) -> dict[str, Tensor]:
        """By name, to be kept."""
        return {f"{_PREFIX}{name}": getattr(self, name) for name in ("centres", "directions", "scales")}

    @classmethod
    def take(cls, tensors: dict[str, Tensor], path: Path) -> "TrainedFeatures | None":
        """Take what was kept out of the tensors of a file, if it is there and can be right."""
        found = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_PREFIX)}
        if not found:
            return None
        shapes = {name.removeprefix(_PREFIX): tuple(each.shape) for name, each in found.items()}
        match shapes:
            case {"centres": (_, channels), "directions": (count, width), "scales": (scales,)} if (
                width == channels and scales == count + 1 and all(each.isfinite().all() for each in found.values())
            ):
                return cls(**{name.removeprefix(_PREFIX): each.float() for name, each in found.items()})
        raise JoemError(f"{path} is damaged: what it says of trained features has the shapes {shapes}.")


def of_mask(features: Tensor, mask: Tensor) -> Tensor:
    """The mean feature (1,C) of a picture (1,C,h,w) inside a mask (H,W); a cell counts by the share that is marked.

    >>> of_mask(torch.tensor([[[[1.0, 4.0]]]]), torch.tensor([[False, False, True, True]]))
    tensor([[4.]])
    """
    height, width = features.shape[-2:]
    share = F.adaptive_avg_pool2d(mask[None, None].float(), (height, width)).to(features.device)
    return (features * share).sum((2, 3)) / share.sum()


def of_point(features: Tensor, x: int, y: int, size: tuple[int, int]) -> Tensor:
    """The mean feature (1,C) of the 3 x 3 cells around a pixel of a picture of the size (H,W)."""
    height, width = size
    if not (0 <= x < width and 0 <= y < height):
        raise BadUsage(
            f"The point ({x}, {y}) is outside the picture: columns 0 to {width - 1}, rows 0 to {height - 1}."
        )
    rows, columns = features.shape[-2:]
    row, column = int((y + 0.5) * rows / height), int((x + 0.5) * columns / width)
    return features[:, :, max(0, row - 1) : row + 2, max(0, column - 1) : column + 2].mean((2, 3))


def of_points(
    features: Tensor, name: str, points: Sequence[Point], size: tuple[int, int], nothing: str
) -> dict[str, Tensor]:
    """The prototypes of a class by points on a picture; those of points that are not of it under the name `nothing`."""
    found: dict[str, list[Tensor]] = {}
    for point in points:
        x, y, *positive = _checked(name, point)
        found.setdefault(name if all(positive) else nothing, []).append(of_point(features, x, y, size))
    return {each: torch.cat(prototypes) for each, prototypes in found.items()}


def _checked(name: str, point: Point) -> Point:
    numbers = isinstance(point, Sequence) and len(point) in {2, 3} and all(isinstance(each, int) for each in point)
    if not numbers:
        raise BadUsage(f"A point of {name!r} must be (x, y), or (x, y, False) where it is not, got {point!r}.")
    return point


def joined(*several: Examples) -> dict[str, Tensor]:
    """The examples of all, class by class."""
    every = {name for examples in several for name in examples}
    return {name: torch.cat([each[name] for each in several if name in each]) for name in sorted(every)}


def read(path: Path, channels: int) -> dict[str, Tensor]:
    """The examples in a file, of a model whose prototypes have so many channels."""
    found = read_tensors(path)
    for name, each in found.items():
        if each.ndim != 2 or each.shape[1] != channels or not each.isfinite().all():
            raise JoemError(
                f"{path} is damaged or of another model: {name!r} has the shape {tuple(each.shape)}, expected "
                f"(n, {channels}) finite numbers."
            )
    return {name: each.float() for name, each in found.items()}


def write(path: Path, examples: Examples) -> None:
    """Keep examples in a file."""
    write_tensors(path, {name: each.cpu().contiguous() for name, each in examples.items()})
