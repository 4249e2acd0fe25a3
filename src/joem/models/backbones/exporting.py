"""Networks of timm in a form that ONNX can hold: positions in pictures of any size.

torch interpolates them by the antialiased cubic kernel with a = -0.5; ONNX's operator, and torch without antialiasing,
have a = -0.75. In an exported graph the interpolation is two products with matrices that depend on the sizes alone.
DINOv3 divides coordinates by the sizes as plain numbers, which a graph would keep from the picture it is traced with.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

_A = -0.5  # of the cubic kernel


@contextmanager
def exportable() -> Iterator[None]:
    """Let timm's networks compute positions in ways that can be traced."""
    with ExitStack() as stack:
        if "timm.layers.pos_embed_sincos" in sys.modules:
            module = sys.modules["timm.layers.pos_embed_sincos"]
            stack.enter_context(patch.object(module, "make_coords_dinov3", dinov3_coordinates))
        for name, module in list(sys.modules.items()):
            if name.startswith("timm.models.") and hasattr(module, "resample_abs_pos_embed"):
                stack.enter_context(patch.object(module, "resample_abs_pos_embed", resample_positions))
        yield


def resample_positions(
    positions: Tensor, new_size: Sequence[int], old_size: Sequence[int], num_prefix_tokens: int = 1, **others: Any
) -> Tensor:
    """Position embeddings (1, prefix + h * w, C) of a grid (h,w) for another grid, as timm's function of that name."""
    first, grid = positions[:, :num_prefix_tokens], positions[:, num_prefix_tokens:]
    grid = grid.reshape(old_size[0], old_size[1], -1)
    down, across = (cubic_matrix(old, new).to(grid) for old, new in zip(old_size, new_size, strict=True))
    found = torch.einsum("ih,jw,hwc->ijc", down, across, grid).reshape(1, -1, grid.shape[-1])
    return torch.cat([first, found], dim=1)


def dinov3_coordinates(
    height: int,
    width: int,
    normalize_coords: str = "separate",
    grid_indexing: str = "ij",
    grid_offset: float = 0.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Coordinates (H * W, 2) of positions from -1 to 1, as timm's `make_coords_dinov3`."""
    rows, columns = (torch.arange(each, device=device, dtype=torch.float32) for each in (height, width))
    sizes = rows[-1:] + 1, columns[-1:] + 1
    if normalize_coords != "separate":
        pick = torch.maximum if normalize_coords == "max" else torch.minimum
        sizes = pick(*sizes), pick(*sizes)
    down, across = (
        ((each + 0.5 + grid_offset) / size).to(dtype) for each, size in zip((rows, columns), sizes, strict=True)
    )
    if grid_indexing == "xy":
        right, below = torch.meshgrid(across, down, indexing="xy")
        grid = torch.stack([below, right], dim=-1)
    else:
        grid = torch.stack(torch.meshgrid(down, across, indexing="ij"), dim=-1)
    return 2.0 * grid.flatten(0, 1) - 1.0


def cubic_matrix(old: int, new: int) -> Tensor:
    """The weights (new, old) by which torch's antialiased cubic interpolation sums old values.

    >>> cubic_matrix(3, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    at = torch.arange(new, dtype=torch.float32)
    scale = old / (at[-1:] + 1)  # as a tensor, which follows the size of the picture
    wide = scale.clamp(min=1)
    distance = ((torch.arange(old) + 0.5)[None] - (at + 0.5)[:, None] * scale).abs() / wide
    near = (_A + 2) * distance**3 - (_A + 3) * distance**2 + 1
    far = _A * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    weights = torch.where(distance <= 1, near, torch.where(distance < 2, far, torch.zeros_like(distance)))
    return weights / weights.sum(dim=1, keepdim=True)
