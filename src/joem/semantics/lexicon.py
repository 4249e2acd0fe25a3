"""Names as people write them, and the lexica that joem ships: other words, spellings, WordNet's glosses."""

import gzip
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from joem import checksums

# Names for one thing, the datasets' own first. A word table may hold either of two joined by "=", so both are looked up
# there; the others are other words. WordNet's lemmas (`_meanings`) add to them where a word has one meaning only.
_SAME = """
    aeroplane = airplane, plane
    bicycle, bike, pushbike
    motorbike = motorcycle, motor bike, motor cycle
    car, auto, automobile, motorcar
    truck, lorry
    train, railway train, railroad train
    cow, cattle
    person, human, human being, people, persons, folk
    sofa, couch, settee
    diningtable = dining table, dinner table, table
    pottedplant = potted plant, houseplant, house plant, pot plant
    tvmonitor = tv monitor, tv, television, television set, tv set, telly, monitor
    bedcloth = bedclothes, bedding
    cell phone, cellphone, mobile phone, mobile, smartphone
    refrigerator, fridge
    donut, doughnut
    hair drier, hair dryer, hairdryer
    handbag, purse
    sidewalk, pavement, footpath
    ground, earth
    sea, ocean
    curtain, drape
    stairs, stairway, staircase, steps
    ashcan, trash can, garbage can, rubbish bin, dustbin
    signboard, sign
    playingfield = playing field
    waterdrops = water drops
"""
_GROUPS = [re.split(r"\s*[=,]\s*", line.strip()) for line in _SAME.strip().splitlines()]
_PAIRS = [group[:2] for group, line in zip(_GROUPS, _SAME.strip().splitlines(), strict=True) if "=" in line]

OTHER_SPELLING = {a: b for pair in _PAIRS for a, b in (pair, reversed(pair))}
"""The datasets' own names and how running text has them, in both directions."""

WRITTEN_APART = {name: other for name, other in _PAIRS if " " in other}
"""Class names of VOC, Context and COCO-Stuff that run words together, as running text has them."""

_GAPS, _WORD = re.compile(r"[\s_-]+"), re.compile(r"[^\W\d_]{2,}")
_LEXICON = Path(__file__).parents[1] / "words" / "lexicon"
_LARGER = {"imagenet-12k": {"12"}, "imagenet-22k": {"12", "22"}}
_FREQUENT = 100_000  # of GloVe's words; rarer ones are mostly slips and names
_CANDIDATES = 20_000  # a hint is not worth comparing with millions of words
_IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose",
    "feet": "foot", "teeth": "tooth", "oxen": "ox", "leaves": "leaf", "shelves": "shelf", "knives": "knife",
    "wolves": "wolf", "loaves": "loaf", "calves": "calf", "halves": "half", "wives": "wife",
}  # fmt: skip


def plain(name: str) -> str:
    """A name without what spelling varies: case, spaces, hyphens, underscores.

    >>> plain("Dining-Table") == plain("diningtable")
    True
    """
    return _GAPS.sub("", name).casefold()


def singulars(name: str) -> list[str]:
    """What a name may be the plural of, itself first.

    >>> singulars("dining tables"), singulars("buses"), singulars("glass")
    (['dining tables', 'dining table'], ['buses', 'buse', 'bus'], ['glass'])
    """
    head, last = re.match(r"(.*?)([^\s_-]*)\Z", name.strip().casefold(), re.DOTALL).groups()  # type: ignore[union-attr]
    found = [last]
    if last in _IRREGULAR:
        found.append(_IRREGULAR[last])
    elif last.endswith("ies") and len(last) > 4:
        found += [last[:-3] + "y", last[:-1]]
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")) and len(last) > 3:
        found.append(last[:-1])
        if last.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
            found.append(last[:-2])
    return [head + each for each in found]


