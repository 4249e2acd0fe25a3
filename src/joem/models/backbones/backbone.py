"""What every backbone says of itself."""

from torch import nn


class Backbone(nn.Module):
    """A network that makes `joem.models.FeatureMaps` of normalised pictures (B,3,Ho,Wo) of any size.

    A map of stride s has ceil(size / s) rows and columns.

    Attributes:
        channels: of every map, finest first.
        strides: of every map.
    """

    channels: list[int]
    strides: tuple[int, ...]

    def for_inference(self) -> "Backbone":
        """One that makes the same maps, but for rounding, and makes them quicker; itself where there is none."""
        return self
