"""The visual encoder: pictures to features (B,C,H,W)."""

from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from joem.errors import BadUsage, choose
from joem.models.feature_maps import Inputs
from joem.models.heads import HEADS, Head
from joem.models.trunk import Trunk, build_trunk
from joem.settings import ModelSettings


class VisualEncoder(nn.Module):
    """Pictures (B,3,Ho,Wo), normalised, to visual features v (B,C,H,W).

    Any image size works: a feature map has ceil(size / stride) rows and columns.

    Args:
        trunk: makes maps of pictures.
        head: makes features of maps.
        dropout: dropout on the features in training.
    """

    def __init__(self, trunk: Trunk, head: Head, dropout: float = 0.0) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head
        self.dropout = nn.Dropout(dropout)

    @property
    def stride(self) -> int:
        """How many pixels apart the features are; of the resized picture, where the trunk resizes."""
        return self.head.stride

    def forward(self, inputs: Inputs) -> Tensor:
        """Features of a batch of normalised pictures, or of what the backbone made of them before."""
        maps = self.trunk(inputs) if isinstance(inputs, Tensor) else inputs
        return cast(Tensor, self.dropout(self.head(maps)))


def build_encoder(settings: ModelSettings) -> VisualEncoder:
    """The visual encoder that settings describe."""
    if settings.head is None:
        raise BadUsage(f"There is no head to make features with: set --model.head.name to one of {', '.join(HEADS)}.")
    trunk, options = build_trunk(settings), dict(vars(settings.head))
    kind = HEADS[choose("head", options.pop("name"), HEADS)]
    return VisualEncoder(trunk, kind(trunk.channels, trunk.strides, **options), settings.dropout)


def trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of a module that learn."""
    return (parameter for parameter in module.parameters() if parameter.requires_grad)
