"""Features of a vision-language tower at every position, in the space of its text tower.

The tower was trained to give one vector for a picture. What its last block does for that vector mixes what places
show, so the block is computed otherwise; the tower's own final norm, pooling and projection follow at every position.

- plain: the block as it is, x + A(x), then + FFN.
- value: every token attends to itself alone, A = proj(v) (MaskCLIP, Zhou, Loy and Dai, 2022).
- self: A = proj((softmax(q q^T s) + softmax(k k^T s)) v), s = 1/sqrt(d) (SCLIP, Wang, Mei and Yuille, 2024).
- clear: the block's output is proj(softmax(q q^T s) v) alone, without what came in and without the FFN (ClearCLIP, Lan
  et al., 2024).
"""

from collections.abc import Sequence
from types import MethodType
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.errors import BadUsage

Dense = Literal["plain", "value", "self", "clear"]
"""How the last block of a tower is computed."""

_BLOCKS, _ATTENTIONS = {"Block", "EvaBlock"}, {"Attention", "EvaAttention", "AttentionRope"}  # of timm
_AT_ONCE = 4096  # positions whose vectors go through the head together


def at_every_position(model: Any, final: Tensor, size: Sequence[int]) -> Tensor:
    """What the head of a network of timm makes (B,N,H,W) of every position, as if it were the whole picture.

    Pooling one position, or equal ones, gives that position: the head is a 1x1 convolution then, also where it pools
    by attention.

    Args:
        model: the network.
        final: what its `forward_features` gives: tokens (B,L,C), or a map (B,C,H,W) or (B,H,W,C).
        size: (H,W).
    """
    height, width = size
    if final.dim() == 3:
        first = getattr(model, "num_prefix_tokens", 0)
        alone = final[:, first:].flatten(0, 1)[:, None].expand(-1, first + 1, -1)
    elif getattr(model, "output_fmt", "NCHW") == "NHWC":
        alone = final.reshape(-1, 1, 1, final.shape[-1])
    else:
        alone = final.permute(0, 2, 3, 1).reshape(-1, final.shape[1], 1, 1)
    if torch.compiler.is_exporting():
        found = model.forward_head(alone)
    else:
        found = torch.cat([model.forward_head(part) for part in torch.split(alone, _AT_ONCE)])
    return cast(Tensor, found).reshape(len(final), height, width, -1).permute(0, 3, 1, 2)


def use_dense_block(model: Any, dense: Dense) -> None:
    """Let the last block of a tower compute what `dense` says; its weights and their names stay."""
    if dense == "plain":
        return
    last: Any = (None, *getattr(model, "blocks", ()))[-1]
    attention: Any = getattr(last, "attn", None)
    usual = type(last).__name__ in _BLOCKS and type(attention).__name__ in _ATTENTIONS
    if not usual or attention.gate is not None or getattr(attention, "num_kv_groups", 1) > 1:
        raise BadUsage(
            f"--model.dense {dense} changes the attention of a vision transformer's last block, which "
            f"{type(model).__name__} does not have: set --model.dense plain."
        )
    last.forward = MethodType(_forward, last)
    last.dense = dense


def _forward(block: Any, x: Tensor, rope: Tensor | None = None, **masks: Any) -> Tensor:
    """The last block by `block.dense`."""
    attended = _attended(block.attn, block.norm1(x), rope, block.dense)
    if block.dense == "clear":
        return attended
    x = x + _scaled(block, attended, "1")
    return x + _scaled(block, block.mlp(block.norm2(x)), "2")


def _scaled(block: Any, x: Tensor, which: str) -> Tensor:
    """A branch times the block's learned scale, which ViT and EVA call differently."""
    if hasattr(block, f"ls{which}"):
        scaled: Tensor = getattr(block, f"ls{which}")(x)
        return scaled
    gamma = getattr(block, f"gamma_{which}", None)
    return x if gamma is None else gamma * x


def _attended(attention: Any, x: Tensor, rope: Tensor | None, dense: Dense) -> Tensor:
    q, k, v = _heads(attention, x)
    if dense == "value":
        mixed = v
    else:
        q, k = attention.q_norm(q), attention.k_norm(k)
        if rope is not None:
            q, k = _rotated(attention, q, rope), _rotated(attention, k, rope)
        mixed = F.scaled_dot_product_attention(q, q, v)
        if dense == "self":
            mixed = mixed + F.scaled_dot_product_attention(k, k, v)
    joined = mixed.transpose(1, 2).flatten(2)
    found: Tensor = attention.proj(attention.norm(joined))
    return found


def _heads(attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B,heads,L,d)."""
    if attention.qkv is not None:
        bias = attention.qkv.bias
        if getattr(attention, "q_bias", None) is not None:
            bias = torch.cat([attention.q_bias, attention.k_bias, attention.v_bias])
        parts = F.linear(x, attention.qkv.weight, bias).chunk(3, dim=-1)
    else:
        parts = tuple(getattr(attention, f"{each}_proj")(x) for each in "qkv")
    heads = attention.num_heads
    q, k, v = (each.reshape(*each.shape[:2], heads, -1).transpose(1, 2) for each in parts)
    return q, k, v


def _rotated(attention: Any, heads: Tensor, rope: Tensor) -> Tensor:
    from timm.layers import apply_rot_embed_cat

    first, half = attention.num_prefix_tokens, getattr(attention, "rotate_half", False)
    turned = apply_rot_embed_cat(heads[:, :, first:], rope, half=half)
    return torch.cat([heads[:, :, :first], turned], dim=2).type_as(heads)
