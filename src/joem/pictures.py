"""Pictures in every form that people hold them, as pixels (3,H,W) uint8."""

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from joem import data
from joem.errors import BadUsage, JoemError

Picture = str | Path | bytes | BinaryIO | Image.Image | NDArray[Any] | Tensor
"""A file's path, its bytes or the open file; a PIL image; an array (H,W), (H,W,3) or (H,W,4), grey, RGB or RGBA, uint8
or floats from 0 to 1; or a tensor (3,H,W) uint8."""

Mask = str | Path | Image.Image | NDArray[Any] | Tensor
"""Where a picture shows something: a file, a PIL image, an array or a tensor (H,W); anything but 0 counts."""


def pixels_of(image: Picture) -> Tensor:
    """The pixels of a picture, (3,H,W) uint8."""
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise JoemError(f"There is no picture {str(image)!r}.")
        return data.read_image(Path(image))
    if isinstance(image, bytes | io.IOBase):
        return data.read_image(io.BytesIO(image) if isinstance(image, bytes) else image)
    if isinstance(image, np.ndarray):
        image = _from_array(image)
    if isinstance(image, Image.Image):
        return data.as_pixels(image)
    if not isinstance(image, Tensor) or image.ndim != 3 or len(image) != 3 or image.dtype != torch.uint8:
        raise _no_picture(image)
    if not image.numel():
        raise BadUsage(f"The picture is empty: it has {image.shape[2]} x {image.shape[1]} pixels.")
    return image


def mask_of(mask: Mask, size: tuple[int, int]) -> Tensor:
    """Where a mask marks a picture of the size (H,W), as booleans."""
    if isinstance(mask, str | Path):
        if not Path(mask).is_file():
            raise JoemError(f"There is no mask {str(mask)!r}.")
        mask = data.open_image(Path(mask))
    if isinstance(mask, Image.Image):
        mask = np.asarray(mask)
    found = torch.from_numpy(np.ascontiguousarray(mask) != 0) if isinstance(mask, np.ndarray) else mask != 0
    if found.ndim == 3:  # a coloured mask; one with an alpha channel is marked where it is not transparent
        found = found[..., 3] if found.shape[2] == 4 else found.any(2)
    if tuple(found.shape) != size:
        got = " x ".join(str(length) for length in reversed(found.shape))
        raise BadUsage(f"The mask has {got} pixels, its picture {size[1]} x {size[0]}: they must be the same.")
    if not found.any():
        raise BadUsage("The mask marks nothing: all of it is 0.")
    return found


def check_longest(longest: int | None) -> None:
    """Refuse a longer side that no picture can have."""
    if longest is not None and longest < 1:
        raise BadUsage(f"The longer side must have at least one pixel, got {longest}.")


def reduced(pixels: Tensor, longest: int | None) -> Tensor:
    """A copy whose longer side has so many pixels, if the picture is larger."""
    side = max(pixels.shape[1:])
    check_longest(longest)
    if longest is None or side <= longest:
        return pixels
    size = [max(1, round(length * longest / side)) for length in pixels.shape[1:]]
    return F.interpolate(pixels[None], size=size, mode="bilinear", align_corners=False, antialias=True)[0]


def _from_array(array: NDArray[Any]) -> Image.Image:
    if not array.size:
        raise BadUsage(f"The picture is empty: an array of the shape {array.shape}.")
    layout = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {1, 3, 4})
    if np.issubdtype(array.dtype, np.floating) and layout:
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise BadUsage(f"A picture of floats must be from 0 to 1, got {array.min():g} to {array.max():g}.")
        array = (255 * array).round().astype(np.uint8)
    if not layout or array.dtype != np.uint8:
        raise _no_picture(array)
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _no_picture(image: object) -> BadUsage:
    got = f"{type(image).__name__} {tuple(getattr(image, 'shape', ()))} {getattr(image, 'dtype', '')}".rstrip()
    return BadUsage(
        "A picture must be a file or its bytes, a PIL image, a grey, RGB or RGBA array of uint8 or of floats from 0 to "
        f"1, or a (3,H,W) uint8 tensor, got {got}."
    )
