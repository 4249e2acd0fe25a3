"""The thousand classes of ImageNet: their names, and which of them are kinds of a given class.

A backbone trained on ImageNet comes with a classifier for these names, so a model can learn from more words than it has
masks for. `kinds_of` lists those of them that would give a held-out class away.
"""

from functools import cache

from joem.errors import choose
from joem.semantics import lexicon
from joem.semantics.class_names import described
from joem.semantics.lexicon import Entry

FIRST = "imagenet-1k"
SUBSETS = (FIRST, "imagenet-12k", "imagenet-22k", "imagenet-21k-goog", "imagenet-21k-miil", "imagenet-22k-ms")
"""The ImageNets that classifiers of timm were trained on; the last three in the order that timm has them in."""

# ImageNet's classes that are the class itself, a kind of it or a part of it. Ranges are first and last index.
_KINDS: dict[str, tuple[int | tuple[int, int], ...]] = {
    "aeroplane": (404, 895, 908),
    "bicycle": (444, 671),
    "bird": ((7, 24), (80, 100), (127, 146)),
    "boat": (403, 472, 484, 510, 554, 576, 625, 628, 694, 724, 780, 814, 833, 871, 913, 914),
    "bottle": (440, 455, 680, 720, 737, 898, 899, 901, 907),
    "bus": (654, 779, 874),
    "car": (407, 436, 468, 475, 479, 511, 581, 609, 627, 656, 661, 717, 734, 751, 817),
    "cat": ((281, 293),),
    "chair": (423, 559, 765, 857),
    "cow": (345, 346, 347),
    "diningtable": (532,),
    "dog": ((151, 268), (273, 275)),
    "horse": (339,),
    "keyboard": (508, 810, 878),
    "fence": (489, 716, 912),
    "motorbike": (665, 670),
    "person": ((981, 983),),
    "pottedplant": (738,),
    "sheep": (348, 349),
    "sofa": (831,),
    "train": (466, 547, 565, 705, 820, 829),
    "tvmonitor": (527, 548, 598, 664, 782, 851),
}


@cache
def synonyms() -> tuple[tuple[str, ...], ...]:
    """The names of every class, in ImageNet's order.

    >>> synonyms()[404], synonyms()[831]
    (('airliner',), ('studio couch', 'day bed'))
    """
    return tuple(entry.names for entry in lexicon.entries("imagenet-1k"))


def names() -> tuple[str, ...]:
    """The first name of every class, in ImageNet's order.

    >>> len(names()), names()[345]
    (1000, 'ox')
    """
    return tuple(each[0] for each in synonyms())


@cache
def meanings() -> tuple[str, ...]:
    """The first name of every class with its definition in WordNet: "ox" alone is ambiguous.

    >>> meanings()[345]
    'ox, an adult castrated bull of the genus Bos'
    """
    return tuple(meaning(entry) for entry in lexicon.entries("imagenet-1k"))


@cache
def entries_of(subset: str) -> tuple[Entry, ...]:
    """The classes of an ImageNet, in the order of its classifiers.

    >>> len(entries_of("imagenet-12k")), len(entries_of("imagenet-22k"))
    (11821, 21841)
    """
    if choose("ImageNet", subset, SUBSETS) in SUBSETS[:3]:
        return lexicon.entries(subset)
    from timm.data import ImageNetInfo

    known = ImageNetInfo(subset)
    pairs = (known.index_to_description(index, detailed=True).split(": ", 1) for index in range(known.num_classes()))
    return tuple(Entry(tuple(each[0].split(", ")), each[-1]) for each in pairs)


def meaning(entry: Entry) -> str:
    """The first name of a class with its definition."""
    return f"{entry.names[0]}, {entry.gloss.partition(';')[0]}"


@cache
def kinds_among(name: str, subset: str) -> frozenset[int]:
    """The classes of an ImageNet that are a class, a kind of it or a part of it, as far as names and glosses tell.

    Of the thousand those of `kinds_of`. Of larger sets every class one of whose names ends like a name of these, and
    every class whose definition mentions one: rather too many than one too few.

    >>> names = [entries_of("imagenet-22k")[index].names[0] for index in kinds_among("cow", "imagenet-22k")]
    >>> "heifer" in names, "ox" in names, "airliner" in names
    (True, True, False)
    """
    if subset == FIRST:
        return kinds_of(name)
    given = {each.lower() for index in kinds_of(name) for each in synonyms()[index]}
    parts = [part.strip().lower() for part in described(name)[0].split("|")]
    words = {text.lower() for part in parts for text in (part, lexicon.plain(part), *lexicon.singulars(part)) if text}
    for entry in entries_of(subset):  # its other names: a sofa is a couch
        names = {each.lower() for each in entry.names}
        if names & words and len(names & words) < len(names):
            given |= names
    ends = {text.split()[-1] for text in words | given}
    found = set()
    for index, entry in enumerate(entries_of(subset)):
        names = {each.lower() for each in entry.names}
        told = set(entry.gloss.lower().replace(";", " ").replace(",", " ").split())
        if any(each.split()[-1] in ends for each in names) or told & (given | words):
            found.add(index)
    return frozenset(found)


def kinds_of(name: str) -> frozenset[int]:
    """The classes of ImageNet that are a class, a kind of it or a part of it.

    The classes of PASCAL VOC and the unseen ones of PASCAL Context were looked up by hand; for every name, each class
    one of whose names ends with it counts too. Alternatives ("sofa|couch") are looked up each on its own, and a
    description after a colon is left out.

    >>> sorted(kinds_of("cow")), [names()[index] for index in sorted(kinds_of("tractor"))]
    ([345, 346, 347], ['tractor'])
    """
    found: set[int] = set()
    for part in described(name)[0].split("|"):
        plain = lexicon.meant(part.strip(), _KINDS) or part.strip().lower()
        spans = ((each, each) if isinstance(each, int) else each for each in _KINDS.get(plain, ()))
        found |= {index for first, last in spans for index in range(first, last + 1)}
        ends = {text.split()[-1] for text in (plain, *lexicon.singulars(part)) if text.split()}
        found |= {
            index for index, each in enumerate(synonyms()) if any(other.lower().split()[-1] in ends for other in each)
        }
    return frozenset(found)
