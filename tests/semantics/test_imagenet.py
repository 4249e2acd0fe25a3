import pytest

from joem import protocols
from joem.semantics import imagenet

KINDS = {
    "aeroplane": "airliner, warplane, wing",
    "bottle": "beer bottle, bottlecap, nipple, pill bottle, pop bottle, water bottle, water jug, whiskey jug, "
    "wine bottle",
    "cat": "Egyptian cat, Madagascar cat, Persian cat, Siamese cat, cheetah, cougar, jaguar, leopard, lesser panda, "
    "lion, lynx, snow leopard, tabby, tiger, tiger cat",
    "chair": "barber chair, folding chair, rocking chair, throne",
    "cow": "bison, ox, water buffalo",
    "motorbike": "moped, motor scooter",
    "pottedplant": "pot",
    "sheep": "bighorn, ram",
    "sofa": "studio couch",
    "train": "bullet train, electric locomotive, freight car, passenger car, steam locomotive, streetcar",
    "tvmonitor": "desktop computer, entertainment center, home theater, monitor, screen, television",
}


def test_kinds_of_every_unseen_class_of_voc_are_what_they_say():
    unseen = {name for split in ("zs3-10", "spnet") for name in protocols.get(f"voc-{split}").vocabulary.unseen}
    assert unseen == set(KINDS)
    for name, expected in KINDS.items():
        assert ", ".join(sorted(imagenet.names()[index] for index in imagenet.kinds_of(name))) == expected
    assert len(imagenet.names()) == 1000


def test_no_class_is_a_kind_of_two():
    found = [
        imagenet.kinds_of(name) for name in ("bird", "dog", "cat", "boat", "car", "bus", "sheep", "horse", "bottle")
    ]
    assert sum(map(len, found)) == len(set().union(*found))


def test_meanings_are_names_with_their_dictionary_entries():
    assert len(set(imagenet.meanings())) == 1000
    assert imagenet.meanings()[339] == "sorrel, a horse of a brownish orange to light brown color"
    assert all(text.startswith(f"{name}, ") for name, text in zip(imagenet.names(), imagenet.meanings(), strict=True))
    assert not [text for text in imagenet.meanings() if text.endswith(", ")]


def test_kinds_of_other_names_are_found_by_their_last_word():
    assert [imagenet.names()[index] for index in sorted(imagenet.kinds_of("lamp"))] == ["table lamp"]
    assert imagenet.kinds_of("nothing of this kind at all xyz") == frozenset()


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
        ("tv set", "tvmonitor"),
        ("houseplant", "pottedplant"),
    ],
)
def test_kinds_are_found_however_a_class_is_written(other, name):
    assert imagenet.kinds_of(name)
    assert imagenet.kinds_of(name) <= imagenet.kinds_of(other)


def test_a_description_hides_nothing_and_shows_nothing():
    assert imagenet.kinds_of("cow: a farm animal near a zebra") == imagenet.kinds_of("cow")
    assert imagenet.kinds_of("sofa|couch: a soft seat") == imagenet.kinds_of("sofa|couch")
