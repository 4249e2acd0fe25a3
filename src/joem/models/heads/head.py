"""What every head says of itself."""

from typing import ClassVar

from torch import nn

from joem.settings import HeadSettings


class Head(nn.Module):
    """Makes features (B,C,H,W) of the maps of a backbone.

    It is made with the channels and the strides of these maps, finest first, and its settings as keywords.

    Attributes:
        settings_class: the settings it has.
        takes_hypercolumns: whether it can learn from pixels that were gathered before, see `joem.models.hypercolumn`.
        least_batch: the fewest pictures that it can learn from at a time.
        stride: how many pixels apart its features are.
    """

    settings_class: ClassVar[type[HeadSettings]]
    takes_hypercolumns: ClassVar[bool] = False
    least_batch: ClassVar[int] = 1
    stride: int
