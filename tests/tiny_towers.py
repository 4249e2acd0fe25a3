"""Small networks of every family that timm has, with random weights, under names of their own.

They are made by the families' own builders with fewer and narrower blocks, so that what is tested is their code.
"""

import timm
import torch
from timm.models import register_model

SHALLOW = {"depth": 3, "num_heads": 2}


@register_model
def tiny_vit(pretrained=False, **options):
    return timm.create_model("vit_tiny_patch16_224", embed_dim=32, img_size=64, **SHALLOW, **options)


@register_model
def tiny_dinov2(pretrained=False, **options):
    base = "vit_small_patch14_reg4_dinov2"
    return timm.create_model(base, embed_dim=32, img_size=70, **SHALLOW, **options)


@register_model
def tiny_dinov3(pretrained=False, **options):
    return timm.create_model("vit_small_patch16_dinov3", embed_dim=32, img_size=64, **SHALLOW, **options)


@register_model
def tiny_clip(pretrained=False, **options):
    options = {"num_classes": 24, **options}
    return timm.create_model("vit_base_patch16_clip_224", embed_dim=32, img_size=64, **SHALLOW, **options)


@register_model
def tiny_siglip(pretrained=False, **options):
    options = {"num_classes": 0, **options}
    return timm.create_model("vit_base_patch16_siglip_224", embed_dim=32, img_size=64, **SHALLOW, **options)


@register_model
def tiny_eva(pretrained=False, **options):
    options = {"num_classes": 24, **options}
    return timm.create_model("eva02_base_patch16_clip_224", embed_dim=32, img_size=64, **SHALLOW, **options)


@register_model
def tiny_pe(pretrained=False, **options):
    options = {"num_classes": 24, **options}
    base = "vit_pe_core_tiny_patch16_384"
    return timm.create_model(base, embed_dim=32, img_size=64, attn_pool_num_heads=2, **SHALLOW, **options)


@register_model
def tiny_swin(pretrained=False, **options):
    small = {"embed_dim": 16, "depths": (2, 1), "num_heads": (1, 2), "img_size": 64, "window_size": 4}
    return timm.create_model("swin_tiny_patch4_window7_224", **{**small, **options})


@register_model
def tiny_convnext(pretrained=False, **options):
    small = {"dims": (8, 12, 16, 20), "depths": (1, 1, 1, 1)}
    return timm.create_model("convnext_atto", **{**small, **options})


@register_model
def tiny_mobileclip(pretrained=False, **options):
    small = {"layers": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32), "num_classes": 24}
    return timm.create_model("fastvit_mci0", **{**small, **options})


TOKENS = {
    "tiny_vit": 16,
    "tiny_dinov2": 14,
    "tiny_dinov3": 16,
    "tiny_clip": 16,
    "tiny_siglip": 16,
    "tiny_eva": 16,
    "tiny_pe": 16,
}
"""The networks of tokens, and their patches."""

PYRAMIDS = ("tiny_swin", "tiny_convnext", "tiny_mobileclip")
"""The others; Swin has two stages, the others four."""


def stir(module):
    """Other numbers in place of those that begin as zeros or ones, so that every part of a network counts."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return module
