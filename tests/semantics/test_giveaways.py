"""Which of the thousand names give a class away: the examples that people found by hand, and what must stay."""

import pytest

from joem import protocols
from joem.semantics import imagenet, lexicon
from joem.semantics.giveaways import _company, _names, giveaways

BY_WORDNET = {
    "aeroplane": "aircraft carrier, airship, airliner, plane, warplane, wing",
    "bottle": "beer bottle, bottlecap, nipple, pill bottle, pop bottle, water bottle, water jug, wine bottle",
    "cat": "Egyptian cat, Persian cat, Siamese cat, cheetah, cougar, jaguar, leopard, lion, lynx, tabby, tiger",
    "chair": "barber chair, folding chair, rocking chair, throne, studio couch",
    "cow": "ox, oxcart",
    "motorbike": "crash helmet, disk brake, moped",
    "sheep": "bighorn, ram",
    "sofa": "studio couch",
    "train": "bullet train, electric locomotive, freight car, passenger car, steam locomotive",
    "tvmonitor": "entertainment center, home theater, monitor, screen, television",
}
BY_COMPANY = {
    "aeroplane": "space shuttle",
    "bottle": "perfume, lotion",
    "cow": "water buffalo, bison",
    "motorbike": "motor scooter",
    "pottedplant": "pot",
    "tvmonitor": "laptop, notebook, desktop computer",
}


def _named(indices):
    return {imagenet.names()[index] for index in indices}


@pytest.mark.parametrize("name", BY_WORDNET)
def test_wordnet_takes_out_kinds_parts_kin_and_what_mentions_a_class(without_company, name):
    found = _named(giveaways(name))
    assert not set(BY_WORDNET[name].split(", ")) - found
    assert len(found) < 40  # most of the thousand has nothing to do with a class


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_COMPANY)
def test_a_sentence_encoder_takes_out_what_keeps_the_company_of_a_class(name):
    assert not set(BY_COMPANY[name].split(", ")) - _named(_company(_names(name)))


@pytest.mark.slow
def test_most_of_the_thousand_stays_for_ten_unseen_classes():
    unseen = protocols.get("voc-zs3-10").vocabulary.unseen
    out = set().union(*map(giveaways, unseen))
    assert 100 < len(out) <= 250
    assert not _named(out) & {"zebra", "sunglasses", "violin", "castle", "goldfish", "volcano"}


@pytest.mark.parametrize("subset", ["imagenet-12k", "imagenet-22k"])
def test_of_12k_and_22k_names_every_kind_of_a_class_by_wordnets_hypernyms_is_taken_out(subset):
    """What has the class above it, found by climbing from every name on its own."""
    rows = lexicon.rows()
    entries, numbers = imagenet.entries_of(subset), {row.entry: number for number, row in enumerate(rows)}

    def above(row):
        kinds = lexicon.relations()[row][0]
        return {row, *kinds}.union(*map(above, kinds))

    for name, first, at_least in (("sofa", "sofa", 5), ("aeroplane", "airplane", 10), ("motorbike", "motorcycle", 2)):
        (top,) = (row for row, each in enumerate(rows) if each.entry.names[0] == first)
        kinds = {index for index, entry in enumerate(entries) if entry in numbers and top in above(numbers[entry])}
        out = giveaways(name, subset)
        assert len(kinds) >= at_least
        assert kinds <= set(out)
        assert {out[index] for index in kinds} <= {"name", "kind"}
        assert len(out) < 0.05 * len(entries)  # most names have nothing to do with a class
        kept = {each for index, entry in enumerate(entries) if index not in out for each in entry.names}
        assert {"grass", "zebra", "volcano"} <= kept


def test_every_reason_is_told(without_company):
    why = {imagenet.names()[index]: reason for index, reason in giveaways("aeroplane").items()}
    assert (why["plane"], why["airliner"], why["wing"]) == ("name", "kind", "part")
    assert (why["aircraft carrier"], why["airship"]) == ("gloss", "kin")


def test_a_name_that_is_in_no_dictionary_takes_out_nothing(without_company):
    assert giveaways("nothing of this kind at all xyz") == {}


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ("Cow", "cow"),
        ("airplane", "aeroplane"),
        ("motorcycle", "motorbike"),
        ("couch|settee", "sofa"),
        ("tv", "tvmonitor"),
        ("airplanes", "aeroplane"),
        ("dining-table", "diningtable"),
        ("couches", "sofa"),
        ("automobile", "car"),
        ("houseplant", "pottedplant"),
    ],
)
def test_names_are_taken_out_however_a_class_is_written(without_company, other, name):
    assert giveaways(name)
    assert set(giveaways(name)) <= set(giveaways(other))


def test_a_description_hides_nothing_and_shows_nothing(without_company):
    assert giveaways("cow: a farm animal near a zebra") == giveaways("cow")
    assert giveaways("sofa|couch: a soft seat") == giveaways("sofa|couch")


def test_relations_are_those_of_wordnet():
    rows = lexicon.rows()
    by_name = {row.entry.names[0]: number for number, row in enumerate(rows) if row.first}
    kinds, wholes = lexicon.relations()[by_name["wing"]]
    assert [rows[row].entry.names[0] for row in kinds] == ["airfoil"]
    assert [rows[row].entry.names[0] for row in wholes] == ["airplane"]
    assert len(lexicon.relations()) == len(rows)
    assert all(0 <= row < len(rows) for each in lexicon.relations() for group in each for row in group)
