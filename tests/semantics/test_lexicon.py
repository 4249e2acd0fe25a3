"""Names as people write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import protocols
from joem.semantics import lexicon

VOC = protocols.get("voc-zs3-2").vocabulary.names
CONTEXT = protocols.get("context-zs3-2").vocabulary.names
COCO = protocols.get("cocostuff-spnet").vocabulary.names


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Person", "person"),
        ("people", "person"),
        ("dining table", "diningtable"),
        ("Dining-Tables", "diningtable"),
        ("airplane", "aeroplane"),
        ("Planes", "aeroplane"),
        ("tv", "tvmonitor"),
        ("television", "tvmonitor"),
        ("couch", "sofa"),
        ("cows", "cow"),
        ("motorcycles", "motorbike"),
        ("automobile", "car"),
        ("buses", "bus"),
        ("potted_plant", "pottedplant"),
        ("houseplants", "pottedplant"),
    ],
)
def test_what_people_type_leads_to_the_class_they_mean(typed, name):
    assert lexicon.meant(typed, VOC) == name


@pytest.mark.parametrize("typed", ["grass", "machine", "wheel", "kitten", "men", "plants", "tractor", "glass", "boaty"])
def test_other_things_lead_nowhere(typed):
    assert lexicon.meant(typed, VOC) is None


def test_a_name_of_its_own_comes_before_one_that_is_an_alias():
    assert lexicon.meant("table", COCO) == "table"
    assert lexicon.meant("dining table", COCO) == "dining table"
    assert lexicon.meant("couch", COCO) == "couch"
    assert lexicon.meant("sofa", COCO) == "couch"
    assert lexicon.meant("shelf", CONTEXT) == "shelves"


@pytest.mark.parametrize("names", [VOC, CONTEXT, COCO])
def test_every_class_means_itself(names):
    assert [lexicon.meant(name, names) for name in names] == list(names)


@settings(deadline=None)  # the first call reads the lexicons
@given(st.text(max_size=20))
def test_any_text_is_answered(text):
    assert lexicon.meant(text, VOC) in {None, *VOC}
    assert all(word in text.casefold() for word in lexicon.unknown_words(text))


def test_words_in_no_lexicon_are_found_with_near_ones():
    assert lexicon.unknown_words("zzqxw cupp, red cups") == ["zzqxw", "cupp"]
    assert "cup" in lexicon.near_words("cupp")
    assert lexicon.near_words("zzqxwvvv") == []
    assert lexicon.spelled_like("cupp", ["cups", "cup", "cow", "cuppxyz", "supp"]) == ["cup", "cups"]


def test_glosses_are_of_the_meaning_that_a_class_has():
    glosses = {name: lexicon.gloss(name) for name in VOC}
    assert None not in glosses.values()
    assert glosses["cow"] == "female of domestic cattle"
    assert glosses["motorbike"] == lexicon.gloss("Motorcycles") == "a motor vehicle with two wheels and a strong frame"
    assert glosses["tvmonitor"] == lexicon.gloss("TV") == lexicon.gloss("television")
    assert glosses["person"] == "a human being"
    assert glosses["sofa"] == lexicon.gloss("couches") == "an upholstered seat for more than one person"
    assert glosses["bird"].startswith("warm-blooded egg-laying vertebrates")  # and no shuttlecock
    assert lexicon.gloss("zzqxw") is None


def test_pairs_of_spellings_serve_in_both_directions():
    assert lexicon.OTHER_SPELLING["tvmonitor"] == lexicon.WRITTEN_APART["tvmonitor"] == "tv monitor"
    assert lexicon.OTHER_SPELLING["airplane"] == "aeroplane"
    assert "aeroplane" not in lexicon.WRITTEN_APART
    assert "car" not in lexicon.OTHER_SPELLING  # "auto" is another word, whose vector is another one
    assert all(lexicon.OTHER_SPELLING[other] == name for name, other in lexicon.OTHER_SPELLING.items())
    assert all(lexicon.plain(name) == lexicon.plain(other) for name, other in lexicon.WRITTEN_APART.items())


@pytest.mark.parametrize(("which", "count"), [("imagenet-1k", 1000), ("imagenet-12k", 11821), ("imagenet-22k", 21841)])
def test_the_entries_that_joem_ships_are_those_of_timm(which, count):
    data = pytest.importorskip("timm.data")
    info, found = data.ImageNetInfo(which), lexicon.entries(which)
    assert len(found) == info.num_classes() == count
    for index, entry in enumerate(found):
        assert f"{', '.join(entry.names)}: {entry.gloss}" == info.index_to_description(index, detailed=True)
