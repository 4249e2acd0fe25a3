"""The semantic encoder: word vectors (K,D) to prototypes (K,C)."""

from torch import nn

from joem.errors import choose


def semantic_encoder(kind: str, dimension: int, channels: int, init: str = "torch") -> nn.Module:
    """The map from word vectors (K,D) to prototypes (K,C): the paper's linear layer, or a small MLP.

    Args:
        kind: linear or mlp.
        dimension: D.
        channels: C.
        init: torch's fresh weights, or official for Xavier-uniform ones with biases of .01.

    >>> semantic_encoder("linear", 50, 8)
    Linear(in_features=50, out_features=8, bias=True)
    """
    choose("semantic encoder", kind, ("linear", "mlp"))
    layers = [nn.Linear(dimension, channels)]
    if kind == "mlp":
        layers.append(nn.Linear(channels, channels))
    if init == "official":
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.constant_(layer.bias, 0.01)
    return layers[0] if kind == "linear" else nn.Sequential(layers[0], nn.LeakyReLU(0.2), layers[1])
