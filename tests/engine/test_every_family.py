"""A small network of every family of backbones, from training to the web page."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fastapi.testclient import TestClient
from PIL import Image

from joem import Segmenter, engine, onnx, recipe, tiles
from joem.model import Model
from joem.web import create_app
from tiny_clip_files import tiny_clip, write_folder
from tiny_towers import PYRAMIDS, TOKENS, stir

FAMILIES = [*TOKENS, *PYRAMIDS]


def small(name, **model):
    return recipe.load(
        "scenes",
        {
            "data": {"size": 48, "train_count": 8, "val_count": 1, "crop": 48},
            "model": {
                "backbone": f"tu-{name}",
                "weights": "none",
                "stride": 32,
                "freeze_backbone": False,
                "head": {"name": "hypercolumn", "channels": 8, "hidden": 16},
                **model,
            },
            "train": {"epochs": 1, "batch_size": 4, "visual": {"name": "adamw", "lr": 1e-3}},
        },
    )


def picture(height=50, width=61):
    pixels = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return pixels.numpy()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_network_of_every_family_learns_is_saved_loaded_and_served(name, tmp_path):
    trained = engine.train(small(name), tmp_path / "run")
    before = Model.create(small(name), trained.vocabulary)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(trained.method.trunk.parameters(), before.method.trunk.parameters(), strict=True)
    )
    loaded = Segmenter.load(tmp_path / "run")
    image = picture()
    labels = loaded(image, ["red circle", "cow"]).labels
    assert torch.equal(labels, Segmenter(trained)(image, ["red circle", "cow"]).labels)
    assert labels.shape == image.shape[:2]
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    with TestClient(create_app(loaded), "http://localhost") as client:
        sent = client.post("/api/scenes", content=file.getvalue(), headers={"content-type": "image/png"})
        asked = {"names": ["red circle", "cow"]}
        answer = client.post(f"/api/scenes/{sent.json()['scene']}/mask", json=asked)
        assert answer.status_code == 200
        served = np.array(Image.open(io.BytesIO(answer.content)))
        assert served.shape == image.shape[:2]


@pytest.mark.slow
def test_a_tower_of_stride_14_is_exported_as_it_is(tmp_path):
    """Labels and features of a whole model, at sizes that it was not traced with."""
    model = Model.create(made := small("tiny_dinov2"), engine.open_problem(made.data).vocabulary)
    stir(model.method)
    assert onnx.to_onnx(model, tmp_path / "model.onnx") <= 1e-3
    exported = onnx.OnnxModel.load(tmp_path / "model.onnx")
    assert exported.stride == 14
    for size in ((70, 42), (33, 90)):
        pixels = torch.from_numpy(picture(*size)).permute(2, 0, 1).contiguous()
        torch.testing.assert_close(exported.features(pixels), model.features(pixels), rtol=1e-3, atol=1e-3)


def test_tiles_of_a_tower_of_stride_14_meet(monkeypatch):
    """Where nothing but a position's own patch counts, tiles give what the whole picture gives."""
    monkeypatch.setattr(tiles, "SIDE", 128)
    monkeypatch.setattr(tiles, "OVERLAP", 28)
    model = Model.create(made := small("tiny_dinov2"), engine.open_problem(made.data).vocabulary)
    tower = model.method.trunk.backbone.network.model
    for block in tower.blocks:
        block.ls1.gamma.data.zero_()  # no attention
    tower.pos_embed.data.zero_()
    # Only the map itself is compared: hypercolumns hold means over neighbours and over the picture.
    pixels = torch.from_numpy(picture(14 * 13, 14 * 21)).permute(2, 0, 1)
    whole = model.method.trunk(model.method.trunk.normalised(pixels)[None]).maps[-1]

    def features(part):
        with torch.no_grad():
            return model.method.trunk(model.method.trunk.normalised(part)[None]).maps[-1]

    torch.testing.assert_close(tiles.encode(features, pixels, model.method.stride), whole, rtol=1e-4, atol=1e-5)


def test_frozen_tokens_train_by_joem_and_by_a_blend_with_the_tower(tmp_path):
    """A CLIP of open_clip: its vision tower through timm, its text tower as words, its own decision as an expert."""
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    folder = write_folder(stir(tiny_clip(open_clip)), tmp_path / "tower")
    words = {"vectors": f"clip:{folder}", "normalise": "l2", "centre": False, "prompt": "a photo of a {}.|a {}"}
    tower = {"weights": str(folder / "open_clip_model.safetensors"), "dense": "self", "freeze_backbone": True}
    cache = {"cache": str(tmp_path / "cache"), "pixels": 8}
    base = small("tiny_clip", **tower).changed(semantics=words, train=cache)
    blend = base.changed(model={"head": None}, method={"name": "blend", "experts": [{"kind": "tower"}]})
    joem, alone = engine.train(base), engine.train(blend, tmp_path / "run")
    assert joem.prototypes().shape[1] == 8
    image = torch.from_numpy(picture()).permute(2, 0, 1)
    names = ("cow", "red circle", "sky")
    model, tokens = open_clip.create_model(f"local-dir:{folder}").eval(), open_clip.get_tokenizer("ViT-B-16")
    with torch.no_grad():
        prompts = [[f"a photo of a {name}.", f"a {name}"] for name in names]
        texts = torch.stack([model.encode_text(tokens(each), normalize=True).mean(0) for each in prompts])
        dense = alone.method.trunk(alone.method.trunk.normalised(image)[None]).maps[-1]
        cosines = torch.einsum("kd,dhw->khw", F.normalize(texts, dim=1), F.normalize(dense[0], dim=0))
    features, prototypes = alone.features(image)[0], alone.prototypes(names)
    distances = (features[None] - prototypes[:, :, None, None]).square().sum(1)
    np.testing.assert_array_equal(distances.argmin(0), cosines.argmax(0))
    # The words travel with the model: known names need no text tower.
    for file in folder.iterdir():
        file.unlink()
    loaded = Model.load(tmp_path / "run")
    assert loaded.missing is not None
    assert torch.equal(loaded.prototypes(), alone.prototypes())
