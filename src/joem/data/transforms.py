"""What happens to a picture and its labels together, between the dataset and the model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from joem import extras
from joem.errors import BadUsage
from joem.vocabulary import VOID

if TYPE_CHECKING:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

Statistics = tuple[float, float, float]
Transform = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def training(
    crop: int,
    *,
    mean: Statistics,
    std: Statistics,
    scale: tuple[float, float] = (0.5, 1.5),
    base: int | None = None,
    pad: Literal["mean", "black"] = "mean",
    flip: bool = True,
) -> Transform:
    """Random scale, crop and mirroring, then normalisation, drawn from torch's global generator.

    Args:
        crop: side of the square that comes out; smaller pictures are padded, the labels with void.
        mean: per-channel mean to subtract, on the 0..255 scale.
        std: per-channel deviation to divide by, on the 0..255 scale.
        scale: range of the random scale factor.
        base: shorter side, in pixels, that the factor multiplies; the picture's own if None.
        pad: colour that images are padded with, the mean (0 once normalised) or black.
        flip: whether to mirror every other picture.

    >>> transform = training(32, mean=(127, 127, 127), std=(128, 128, 128))
    >>> image, labels = transform(torch.zeros(3, 20, 50, dtype=torch.uint8), torch.zeros(20, 50).long())
    >>> image.shape, image.dtype, labels.shape
    (torch.Size([3, 32, 32]), torch.float32, torch.Size([32, 32]))
    """
    low, high = scale
    if crop < 1 or not 0 < low <= high:
        raise BadUsage(f"Training needs crop >= 1 and 0 < low <= high scale, got crop={crop}, scale={scale}.")
    extras.require("train", "Training", "torchvision")
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    fill = {tv_tensors.Image: list(mean) if pad == "mean" else 0, tv_tensors.Mask: VOID}
    steps = [
        _RandomScale(low, high, base),
        v2.ToDtype(torch.float32),
        v2.RandomCrop(crop, pad_if_needed=True, fill=fill),
        v2.RandomHorizontalFlip(0.5 if flip else 0.0),
        v2.Normalize(mean, std),
    ]
    return _Joint(v2.Compose(steps))


@dataclass(frozen=True)
class _Joint:
    """Applies torchvision's transforms to an image and its labels, as plain tensors on both sides."""

    steps: "v2.Compose"

    def __call__(self, image: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        from torchvision import tv_tensors

        image, labels = self.steps(tv_tensors.Image(image), tv_tensors.Mask(labels))
        return image.as_subclass(Tensor), labels.as_subclass(Tensor)


@dataclass(frozen=True)
class _RandomScale:
    """Resizes both by one random factor, or to a shorter side of a random factor times `base`."""

    low: float
    high: float
    base: int | None

    def __call__(self, image: "tv_tensors.Image", labels: "tv_tensors.Mask") -> tuple[Tensor, Tensor]:
        from torchvision import tv_tensors
        from torchvision.transforms.v2 import functional as F2

        factor = self.low + (self.high - self.low) * torch.rand(()).item()
        if self.base is not None:
            factor *= self.base / min(labels.shape)
        size = [max(2, round(side * factor)) for side in labels.shape]  # torch cannot resize to 1x1
        # torchvision resizes masks with "nearest", half a pixel off the image; "nearest-exact" is not.
        resized = F.interpolate(labels[None, None].float(), size, mode="nearest-exact")[0, 0].to(labels.dtype)
        return F2.resize(image, size, antialias=True), tv_tensors.Mask(resized)