def meant(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that a name means, if any.

    >>> [meant(name, ["aeroplane", "person", "tvmonitor"]) for name in ("Airplanes", "people", "TV", "cat")]
    ['aeroplane', 'person', 'tvmonitor', None]
    """
    listed = list(known)
    if name in listed:
        return name
    by_spelling = {plain(each): each for each in reversed(listed)}
    by_singular = {plain(form): each for each in reversed(listed) for form in singulars(each)}
    for forms in (singulars(name), _other_words(name)):
        for form in forms:
            found = by_spelling.get(plain(form)) or by_singular.get(plain(form))
            if found is not None:
                return found
    return None


def _other_words(name: str) -> Iterator[str]:
    """Other words for the same thing, from the table above and from WordNet."""
    yield from listed(name)
    for form in singulars(name):
        meanings = _meanings(plain(form))
        if len(meanings) == 1:
            yield from meanings[0].names


def listed(name: str) -> Iterator[str]:
    """Other words for the same thing, from the table above."""
    forms = {plain(form) for form in singulars(name)}
    for group in _GROUPS:
        if forms & {plain(each) for each in group}:
            yield from group


class Entry(NamedTuple):
    """A class of ImageNet in WordNet: its names, and what they mean."""

    names: tuple[str, ...]
    gloss: str


@cache
def entries(which: str = "imagenet-22k") -> tuple[Entry, ...]:
    """The classes of an ImageNet (imagenet-1k, -12k, -22k), in its order.

    >>> entries("imagenet-1k")[345]
    Entry(names=('ox',), gloss='an adult castrated bull of the genus Bos; especially Bos taurus')
    """
    if which == "imagenet-1k":  # the others begin with a tab, and there are many of them
        rows = [_row(line) for line in _wordnet() if not line.startswith("\t")]
        return tuple(row.entry for row in sorted(rows, key=lambda row: int(row.first)))
    return tuple(row.entry for row in map(_row, _wordnet()) if row.larger in _LARGER[which])


class Row(NamedTuple):
    """A line of the lexicon: an entry, its index among the thousand, and which larger ImageNet has it."""

    first: str
    larger: str
    entry: Entry


def _row(line: str) -> Row:
    first, larger, names, gloss = line.split("\t")
    return Row(first, larger, Entry(tuple(names.split(", ")), gloss))


@cache
def _wordnet() -> tuple[str, ...]:
    return _lines("wordnet.tsv.gz")


@cache
def rows() -> tuple[Row, ...]:
    """Everything that an ImageNet has, in the order of the file."""
    return tuple(map(_row, _wordnet()))


@cache
def relations() -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """For every row, which rows it is a kind of and which it is a part, a member or a substance of, in WordNet.

    >>> airliner = next(number for number, row in enumerate(rows()) if row.first == "404")
    >>> [rows()[above].entry.names[0] for above in relations()[airliner][0]]
    ['airplane']
    """
    lines = (*_lines("wordnet-relations.tsv.gz"), *("" for _ in rows()))[: len(rows())]  # the last have none
    parts = (line.partition("\t") for line in lines)
    return tuple((tuple(map(int, kinds.split())), tuple(map(int, wholes.split()))) for kinds, _, wholes in parts)


@cache
def glove_words() -> tuple[str, ...]:
    """The words of GloVe 6B, most frequent first.

    >>> len(glove_words()), glove_words()[:3]
    (400000, ('the', ',', '.'))
    """
    return _lines("glove-words.txt.gz")


def _lines(file: str) -> tuple[str, ...]:
    checksums.check(_LEXICON, "joem/words/lexicon", "Install joem again.")
    return tuple(gzip.decompress((_LEXICON / file).read_bytes()).decode("utf-8").rstrip("\n").split("\n"))


def _meanings(word: str) -> list[Entry]:
    """The entries of ImageNet-22k that have a word, as `plain` gives it, among their names."""
    return [_row(_wordnet()[number]).entry for number in _numbers().get(word, [])]


@cache
def _numbers() -> dict[str, list[int]]:
    """In which lines of the lexicon the names of ImageNet-22k are, by what `plain` makes of them."""
    rows = [line.split("\t", 3) for line in _wordnet()]
    names = re.sub(r"[ _-]+", "", "\n".join(names if larger else "" for _, larger, names, _ in rows)).casefold()
    found: dict[str, list[int]] = {}
    for number, line in enumerate(names.split("\n")):
        for name in filter(None, line.split(",")):
            found.setdefault(name, []).append(number)
    return found


def gloss(name: str) -> str | None:
    """What WordNet says a name means; None where ImageNet-22k does not have it.

    Of several meanings it is the one that has most of the name's other words, then one that begins with the name, then
    one with pictures enough to be in ImageNet-12k: an ambiguous word ("mouse") may get another than is meant.

    >>> gloss("Motorbikes")
    'a motor vehicle with two wheels and a strong frame'
    """
    forms = [*singulars(name), *(OTHER_SPELLING.get(form, form) for form in singulars(name))]
    own = {plain(form) for form in forms}
    others = {plain(word) for word in listed(name)} - own

    def fit(entry: Entry) -> tuple[int, bool, bool, bool, int]:
        names = [plain(each) for each in entry.names]
        shared = 2 * (not own.isdisjoint(names)) + len(others.intersection(names))
        return shared, names[0] in own, not others.isdisjoint(_words(entry.gloss)), entry in _entries_12k(), -len(names)

    found = [entry for word in sorted(own | others) for entry in _meanings(word)]
    return max(found, key=fit).gloss if found else None


@cache
def _entries_12k() -> frozenset[Entry]:
    return frozenset(entries("imagenet-12k"))


def is_noun(word: str) -> bool:
    """Whether ImageNet-22k has something of exactly this name.

    >>> is_noun("grass"), is_noun("quickly")
    (True, False)
    """
    return plain(word) in _numbers()


@cache
def _words_22k() -> frozenset[str]:
    rows = (line.split("\t", 3) for line in _wordnet())
    return frozenset(_words("\n".join(names for _, larger, names, _ in rows if larger)))


@cache
def _frequent_words() -> frozenset[str]:
    """The most frequent of GloVe's words."""
    return frozenset(glove_words()[:_FREQUENT])


def unknown_words(name: str) -> list[str]:
    """The words of a name that are in no lexicon at hand: ImageNet-22k's names and GloVe's frequent words.

    >>> unknown_words("red cupp")
    ['cupp']
    """
    unknown = [word for word in _words(name) if not any(form in _words_22k() for form in singulars(word))]
    return [word for word in unknown if word not in _frequent_words()]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def near_words(word: str) -> list[str]:
    """Known words that are spelled like one that is not."""
    return spelled_like(word, _words_22k()) or spelled_like(word, _frequent_words())


def spelled_like(word: str, known: Iterable[str]) -> list[str]:
    """The three known words that are spelled most like a word, of those that begin alike; fewer if few are alike.

    >>> spelled_like("cupp", ["cups", "cup", "cow"])
    ['cup', 'cups']
    """
    similar = (each for each in known if each[:1] == word[:1] and abs(len(each) - len(word)) <= 2)
    return get_close_matches(word, islice(similar, _CANDIDATES), n=3)
