"""Which names of an ImageNet give a class away that nobody may have taught: by rule, for any class.

A name is taken out for a class for the first of these reasons that holds. "The class" is any of its names, WordNet's
among them; kinds and wholes are WordNet's.

1. name: one of its names has the class in it ("wine bottle", "plane").
2. kind: it is a kind of the class ("ox" of cattle).
3. part: it, or what it is a kind of, is a part of the class, of a kind of the class or of what the class is a kind of
   (a disk brake is a brake system, a part of motor vehicles); or the class is a part of it.
4. gloss: its dictionary entry mentions the class or a kind of it ("a large warship that carries planes"), or the entry
   of the class mentions it.
5. kin: both are kinds of one thing that few of the thousand are kinds of ("airship" is an aircraft too).
6. company, for the thousand only: it is among the nearest to the class in the space of a sentence encoder that travels
   with joem, or nearly so and WordNet has it right beside one that is ("perfume" for bottle, "lotion" beside perfume).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from joem.semantics import imagenet, lexicon
from joem.semantics.class_names import described

if TYPE_CHECKING:
    from torch import Tensor

_KIN_STEPS, _KIN = 2, 8  # how far up, and how many of the thousand what they have in common may have below it
_NEAREST, _NEAR = 12, 40  # of the thousand
_BROAD = 60  # of the thousand: what more of them are kinds of says nothing of a class by its parts
_KINGDOMS = ("person", "animal", "plant", "artifact")  # a class of one is never meant by a word for another


@cache
def giveaways(name: str, subset: str = imagenet.FIRST) -> Mapping[int, str]:
    """The classes of an ImageNet, of its thousand if no other is named, that give a class away: index -> why.

    Alternatives ("sofa|couch") are looked up each on its own; a description after a colon is left out.

    >>> found = giveaways("motorbike")
    >>> {imagenet.names()[index]: found[index] for index in (518, 535, 665)}
    {'crash helmet': 'gloss', 'disk brake': 'part', 'moped': 'kind'}
    """
    found: dict[int, str] = {}
    for each in described(name)[0].split("|"):
        if each.strip():
            for index, why in _of_one(each.strip(), subset).items():
                found.setdefault(index, why)
    return dict(sorted(found.items()))


def _of_one(name: str, subset: str) -> dict[int, str]:
    names = _names(name)
    senses, best = _senses(names)
    kinds = frozenset(row for row in range(len(lexicon.rows())) if not _with_kinds(row).isdisjoint(senses))
    around = frozenset(above for row in best for above in _with_kinds(row) if _below(above) <= _BROAD)
    words = names | _words_for(kinds)
    kin = _kin(best)
    own = set(_phrases(lexicon.rows()[row].entry.gloss for row in best))
    named, told = _perhaps_mentioning(names, subset), _perhaps_mentioning(words, subset)
    found: dict[int, str] = {}
    for index, (entry, row) in enumerate(zip(imagenet.entries_of(subset), _rows_of(subset), strict=True)):
        if index in named and not names.isdisjoint(_phrases(entry.names)):
            found[index] = "name"
        elif row in kinds:
            found[index] = "kind"
        elif row is not None and (
            _is_part(row, kinds | around) or any(not _wholes(sense).isdisjoint({row}) for sense in senses)
        ):
            found[index] = "part"
        elif (index in told and not words.isdisjoint(_phrases([entry.gloss]))) or not own.isdisjoint(
            each.casefold() for each in entry.names
        ):
            found[index] = "gloss"
        elif row is not None and not kin.isdisjoint(_with_kinds(row)):
            found[index] = "kin"
    for index in _company(names) if subset == imagenet.FIRST else ():
        found.setdefault(index, "company")
    return found


def _names(name: str) -> frozenset[str]:
    """All names of a class: its own, as running text has it, and other words for it."""
    forms = {*lexicon.singulars(name), *chain.from_iterable(map(lexicon.singulars, lexicon.listed(name)))}
    forms |= {lexicon.WRITTEN_APART.get(form, form) for form in forms}
    return frozenset(re.sub(r"[\s_-]+", " ", form) for form in forms)


def _senses(names: frozenset[str]) -> tuple[frozenset[int], list[int]]:
    """What the names may mean in WordNet, and what most of them mean."""
    shared = Counter(row for name in {lexicon.plain(name) for name in names} for row in _rows_by_name().get(name, ()))
    if not shared:
        return frozenset(), []
    best = max(shared, key=lambda row: (shared[row], bool(lexicon.rows()[row].first), _depth(row), -row))
    alike = frozenset(row for row in shared if _kingdom(row) == _kingdom(best))
    return alike, [row for row in alike if shared[row] == shared[best]]


def _words_for(kinds: frozenset[int]) -> set[str]:
    """Words that at least half of the time mean one of these kinds, without short forms ("bullet" for a train)."""
    found = set()
    for row in kinds:
        names = lexicon.rows()[row].entry.names
        for name in names:
            of = _rows_by_name()[lexicon.plain(name)]
            short = any(other.startswith(f"{name} ") for other in names)
            if not short and 2 * len(kinds & of) >= len(of):
                found.add(name.casefold())
    return found


@cache
def _rows_by_name() -> Mapping[str, frozenset[int]]:
    """The rows of every name of the lexicon and of its singulars, as `lexicon.plain` has them."""
    found: dict[str, set[int]] = {}
    for row, each in enumerate(lexicon.rows()):
        for name in each.entry.names:
            for form in lexicon.singulars(name):
                found.setdefault(lexicon.plain(form), set()).add(row)
    return {name: frozenset(rows) for name, rows in found.items()}


def _phrases(texts: Iterable[str]) -> Iterator[str]:
    """Everything that texts mention: up to four words in a row, as they are and in the singular."""
    longest = 4
    for text in texts:
        tokens = _tokens(text)
        for start in range(len(tokens)):
            for stop in range(start + 1, min(start + longest, len(tokens)) + 1):
                yield from lexicon.singulars(" ".join(tokens[start:stop]))


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _perhaps_mentioning(words: frozenset[str] | set[str], subset: str) -> set[int]:
    """The classes whose names or glosses have the first part of one of the words in them: few of twenty thousand."""
    known = _classes_by_token(subset)
    return set().union(*(known.get(first, ()) for word in words for first in _tokens(word)[:1]))


@cache
def _classes_by_token(subset: str) -> Mapping[str, set[int]]:
    """The classes of an ImageNet by what their names and glosses consist of, as it is and in the singular."""
    forms: dict[str, list[str]] = {}
    found: dict[str, set[int]] = {}
    for index, entry in enumerate(imagenet.entries_of(subset)):
        for token in _tokens(" ".join([*entry.names, entry.gloss])):
            if token not in forms:
                forms[token] = lexicon.singulars(token)
            for form in forms[token]:
                found.setdefault(form, set()).add(index)
    return found


def _is_part(row: int, wholes: frozenset[int]) -> bool:
    return any(not _wholes(each).isdisjoint(wholes) for each in _with_kinds(row))


def _kin(senses: Sequence[int]) -> frozenset[int]:
    """What the class is a kind of, a few steps up, where few of the thousand are."""
    found, level = set(), set(senses)
    for _ in range(_KIN_STEPS):
        level = {above for row in level for above in _relations()[row][0]}
        found |= {row for row in level if _below(row) <= _KIN}
    return frozenset(found)


def _company(names: frozenset[str]) -> set[int]:
    """The nearest of the thousand by a sentence encoder, and those that are near and beside one of them in WordNet."""
    from joem.semantics.space import load

    words = load("minilm", normalise="l2").vectors(sorted(names)).mean(dim=0)
    order = (_vectors() @ words).argsort(descending=True, stable=True).tolist()
    beside = {above for index in order[:_NEAREST] for above in _relations()[_thousand()[index]][0]}
    few = {row for row in beside if _below(row) <= _KIN}
    near = {index for index in order[:_NEAR] if not few.isdisjoint(_relations()[_thousand()[index]][0])}
    return {*order[:_NEAREST], *near}


@cache
def _vectors() -> "Tensor":
    from joem.semantics.space import load

    return load("minilm", normalise="l2").vectors(imagenet.names())


@cache
def _thousand() -> tuple[int, ...]:
    """The rows of the lexicon that are the thousand, in ImageNet's order."""
    rows = [(int(row.first), number) for number, row in enumerate(lexicon.rows()) if row.first]
    return tuple(number for _, number in sorted(rows))


