"""Features of vision-language towers against slow references written from the definitions."""

import pytest
import torch
import torch.nn.functional as F

from joem.errors import BadUsage
from joem.models import build_backbone
from tiny_towers import stir

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def tower(name, dense):
    torch.manual_seed(0)
    backbone = stir(build_backbone(f"tu-{name}", stride=32, dense=dense)).eval()
    return backbone, backbone.network.model


def slow_attention(block, x, kinds):
    """One head after the other, one token after the other: for each kind a softmax over products, summed."""
    attention = block.attn
    length, width = x.shape
    q, k, v = attention.qkv(x).reshape(length, 3, attention.num_heads, -1).unbind(1)
    result = torch.zeros_like(v)
    for head in range(attention.num_heads):
        for token in range(length):
            for kind in kinds:
                which = {"q": q, "k": k}[kind][:, head]
                weights = torch.stack([which[token] @ other for other in which]) / which.shape[1] ** 0.5
                result[token, head] += (weights.softmax(0)[:, None] * v[:, head]).sum(0)
    return attention.proj(result.reshape(length, width))


def slow_last_block(block, x, dense):
    inner = block.norm1(x)
    if dense == "clear":
        return slow_attention(block, inner, "q")
    if dense == "value":
        values = block.attn.qkv(inner)[:, 2 * x.shape[1] :]
        x = x + block.attn.proj(values)
    else:
        x = x + slow_attention(block, inner, "qk")
    return x + block.mlp(block.norm2(x))


@pytest.mark.parametrize("dense", ["value", "self", "clear"])
@torch.no_grad()
def test_the_last_block_of_clip_is_what_its_authors_define(dense):
    backbone, model = tower("tiny_clip", dense)
    picture = torch.randn(1, 3, 48, 80)
    x = model.norm_pre(model._pos_embed(model.patch_embed(picture)))
    for block in model.blocks[:-1]:
        x = block(x)
    tokens = slow_last_block(model.blocks[-1], x[0], dense)[1:]
    expected = model.head(model.fc_norm(model.norm(tokens))).T.unflatten(1, (3, 5))
    torch.testing.assert_close(backbone(picture).maps[-1][0], expected, **CLOSE)


@torch.no_grad()
def test_plain_is_the_tower_with_its_projection_at_every_token():
    backbone, model = tower("tiny_clip", "plain")
    picture = torch.randn(2, 3, 64, 64)
    found = backbone(picture).maps[-1]
    tokens = model.forward_features(picture)[:, 1:]
    torch.testing.assert_close(found.flatten(2).transpose(1, 2), model.head(tokens), **CLOSE)
    assert backbone.channels[-1] == 24


@pytest.mark.parametrize("name", ["tiny_eva", "tiny_pe", "tiny_siglip"])
@torch.no_grad()
def test_in_other_towers_q_q_attention_is_their_own_where_keys_are_queries(name):
    backbone, model = tower(name, "clear")
    block, seen = model.blocks[-1], []
    attention = block.attn
    if attention.qkv is not None:
        attention.qkv.weight[32:64] = attention.qkv.weight[:32]
        attention.qkv.bias[32:64] = attention.qkv.bias[:32]
    else:
        attention.k_proj.weight.copy_(attention.q_proj.weight)
        attention.q_proj.bias.zero_()
    block.register_forward_hook(lambda _, args, options, found: seen.append((args, options, found)), with_kwargs=True)
    assert backbone(torch.randn(1, 3, 64, 80)).maps[-1].isfinite().all()
    (x,), options, found = seen[0]
    torch.testing.assert_close(found, attention(block.norm1(x), **options), **CLOSE)
    tokens = {"value": attention.proj(attention.norm(slow_values(attention, block.norm1(x)))), "clear": found}
    for dense, expected in tokens.items():
        block.dense = dense
        wanted = expected
        if dense == "value":
            first = x + scaled(block, expected, "1")
            wanted = first + scaled(block, block.mlp(block.norm2(first)), "2")
        torch.testing.assert_close(block(x, **options), wanted, **CLOSE)


def slow_values(attention, x):
    if attention.qkv is None:
        return attention.v_proj(x)
    return (x @ attention.qkv.weight.T + attention.qkv.bias)[..., 2 * x.shape[-1] :]


def scaled(block, x, which):
    gamma = getattr(block, f"gamma_{which}", None)
    return block.get_submodule(f"ls{which}")(x) if hasattr(block, f"ls{which}") else x if gamma is None else gamma * x


@torch.no_grad()
def test_pooling_by_attention_is_its_value_path_at_every_token():
    """SigLIP pools by attention; over one token that gives its value, projected, and the pool's own perceptron."""
    backbone, model = tower("tiny_siglip", "plain")
    picture = torch.randn(1, 3, 64, 64)
    pool, tokens = model.attn_pool, model.forward_features(picture)[0]
    values = pool.kv(tokens)[:, tokens.shape[1] :]
    x = pool.proj(values)
    expected = (x + pool.mlp(pool.norm(x))).T.unflatten(1, (4, 4))
    torch.testing.assert_close(
        backbone(picture).maps[-1][0], model.head(model.fc_norm(expected.flatten(1).T)).T.unflatten(1, (4, 4)), **CLOSE
    )


@pytest.mark.parametrize("name", ["tiny_convnext", "tiny_mobileclip", "tiny_swin"])
@torch.no_grad()
def test_the_head_of_a_pyramid_is_applied_at_every_position(name):
    backbone, model = tower(name, "plain")
    picture = torch.randn(1, 3, 64, 64)
    final = model.forward_features(picture)
    found = backbone(picture).maps[-1]
    if name == "tiny_swin":
        final = final.permute(0, 3, 1, 2)
    for row, column in ((0, 0), (1, 0)):
        one = final[:, :, row : row + 1, column : column + 1]
        expected = model.forward_head(one.permute(0, 2, 3, 1) if name == "tiny_swin" else one)
        torch.testing.assert_close(found[:, :, row, column], expected, **CLOSE)


def test_other_blocks_are_refused():
    with pytest.raises(BadUsage, match=r"last block, which ConvNeXt does not have: set --model\.dense plain"):
        build_backbone("tu-tiny_convnext", stride=32, dense="value")


def test_a_tower_in_the_names_of_open_clip_loads_into_timm(tmp_path):
    """The vision tower of a whole open_clip checkpoint, positions and projection included."""
    open_clip = pytest.importorskip("open_clip")
    from tiny_clip_files import tiny_clip

    torch.manual_seed(1)
    model = stir(tiny_clip(open_clip)).eval()
    torch.save(model.state_dict(), file := tmp_path / "clip.pt")
    backbone = build_backbone("tu-tiny_clip", str(file), dense="plain").eval()
    picture = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        tower = backbone.network.model
        pooled = tower(picture)
        torch.testing.assert_close(F.normalize(pooled, dim=1), model.encode_image(picture, normalize=True), **CLOSE)
