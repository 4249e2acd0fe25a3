"""Free words: every class asked for by its word, scored per kind of word."""

import pytest
import torch

from conftest import fresh_model, make_small
from joem import Segmenter, cli, data
from joem.model import Teaching
from joem.studies import free_words


@pytest.fixture
def segmenter():
    return Segmenter(fresh_model(make_small("blend")))


def test_the_confusion_matrix_is_that_of_a_loop(segmenter):
    scenes = data.Scenes(3, size=32)
    found = free_words.evaluate(segmenter, scenes)
    names = found.names
    expected = torch.zeros(len(names), len(names), dtype=torch.int64)
    for index in range(3):
        sample = scenes[index]
        labels = segmenter(sample.image, scenes.names).labels
        for true, taken in zip(sample.labels.flatten().tolist(), labels.flatten().tolist(), strict=True):
            if true != 255:
                expected[names.index(scenes.names[true]), taken] += 1
    assert torch.equal(found.confusion, expected)
    assert found.accuracy == pytest.approx(float(100 * expected.diag().sum() / expected.sum()))
    shown = [name for row, name in zip(expected, names, strict=True) if row.sum()]
    assert list(found.ious) == shown


def test_every_word_has_a_kind(segmenter):
    segmenter.model.vocabulary = segmenter.vocabulary.with_taught(["grass"])
    segmenter.model.teaching = (
        Teaching("names", "a classifier", "photos", ("airliner, jet", "tench")),
        Teaching("captions", "photos", "captions", ("lake",)),
    )
    seen = next(name for name in segmenter.vocabulary.seen if name != "background")
    kinds = [free_words.kind(segmenter, word) for word in (seen, "grass", "tench", "lakes", "lighthouse")]
    assert kinds == ["masks", "teacher", "names", "captions", "never"]


def test_two_names_of_one_class_are_one_answer(segmenter):
    names = list(data.Scenes(1).names)
    names[2] = names[1].upper()
    found = free_words.evaluate(segmenter, data.View(data.Scenes(3, size=32), range(3), tuple(names)))
    assert len(found.names) == len(names) - 1
    assert found.to_dict()["images"] == 3


def test_the_command_scores_a_folder_by_its_words(segmenter, tmp_path, capsys):
    segmenter.save(tmp_path / "model")
    data.write_folder(data.Scenes(2, size=32), tmp_path / "folder")
    assert cli.main(["evaluate", str(tmp_path / "model"), "--folder", str(tmp_path / "folder")]) == 0
    told = capsys.readouterr().out
    assert "trained with masks" in told
    assert "2 images" in told
