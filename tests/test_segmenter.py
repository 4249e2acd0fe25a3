import json

import numpy as np
import pytest
import torch
from PIL import Image

from joem import Segmenter, decision, engine
from joem.data.scenes import Scenes
from joem.engine.model import Model
from joem.errors import BadUsage, JoemError
from joem.segmenter import Result


@pytest.fixture
def segmenter(tiny) -> Segmenter:
    return Segmenter(Model.create(tiny, engine.open_problem(tiny.data).vocabulary))


@pytest.fixture
def picture():
    return Scenes(1, 64)[0].image


def test_every_kind_of_picture_gives_the_same_labels(segmenter, picture, tmp_path):
    array = picture.permute(1, 2, 0).numpy()
    Image.fromarray(array).save(tmp_path / "a.png")
    kinds = [picture, array, Image.fromarray(array), tmp_path / "a.png", str(tmp_path / "a.png")]
    results = [segmenter.encode(kind).segment().labels for kind in kinds]
    assert results[0].shape == (64, 64)
    assert all(torch.equal(results[0], labels) for labels in results)


def test_the_picture_is_encoded_once_and_decided_many_times(segmenter, picture, monkeypatch):
    scene = segmenter.encode(picture)
    monkeypatch.setattr(type(segmenter.model.method), "features", lambda *_: pytest.fail("encoded again"))
    first = scene.segment(["background", "red circle"])
    second = scene.segment(["background", "red circle", "green dog"], rule="cs", gamma=0.5)
    assert first.names == ("background", "red circle")
    assert second.unseen == ("green dog",)
    assert scene.distances(["background", "green dog"]).shape == (2, 64, 64)


def test_labels_are_those_of_the_rule(segmenter, picture):
    scene = segmenter.encode(picture)
    vocabulary = segmenter.vocabulary
    prototypes = segmenter.model.prototypes()
    expected = decision.apollonius(scene.features, prototypes, vocabulary.unseen_indices, 0.6, size=(64, 64))[0]
    assert torch.equal(scene.segment(rule="ac", sigma=0.6).labels, expected)
    expected = decision.nearest(scene.features, prototypes, size=(64, 64))[0]
    assert torch.equal(scene.segment(rule="nn").labels, expected)


def test_a_name_the_vectors_do_not_know_is_an_error(segmenter, picture):
    with pytest.raises(BadUsage, match="zzxqy"):
        segmenter.encode(picture).segment(["background", "zzxqy"])


def test_saved_and_loaded_segmenters_agree(segmenter, picture, tmp_path):
    loaded = Segmenter.load(segmenter.save(tmp_path / "model"))
    names = ["background", "blue ring", "brown horse"]
    first, second = (one.encode(picture).segment(names).labels for one in (segmenter, loaded))
    assert torch.equal(first, second)


@pytest.mark.parametrize("bad", [np.zeros((4, 4), np.uint8), torch.zeros(3, 4, 4), np.zeros((4, 4, 4), np.uint8), 7])
def test_things_that_are_no_picture_are_refused(segmenter, bad):
    with pytest.raises(BadUsage, match="A picture must be"):
        segmenter.encode(bad)


def test_a_missing_file_is_named(segmenter):
    with pytest.raises(JoemError, match=r"no picture 'nowhere\.png'"):
        segmenter.encode("nowhere.png")


def test_a_result_saves_overlay_mask_and_areas(picture, tmp_path):
    labels = torch.zeros(64, 64, dtype=torch.int64)
    labels[:16] = 2
    result = Result(labels, ("background", "cow", "red fox"), ("red fox",), picture, "background")
    result.save(tmp_path / "out")
    with Image.open(tmp_path / "out" / "mask.png") as mask:
        assert mask.mode == "P"
        assert np.array_equal(np.asarray(mask), labels.numpy())
        assert tuple(mask.getpalette()[6:9]) == result.colours[2]
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert stored["areas"] == {"background": 0.75, "cow": 0.0, "red fox": 0.25}
    assert stored["unseen"] == ["red fox"]
    with Image.open(tmp_path / "out" / "overlay.png") as overlay:
        assert overlay.height > 64  # the legend is below the picture
    bare = np.asarray(result.overlay(opacity=1.0, legend=False))
    assert tuple(bare[5, 5]) == result.colours[2]
    assert tuple(bare[40, 5]) == result.colours[0]


def test_more_than_256_names_get_a_16_bit_mask(picture):
    labels = torch.full((64, 64), 300)
    result = Result(labels, tuple(f"n{i}" for i in range(301)), (), picture)
    assert np.asarray(result.mask()).max() == 300
    assert result.overlay().size[0] >= 64
