"""A small network of every family of backbones, from training to the web page."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fastapi.testclient import TestClient
from PIL import Image

from joem import Segmenter, cli, engine, progress, recipe, studies, tiles
from joem.model import Model
from joem.web import create_app
from tiny_clip_files import tiny_clip, write_folder
from tiny_towers import PYRAMIDS, TOKENS, stir

FAMILIES, NAMES = [*TOKENS, *PYRAMIDS], ("red circle", "cow")


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


@pytest.fixture(scope="module", params=FAMILIES)
def run(request, tmp_path_factory):
    """The folder of a network that has learned for a few steps."""
    folder = tmp_path_factory.mktemp(request.param)
    with progress.hidden():
        engine.train(small(request.param), folder)
    return folder


def test_a_network_of_every_family_learns_is_saved_loaded_and_served(run):
    loaded = Segmenter.load(run)
    before = Model.create(loaded.model.recipe, loaded.vocabulary)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(loaded.model.method.trunk.parameters(), before.method.trunk.parameters(), strict=True)
    )
    image = picture()
    labels = loaded(image, NAMES).labels
    assert labels.shape == image.shape[:2]
    Image.fromarray(image).save(file := io.BytesIO(), "PNG")
    with TestClient(create_app(loaded), "http://localhost") as client:
        sent = client.post("/api/scenes", content=file.getvalue(), headers={"content-type": "image/png"})
        answer = client.post(f"/api/scenes/{sent.json()['scene']}/mask", json={"names": NAMES})
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(answer.content))), labels)


@pytest.mark.slow
def test_the_exported_file_of_every_family_gives_torchs_labels_but_for_ties(run, tmp_path):
    """By `joem export`, on pictures of sizes that it was not traced with."""
    assert cli.main(["export", str(run), "--out", str(tmp_path / "model.onnx")]) == 0
    exported, loaded = Segmenter.load(tmp_path / "model.onnx"), Segmenter.load(run)
    for size in ((50, 61), (33, 90)):
        scenes = [each.encode(picture(*size)) for each in (exported, loaded)]
        found, expected = (each.segment(NAMES, rule="nn") for each in scenes)
        assert found.names == expected.names
        torch.testing.assert_close(scenes[0].features, scenes[1].features, rtol=1e-3, atol=1e-3)
        upsampled = F.interpolate(scenes[1].features, size, mode="bilinear")
        distances = (upsampled - loaded.model.prototypes(found.names)[:, :, None, None]).norm(dim=1)
        lost = distances.gather(0, found.labels[None]) - distances.gather(0, expected.labels[None])
        assert lost.abs().max() < 1e-4


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


def on_scenes(folder, **model):
    """What makes a recipe for PASCAL VOC one of a few small generated pictures."""
    return {
        "data": {"kind": "scenes", "protocol": None, "size": 48, "train_count": 8, "val_count": 2, "crop": 48},
        "model": {"side": 48, **model},
        "train": {"cache": str(folder), "pixels": 8, "batch_size": 4, "epochs": 1},
    }


def test_joem_a_blend_and_the_tower_alone_are_compared_on_frozen_tokens(tmp_path):
    """A CLIP of open_clip: its vision tower through timm, its text tower as words, its own decision as a row."""
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    folder = write_folder(stir(tiny_clip(open_clip)), tmp_path / "clip")
    weights = str(folder / "open_clip_model.safetensors")
    changes = on_scenes(tmp_path / "cache", backbone="tu-tiny_clip", weights=weights)
    changes["semantics"] = {"vectors": f"clip:{folder}", "prompt": "a photo of a {}.|a {}"}
    shared, own = recipe.load("clip", changes), studies.load_own("clip", changes)
    found = studies.compare(shared, tmp_path, names=["joem", "blend", "tower"], seeds=1, folds=0, own=own)
    assert not found.failures
    assert [row.title for row in found.rows] == ["JoEm", "blend of experts", "the tower alone"]
    assert {found.seen_before(row) for row in found.rows} == {"backbone: captions; words: captions"}
    assert found.results["blend"][0]["rules"]["nn"]["miou_seen"] > 0
    blend = Segmenter.load(tmp_path / "blend/seed-0/model")
    assert [type(each).__name__ for each in blend.model.method.experts] == ["Cosine", "Mixture", "Tower"]
    assert blend(picture(), NAMES).labels.shape == (50, 61)

    alone = Model.load(tmp_path / "tower/seed-0/model")
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
    loaded = Model.load(tmp_path / "tower/seed-0/model")
    assert loaded.missing is not None
    assert torch.equal(loaded.prototypes(), alone.prototypes())


def test_a_blend_on_the_tokens_of_dino_trains_is_scored_and_predicts(tmp_path):
    changes = on_scenes(tmp_path / "cache", backbone="tu-tiny_dinov2", weights="none")
    changes["semantics"] = {"vectors": "glove", "prompt": "{}", "fit": "seen"}
    blend = recipe.load("dino-blend-masks", changes)
    model = engine.train(blend, tmp_path / "run")
    (scored,) = engine.evaluate(model, engine.open_problem(blend.data), [blend.decision])
    assert scored.images == 2
    labels = Segmenter.load(tmp_path / "run")(picture(), NAMES).labels
    assert torch.equal(labels, Segmenter(model)(picture(), NAMES).labels)
