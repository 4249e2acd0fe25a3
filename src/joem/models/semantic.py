"""The semantic encoder: word vectors (K,D) to prototypes (K,C)."""

from torch import nn

from joem.errors import choose


def semantic_encoder(kind: str, dimension: int, channels: int) -> nn.Module:
    """The map from word vectors (K,D) to prototypes (K,C): the paper's linear layer, or a small MLP.

    >>> semantic_encoder("linear", 50, 8)
    Linear(in_features=50, out_features=8, bias=True)
    """
    choose("semantic encoder", kind, ("linear", "mlp"))
    if kind == "linear":
        return nn.Linear(dimension, channels)
    return nn.Sequential(nn.Linear(dimension, channels), nn.LeakyReLU(0.2), nn.Linear(channels, channels))
