"""What makes encoders faster where nothing learns: fused convolutions, and forms that are kept until weights change."""

import copy
import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Limits = tuple[float, float]

RELU: Limits = (0.0, math.inf)
RELU6: Limits = (0.0, 6.0)

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


class FusedConv2d(nn.Module):
    """A convolution, a map added to it, and values cut off at limits, in one pass over memory; without gradients.

    oneDNN does it where torch has it, in float32 on a CPU. Elsewhere it is three operations with the same result.

    Args:
        weight: as `F.conv2d` takes it, and so are the bias, the stride and all that follows.
        bias: see there.
        limits: the least and the largest value that is left; None leaves all.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        limits: Limits | None = None,
        stride: tuple[int, ...] = (1, 1),
        padding: tuple[int, ...] = (0, 0),
        dilation: tuple[int, ...] = (1, 1),
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.limits, self.stride, self.padding, self.dilation, self.groups = limits, stride, padding, dilation, groups
        self._reordered: dict[torch.Size, Tensor] = {}  # weights as oneDNN wants them, by the shape of the kernel

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """The convolved batch, plus `added` of the same shape, cut off at the limits."""
        weight, padding = self.kernel(x)
        usable = x.device.type == "cpu" and x.dtype == torch.float32 and _has_fused()
        return (self.fused if usable else self.plain)(x, weight, padding, added)

    def kernel(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The weights and the padding for a batch."""
        return self.weight, self.padding

    def plain(self, x: Tensor, weight: Tensor, padding: tuple[int, ...], added: Tensor | None) -> Tensor:
        """One operation after the other."""
        found = F.conv2d(x, weight, self.bias, self.stride, padding, self.dilation, self.groups)
        found = found if added is None else found.add_(added)
        return found if self.limits is None else found.clamp_(*self.limits)

    def fused(self, x: Tensor, weight: Tensor, padding: tuple[int, ...], added: Tensor | None) -> Tensor:
        """By the operations that torch's own compiler has for it."""
        x = x.contiguous(memory_format=torch.channels_last)  # as the weights are, or the result would be copied
        where = (self.stride, self.dilation, self.groups)
        if weight.shape not in self._reordered:
            reorder = torch.ops.mkldnn._reorder_convolution_weight
            self._reordered[weight.shape] = reorder(weight, padding, *where, x.shape)
        kernel, operation = self._reordered[weight.shape], torch.ops.mkldnn._convolution_pointwise
        if added is None:
            kind, limits = ("none", []) if self.limits is None else ("hardtanh", list(self.limits))
            return cast(Tensor, operation(x, kernel, self.bias, padding, *where, kind, limits, ""))
        other = added.contiguous(memory_format=torch.channels_last)
        after = "relu" if self.limits == RELU else None  # the only limits that it knows after an addition
        found = operation.binary(x, other, kernel, self.bias, padding, *where, "add", 1.0, after, [], None)
        return cast(Tensor, found if after or self.limits is None else found.clamp_(*self.limits))

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files are made without what only oneDNN can read."""
        return {**self.__dict__, "_reordered": {}}


@cache
def _has_fused() -> bool:
    """Whether this torch has the operations, which are not public: a tiny convolution tells."""
    x = torch.linspace(-1, 1, 18).view(1, 2, 3, 3)
    tiny, padding = FusedConv2d(x[:, :, 1:, 1:].expand(2, -1, -1, -1), torch.ones(2), RELU), (1, 1)
    added = torch.ones(1, 2, 4, 4)
    try:
        return all(
            torch.allclose(tiny.fused(x, tiny.weight, padding, other), tiny.plain(x, tiny.weight, padding, other))
            for other in (None, added)
        )
    except (AttributeError, RuntimeError, TypeError):
        return False


def replaced(module: M, **parts: nn.Module) -> M:
    """The same module with other parts; the rest of it is shared."""
    found = copy.copy(module)
    found._modules = {**module._modules, **parts}
    return found


class Derived(Generic[T]):
    """What was made of the weights of modules, such as a form for inference, kept until one of them changes."""

    def __init__(self) -> None:
        self._kept: tuple[list[tuple[int, int]], T] | None = None

    def of(self, modules: Iterable[nn.Module], make: Callable[[], T]) -> T:
        """What `make` gives for the modules as they are now."""
        weights = (
            each
            for module in modules
            for part in module.modules()
            for each in (*part._parameters.values(), *part._buffers.values())
            if each is not None
        )
        state = [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in weights]
        kept = self._kept
        if kept is None or kept[0] != state:
            kept = self._kept = (state, make())  # in one go: other threads may ask too
        return kept[1]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files are made without it: they have weights of their own."""
        return {"_kept": None}
