"""Names with descriptions, and names in several sentences."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vector_files import write_text

from joem import semantics
from joem.errors import BadUsage, UnknownWord
from joem.semantics import described
from joem.semantics.interface import mean_direction

WORDS = {"zebra": [3.0, 4.0], "brown": [1.0, 0.0], "animal": [0.0, 2.0], "car": [-1.0, 1.0], "a": [9.0, 9.0]}
PROMPTS = ("a photo of a {}", "a drawing of a {}", "{}")


def unit(vector):
    return vector / np.sqrt((vector**2).sum())


@pytest.mark.parametrize(
    ("text", "name", "description"),
    [
        ("okapi: a striped animal", "okapi", "a striped animal"),
        (" okapi :a striped animal ", "okapi", "a striped animal"),
        ("okapi:striped", "okapi", "striped"),
        ("dining table: wood: oak", "dining table", "wood: oak"),
        ("sofa|couch: a soft seat, long", "sofa|couch", "a soft seat, long"),
        ("route 66: 4 lanes", "route 66", "4 lanes"),
        ("clock at 10:30: a round dial", "clock at 10:30", "a round dial"),
        ("okapi:", "okapi", None),
        ("cow", "cow", None),
        (" cow ", " cow ", None),
        ("10:30", "10:30", None),
        ("http://example.org/cow", "http://example.org/cow", None),
        (": a striped animal", ": a striped animal", None),
        ("acorn, fruit of the oak: a nut", "acorn, fruit of the oak: a nut", None),
        ("", "", None),
    ],
)
def test_a_description_follows_the_first_colon(text, name, description):
    assert described(text) == (name, description)


@given(st.text(max_size=30))
def test_any_text_has_a_name(text):
    name, description = described(text)
    if ":" not in text:
        assert (name, description) == (text, None)
    if description is not None:
        assert name.strip()
        assert description.strip()
        assert name in text
        assert description in text


@pytest.fixture
def words(tmp_path):
    return semantics.load(f"word2vec:{write_text(tmp_path / 'v.vec', WORDS)}", normalise="none")


def test_word_tables_read_a_description_as_the_mean_of_its_words(words):
    space = words.with_descriptions("description")
    # "a" is a stop word though it has a vector, and "long-necked" has none; one word may come in another case.
    expected = np.mean([WORDS["brown"], WORDS["animal"], WORDS["zebra"]], axis=0)
    assert np.allclose(space.vectors(["okapi: a Brown, long-necked animal (zebra)"]), expected)
    with pytest.raises(UnknownWord, match="No vector for any word of the description 'a long neck' in word2vec"):
        space.vectors(["car: a long neck"])


@pytest.mark.parametrize("normalise", ["max", "l2", "none"])
@pytest.mark.parametrize("centre", [False, True])
def test_both_are_the_mean_of_two_unit_vectors(tmp_path, normalise, centre):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', WORDS)}"
    space = semantics.load(spec, normalise=normalise, centre=centre).fit(["zebra", "car", "animal"])
    name, told = space.vectors(["car", "brown animal"]).double().numpy()  # a name of two words is their mean too
    got = space.with_descriptions("both").vectors(["zebra", "car: a brown animal", "car"])
    mixed = unit(unit(name) + unit(told)) * (np.linalg.norm(name) + np.linalg.norm(told)) / 2
    np.testing.assert_allclose(got[1].numpy(), mixed, atol=1e-5)
    assert torch.equal(got[[0, 2]], space.vectors(["zebra", "car"]))
    assert torch.equal(space.with_descriptions("name").vectors(["car: a brown animal"]), space.vectors(["car"]))


def test_a_name_nobody_knows_is_what_its_description_says(words):
    space = words.with_descriptions("both")
    got = space.vectors(["okapi: a brown animal", "car", "qqqq: zebra"])
    assert np.allclose(got, [[0.5, 1.0], WORDS["car"], WORDS["zebra"]])
    with pytest.raises(UnknownWord, match="'okapi' of the class 'okapi'"):
        space.vectors(["okapi", "qqqq: zebra"])
    with pytest.raises(UnknownWord, match="'okapi' of the class 'okapi'"):
        words.with_descriptions("name").vectors(["okapi: a brown animal"])


def test_a_described_class_may_be_trained_on(words):
    space = semantics.load(words.spec, centre=True).with_descriptions("both").fit(["okapi: a brown animal", "car"])
    np.testing.assert_allclose(space.parts[0].centre, np.mean([[0.5, 1.0], WORDS["car"]], axis=0))


def test_sentence_encoders_read_the_whole_description():
    text = "a striped brown animal like a zebra with a long neck"
    space = semantics.load("use", normalise="none", prompt="a photo of a {}").with_descriptions("description")
    bare = semantics.load("use", normalise="none")
    assert torch.equal(space.vectors([f"okapi: {text}"]), bare.vectors([text]))
    both = space.with_descriptions("both").vectors([f"okapi: {text}"])[0].double().numpy()
    name, told = bare.vectors(["a photo of a okapi", text]).double().numpy()
    np.testing.assert_allclose(both, unit(unit(name) + unit(told)), atol=1e-5)


def test_other_sources_read_a_description_as_a_name():
    space = semantics.random(6).with_descriptions("description")
    assert torch.equal(space.vectors(["okapi: striped"]), space.vectors(["striped"]))


def test_what_is_made_of_descriptions_is_saved(words):
    for mode in ("name", "description", "both"):
        told = json.loads(json.dumps(words.with_descriptions(mode).provenance()))
        again = semantics.Semantics.from_provenance(told)
        expected = words.with_descriptions(mode).vectors(["car: a brown animal"])
        assert torch.equal(again.vectors(["car: a brown animal"]), expected)
    with pytest.raises(BadUsage, match=r"Unknown use of descriptions 'all'.*name, description, both"):
        words.with_descriptions("all")


# --- several sentences ---


def test_directions_of_several_prompts_are_averaged():
    bare = semantics.load("use", normalise="none")
    several = semantics.load("use", normalise="none", prompt=PROMPTS)
    for name in ("cow", "tvmonitor"):
        texts = [prompt.replace("{}", name.replace("tvmonitor", "tv monitor")) for prompt in PROMPTS]
        rows = bare.vectors(texts).double().numpy()
        expected = unit(sum(unit(row) for row in rows)) * np.mean([np.linalg.norm(row) for row in rows])
        np.testing.assert_allclose(several.vectors([name])[0], expected, atol=1e-5)


def test_prompts_may_be_given_in_three_ways():
    space = semantics.load("glove+use", normalise="l2")
    expected = space.with_prompt(PROMPTS).vectors(["cow"])
    assert not torch.equal(expected, space.with_prompt(PROMPTS[0]).vectors(["cow"]))
    for prompt in (list(PROMPTS), "|".join(PROMPTS), " | ".join(PROMPTS)):
        assert torch.equal(space.with_prompt(prompt).vectors(["cow"]), expected)
        assert torch.equal(semantics.load("glove+use", normalise="l2", prompt=prompt).vectors(["cow"]), expected)
    again = semantics.Semantics.from_provenance(json.loads(json.dumps(space.with_prompt(PROMPTS).provenance())))
    assert torch.equal(again.vectors(["cow"]), expected)
    one = space.with_prompt(PROMPTS[:1]).vectors(["cow"])
    assert torch.equal(one, space.with_prompt(PROMPTS[0]).vectors(["cow"]))


@pytest.mark.parametrize("prompt", [("a {}", "a photo"), "a {}|", "a {}||{}", ()])
def test_every_prompt_holds_the_name(prompt):
    with pytest.raises(BadUsage, match=r"must hold \{\} where the name goes"):
        semantics.load("use").with_prompt(prompt)


def test_word_tables_take_no_prompts(words):
    with pytest.raises(BadUsage, match="is for sentence encoders"):
        words.with_prompt(PROMPTS)


@given(st.lists(st.lists(st.integers(-5, 5), min_size=3, max_size=3), min_size=1, max_size=4))
def test_mean_direction_has_the_mean_length_and_leaves_zeros_out(rows):
    got = mean_direction(np.array(rows, dtype=np.float64))
    kept = [np.array(row, dtype=np.float64) for row in rows if any(row)]
    total = sum((unit(row) for row in kept), np.zeros(3))
    if len(rows) == 1 or np.linalg.norm(total) < 1e-9:  # none, or directions that cancel
        return
    expected = unit(total) * np.mean([np.linalg.norm(row) for row in kept])
    np.testing.assert_allclose(got, expected, atol=1e-9)
