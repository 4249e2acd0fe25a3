"""The thousand classes of ImageNet and their names.

A backbone trained on ImageNet comes with a classifier for these names, so a model can learn from more words than it has
masks for. `giveaways` says which of them would give a held-out class away.
"""

from functools import cache

from joem.errors import choose
from joem.semantics import lexicon
from joem.semantics.lexicon import Entry

FIRST = "imagenet-1k"
SUBSETS = (FIRST, "imagenet-12k", "imagenet-22k", "imagenet-21k-goog", "imagenet-21k-miil", "imagenet-22k-ms")
"""The ImageNets that classifiers of timm were trained on; the last three in the order that timm has them in."""


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
