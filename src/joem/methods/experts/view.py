"""What the experts of a blend get to see of a batch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from joem.models import Basis, Hypercolumns


@dataclass(frozen=True)
class View:
    """A batch as the experts see it, computed once for all of them.

    Attributes:
        columns: hypercolumns, or what they are made of.
        last: the backbone's last map (B,C,h,w).
        size: (H,W) of the features that every expert gives.
        kept: what was computed of the batch already, for whoever needs it again.
    """

    columns: Basis | Hypercolumns
    last: Tensor
    size: tuple[int, int]
    kept: dict[Any, Tensor] = field(default_factory=dict)

    def once(self, key: Any, compute: Callable[[], Tensor]) -> Tensor:
        """What `compute` gives, computed the first time that it is asked for."""
        if key not in self.kept:
            self.kept[key] = compute()
        return self.kept[key]
