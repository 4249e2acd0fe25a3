"""What every head says of itself."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import nn


class Head(nn.Module, ABC):
    """Makes features (B,C,H,W) of the maps of a backbone."""

    @abstractmethod
    def stride(self, strides: Sequence[int]) -> int:
        """The stride of the features that it makes of maps with these strides."""
