import pytest
from hypothesis import given
from hypothesis import strategies as st

from joem.errors import BadUsage, choose
from joem.vocabulary import Vocabulary, class_mask, colours

NAMES = st.lists(st.text("abcdef ", min_size=1).filter(str.strip), min_size=1, max_size=8, unique=True)


@given(NAMES, st.data())
def test_seen_and_unseen_are_a_partition_in_index_order(names, draw):
    unseen = draw.draw(st.lists(st.sampled_from(names), unique=True))
    vocabulary = Vocabulary(tuple(names), tuple(unseen))
    assert set(vocabulary.seen) | set(vocabulary.unseen) == set(names)
    assert not set(vocabulary.seen) & set(vocabulary.unseen)
    assert [names[i] for i in vocabulary.seen_indices] == list(vocabulary.seen)
    assert {names[i] for i in vocabulary.unseen_indices} == set(unseen)
    assert Vocabulary.from_dict(vocabulary.to_dict()) == vocabulary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ()}, "at least one"),
        ({"names": ("a", "a")}, "repeat: a"),
        ({"names": "cow"}, r"use \['cow'\]"),
        ({"names": ("a", " ")}, "non-empty"),
        ({"names": ("a\tb",)}, "one line of readable text"),
        ({"names": ("a",), "unseen": ("b",)}, "Available options are: a"),
        ({"names": ("a",), "background": "b"}, "background class 'b'"),
    ],
)
def test_bad_vocabularies_say_what_is_wrong(arguments, message):
    with pytest.raises(BadUsage, match=message):
        Vocabulary(**arguments)


def test_colours_differ_and_the_background_is_dark():
    names = [f"class {i}" for i in range(30)]
    found = colours(["background", *names], background="background")
    assert found[0] == (60, 60, 60)
    assert len(set(found)) == 31


def test_choose_offers_the_nearest_option():
    with pytest.raises(BadUsage, match=r"Unknown rule 'nnn'. Did you mean 'nn'\? Available options are: nn, cs."):
        choose("rule", "nnn", ["nn", "cs"])


def test_class_mask_of_nothing():
    assert class_mask([], 2).tolist() == [False, False]
