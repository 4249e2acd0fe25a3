"""Networks of timm against timm itself: every family, any size, and weights in other people's names."""

import io
import logging

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from joem.errors import JoemError
from joem.models import build_backbone
from joem.models.backbones.exporting import cubic_matrix, dinov3_coordinates, resample_positions
from tiny_towers import PYRAMIDS, TOKENS, stir

CLOSE = {"rtol": 0, "atol": 1e-5}


def built(name, **options):
    torch.manual_seed(0)
    return stir(build_backbone(f"tu-{name}", stride=32, **options)).eval()


@pytest.mark.parametrize("name", TOKENS)
@torch.no_grad()
def test_the_last_map_is_timms_own_tokens_of_patches_at_any_size(name):
    patch, backbone = TOKENS[name], built(name)
    own = timm.create_model(name, num_classes=0).eval()
    own.load_state_dict(backbone.network.model.state_dict(), strict=False)
    for rows, columns in ((4, 4), (5, 5), (6, 3)):
        picture = torch.randn(2, 3, rows * patch, columns * patch)
        own.set_input_size(img_size=tuple(picture.shape[-2:]))
        tokens = own.forward_features(picture)[:, own.num_prefix_tokens :]
        maps = backbone(picture).maps
        expected = tokens.transpose(1, 2).unflatten(2, (rows, columns))
        torch.testing.assert_close(maps[-1], expected, **CLOSE)
        own.set_input_size(img_size=(64, 64) if patch == 16 else (70, 70))  # positions go back and forth
        own.load_state_dict(backbone.network.model.state_dict(), strict=False)
    assert own.num_prefix_tokens == {"tiny_dinov2": 5, "tiny_dinov3": 5, "tiny_siglip": 0}.get(name, 1)


@pytest.mark.parametrize("name", PYRAMIDS)
@torch.no_grad()
def test_the_maps_of_a_pyramid_are_timms_own(name):
    backbone, picture = built(name), torch.randn(1, 3, 64, 64)
    own = timm.create_model(name, features_only=True).eval()
    own.load_state_dict({key.removeprefix("model."): each for key, each in backbone.network.state_dict().items()})
    expected = own(picture)
    if name == "tiny_swin":
        expected = [each.permute(0, 3, 1, 2) for each in expected]
    for found, each in zip(backbone(picture).maps, expected, strict=True):
        torch.testing.assert_close(found, each, **CLOSE)


@pytest.mark.parametrize("name", [*TOKENS, *PYRAMIDS])
@pytest.mark.parametrize("size", [(65, 97), (1, 33)])
@torch.no_grad()
def test_odd_sizes_have_a_position_for_every_stride_begun(name, size):
    backbone = built(name)
    found = backbone(torch.randn(1, 3, *size))
    assert found.strides == backbone.strides
    assert set(backbone.strides) == {TOKENS[name]} if name in TOKENS else backbone.strides[0] == 4
    assert [each.shape[1] for each in found.maps] == backbone.channels
    for each, step in zip(found.maps, backbone.strides, strict=True):
        assert each.shape[-2:] == (-(-size[0] // step), -(-size[1] // step))


@torch.no_grad()
def test_a_map_covers_an_odd_picture_to_its_edges():
    """A bright last column of pixels shows in the last column of patches, in proportion, and in no padding."""
    backbone, picture = built("tiny_dinov2"), torch.randn(1, 3, 29, 43)
    whole = F.interpolate(picture, size=(42, 56), mode="bilinear", antialias=True)
    torch.testing.assert_close(backbone(picture).maps[-1], backbone(whole).maps[-1])


@torch.no_grad()
def test_a_network_of_one_size_gets_that_size():
    backbone = built("vit_relpos_small_patch16_224")
    picture = torch.randn(1, 3, 100, 60)
    same = F.interpolate(picture, size=(224, 224), mode="bilinear", antialias=True)
    expected = F.interpolate(backbone.network(same)[-1], size=(7, 4), mode="bilinear", antialias=True)
    torch.testing.assert_close(backbone(picture).maps[-1], expected)


@pytest.mark.parametrize(
    ("name", "stride"), [("test_efficientnet", 16), ("test_convnext", 8), ("test_resnet", 32), ("regnetx_002", 32)]
)
@torch.no_grad()
def test_pyramids_are_bit_for_bit_those_of_segmentation_models_pytorch(name, stride):
    from segmentation_models_pytorch.encoders import get_encoder

    torch.manual_seed(3)
    theirs = get_encoder(f"tu-{name}", weights=None, output_stride=stride)
    torch.manual_seed(3)
    ours = build_backbone(f"tu-{name}", stride=stride)
    assert list(ours.network.state_dict()) == list(theirs.state_dict())
    picture = torch.randn(1, 3, 64, 96)
    maps = [each for each in theirs.eval()(picture)[1:] if each.shape[1]]
    for found, expected in zip(ours.eval()(picture).maps, maps, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["tiny_convnext", "tiny_dinov2", "tiny_swin"])
def test_a_whole_checkpoint_of_timm_loads(name, tmp_path):
    """Its classifier is left over; names of folded stages are found."""
    whole = stir(timm.create_model(name, num_classes=7)).eval()
    save_file(whole.state_dict(), file := tmp_path / "whole.safetensors")
    picture = torch.randn(1, 3, 64, 64) if name != "tiny_dinov2" else torch.randn(1, 3, 70, 70)
    with torch.no_grad():
        found = build_backbone(f"tu-{name}", str(file), 32).eval()(picture).maps[-1]
        expected = whole.forward_intermediates(picture, norm=name == "tiny_dinov2", intermediates_only=True)[-1]
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize(("old", "new"), [(5, 5), (5, 9), (16, 3), (7, 8), (1, 4)])
def test_the_matrix_of_an_exported_graph_is_torchs_cubic_interpolation(old, new):
    values = torch.randn(1, 2, old, 3)
    expected = F.interpolate(values, size=(new, 3), mode="bicubic", antialias=True)
    found = torch.einsum("nh,bchw->bcnw", cubic_matrix(old, new), values)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_positions_are_those_of_timm():
    from timm.layers import resample_abs_pos_embed

    positions = torch.randn(1, 2 + 35, 6)
    options = {"new_size": (4, 9), "old_size": (5, 7), "num_prefix_tokens": 2}
    torch.testing.assert_close(
        resample_positions(positions, **options), resample_abs_pos_embed(positions, **options), **CLOSE
    )


@pytest.mark.parametrize("normalize", ["separate", "max", "min"])
@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_coordinates_are_those_of_timm(normalize, indexing):
    from timm.layers.pos_embed_sincos import make_coords_dinov3

    options = {"normalize_coords": normalize, "grid_indexing": indexing, "grid_offset": 0.25}
    assert torch.equal(dinov3_coordinates(3, 5, **options), make_coords_dinov3(3, 5, **options))


def test_a_download_that_fails_is_told_once(monkeypatch):
    def create(name, pretrained=False, **options):
        if pretrained:
            logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
            raise OSError("no network")
        return own(name, **options)

    own, client, told = timm.create_model, logging.getLogger("huggingface_hub"), io.StringIO()
    monkeypatch.setattr(timm, "create_model", create)
    monkeypatch.setattr(client, "handlers", [logging.StreamHandler(told)])
    before = client.level
    with pytest.raises(JoemError, match=r"could not be downloaded \(no network\)"):
        build_backbone("tu-tiny_vit", weights="imagenet")
    assert told.getvalue() == ""
    assert client.level == before
