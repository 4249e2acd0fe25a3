"""The thousand classes of ImageNet and their names.

A backbone trained on ImageNet comes with a classifier for these names, so a model can learn from more words than it has
masks for. `giveaways` says which of them would give a held-out class away.
"""

from functools import cache

from joem.semantics import lexicon


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
    return tuple(f"{entry.names[0]}, {entry.gloss.partition(';')[0]}" for entry in lexicon.entries("imagenet-1k"))
