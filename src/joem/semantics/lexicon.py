"""Names as people write them: case, plurals, hyphens and other words for the same thing lead to the class they mean."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice

from joem.errors import JoemError

# Names for one thing, the datasets' own names first. WordNet's lemmas (`_synsets`) add to them where a word has one
# meaning only.
_SAME = (
    ("aeroplane", "airplane", "plane"),
    ("bicycle", "bike", "pushbike"),
    ("motorbike", "motorcycle", "motor bike", "motor cycle"),
    ("car", "auto", "automobile", "motorcar"),
    ("truck", "lorry"),
    ("train", "railway train", "railroad train"),
    ("cow", "cattle"),
    ("person", "human", "human being", "people", "persons", "folk"),
    ("sofa", "couch", "settee"),
    ("diningtable", "dining table", "dinner table", "table"),
    ("pottedplant", "potted plant", "houseplant", "house plant", "pot plant"),
    ("tvmonitor", "tv monitor", "tv", "television", "television set", "tv set", "telly", "monitor"),
    ("bedcloth", "bedclothes", "bedding"),
    ("cell phone", "cellphone", "mobile phone", "mobile", "smartphone"),
    ("refrigerator", "fridge"),
    ("donut", "doughnut"),
    ("hair drier", "hair dryer", "hairdryer"),
    ("handbag", "purse"),
    ("sidewalk", "pavement", "footpath"),
    ("ground", "earth"),
    ("sea", "ocean"),
    ("curtain", "drape"),
    ("stairs", "stairway", "staircase", "steps"),
    ("ashcan", "trash can", "garbage can", "rubbish bin", "dustbin"),
    ("signboard", "sign"),
    ("playingfield", "playing field"),
)
_FREQUENT = 100_000  # of GloVe's words; rarer ones are mostly slips and names
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
    return re.sub(r"[\s_-]+", "", name).casefold()


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
    forms = {plain(form) for form in singulars(name)}
    for group in _SAME:
        if forms & {plain(each) for each in group}:
            yield from group
    lemmas = _synsets()
    for form in singulars(name):
        yield from lemmas.get(plain(form), ())


@cache
def _synsets() -> dict[str, tuple[str, ...]]:
    """The lemmas that share a meaning with a word, for the words that have one meaning only."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for group in _names_22k():
        for lemma in group:
            groups.setdefault(plain(lemma), []).append(group)
    return {word: found[0] for word, found in groups.items() if len(found) == 1}


@cache
def _names_22k() -> tuple[tuple[str, ...], ...]:
    """The names of every class of ImageNet-22k."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-22k")
    return tuple(
        tuple(lemma.strip() for lemma in info.index_to_description(index).split(","))
        for index in range(info.num_classes())
    )


@cache
def _words_22k() -> frozenset[str]:
    return frozenset(word for group in _names_22k() for lemma in group for word in _words(lemma))


@cache
def _frequent_words() -> frozenset[str]:
    """The most frequent of GloVe's words; none where it is not installed."""
    try:
        from joem.semantics.glove import Glove

        return frozenset(islice(Glove().words(), _FREQUENT))
    except (ImportError, JoemError):  # the package says how to install it where it is asked for by name
        return frozenset()


def unknown_words(name: str) -> list[str]:
    """The words of a name that are in no lexicon at hand: ImageNet-22k's names and GloVe's frequent words.

    >>> unknown_words("red cupp")
    ['cupp']
    """
    unknown = [word for word in _words(name) if not any(form in _words_22k() for form in singulars(word))]
    return [word for word in unknown if word not in _frequent_words()]


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", text.casefold())


def near_words(word: str, most: int = 3) -> list[str]:
    """Known words that are spelled like one that is not."""
    for known in (_words_22k(), _frequent_words()):
        candidates = sorted(each for each in known if each[:1] == word[:1] and abs(len(each) - len(word)) <= 2)
        found = get_close_matches(word, candidates, n=most)
        if found:
            return found
    return []