@cache
def _rows_of(subset: str) -> tuple[int | None, ...]:
    """Where the classes of an ImageNet are in the lexicon; None where one is not."""
    if subset == imagenet.FIRST:
        return _thousand()
    numbers = {row.entry: number for number, row in enumerate(lexicon.rows())}
    return tuple(numbers.get(entry) for entry in imagenet.entries_of(subset))


@cache
def _relations() -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
    """What every row is a kind of, and what it is a part of."""
    lines = lexicon.relations()
    return tuple((frozenset(kinds), frozenset(wholes)) for kinds, wholes in lines)


def _wholes(row: int) -> frozenset[int]:
    return _relations()[row][1]


@cache
def _with_kinds(row: int) -> frozenset[int]:
    """A row and all that it is a kind of."""
    return frozenset({row}).union(*(_with_kinds(above) for above in _relations()[row][0]))


@cache
def _counts() -> Counter[int]:
    return Counter(above for row in _thousand() for above in _with_kinds(row))


def _below(row: int) -> int:
    """How many of the thousand are kinds of a row."""
    return _counts()[row]


def _depth(row: int) -> int:
    return len(_with_kinds(row))


@cache
def _kingdoms() -> tuple[int, ...]:
    rows = lexicon.rows()
    return tuple(
        min((row for row, each in enumerate(rows) if each.entry.names[0] == name), key=_depth) for name in _KINGDOMS
    )


def _kingdom(row: int) -> int | None:
    return next((each for each in _kingdoms() if each in _with_kinds(row)), None)
