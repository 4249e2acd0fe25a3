"""What a person asks for, understood: comma lists, other spellings, descriptions, what goes unsaid and what is not."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from joem.errors import BadUsage, UnknownWord
from joem.semantics import alternatives, described, lexicon
from joem.settings import split_names
from joem.vocabulary import OTHER, Vocabulary

Asked = str | Sequence[str] | None
"""Class names as a list or with commas between them; None for those of the model."""

NOT = "not:"
"""What a name begins with that nobody wants: its pixels go to the background, or to `OTHER` where there is none."""


@dataclass(frozen=True)
class Question:
    """The classes that are asked for.

    Attributes:
        names: one name per class, as it was asked for.
        words: the words of every class; those that mean a class of the model are its name there.
        asked: what each class was asked for with; that of several that are one class, joined with "|".
        notes: what was understood otherwise than it was written, one sentence each.
        rest: the class of pixels that nobody wants, where there is one.
        around: the surroundings that the model knows and nobody asked for: their pixels are `rest`'s too.
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...]
    notes: tuple[str, ...] = ()
    rest: str | None = None
    around: tuple[str, ...] = ()


def understand(
    asked: Asked,
    vocabulary: Vocabulary,
    background: bool = True,
    strict_words: bool = False,
    shown: Collection[str] = (),
) -> Question:
    """What is asked for, in terms of the classes of a model.

    Args:
        asked: class names; "sofa|couch" gives one class by several words, the first of which is its name, "okapi: a
            striped animal" describes one, and "not: reflection" takes pixels away from all others.
        vocabulary: the classes of the model.
        background: add the model's background class where the names have none.
        strict_words: refuse words that are in no lexicon, instead of noting them.
        shown: names that are known by examples, which need not be words; `NOT` where some are of nothing wanted.

    >>> vocabulary = Vocabulary(("background", "aeroplane", "cow"), background="background")
    >>> question = understand("Airplanes, tractor, not: cloud", vocabulary)
    >>> question.names, question.words[0], question.words[2]
    (('Airplanes', 'tractor', 'background'), ('aeroplane',), ('background', 'cloud'))
    >>> question.notes
    ('"Airplanes" is the trained class "aeroplane".',)
    """
    own = vocabulary.background
    known = Vocabulary(tuple(dict.fromkeys((*vocabulary.names, *shown))), vocabulary.unseen, own)
    notes: list[str] = []
    wanted, unwanted = (vocabulary.names, ()) if asked is None else _listed(asked)
    groups, texts = _grouped(wanted, known, vocabulary, notes)
    if background and asked is not None and own is not None and not any(own in words for words in groups.values()):
        groups[own], texts[own] = (own,), own
    rest = next((name for name, words in groups.items() if own in words), None)
    away = [word for name in unwanted for word in _words(name, known, vocabulary, notes)]
    away += [NOT] if NOT in shown else []
    if away:
        for name, words in groups.items():
            if set(words) & set(away):
                raise BadUsage(f'"{name}" is both asked for and excluded by "{NOT}": leave one of them out.')
        rest = rest or OTHER
        groups[rest], texts[rest] = tuple(dict.fromkeys((*groups.get(rest, ()), *away))), texts.get(rest, rest)
    _check_words(groups, known, strict_words, notes)
    used = {word for words in groups.values() for word in words}
    around = () if rest is None else tuple(name for name in vocabulary.taught if name not in used)
    return Question(tuple(groups), tuple(groups.values()), tuple(texts.values()), tuple(notes), rest, around)


def _listed(asked: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that are asked for and those that are excluded, each once."""
    names = list(split_names(asked))
    if isinstance(asked, str) and not names:
        raise BadUsage(f"No class name is in {asked!r}: give names with commas between them, such as 'cow, grass'.")
    names = list(Vocabulary(tuple(dict.fromkeys(names))).names)
    away = [name for name in names if name.casefold().startswith(NOT)]
    unwanted = tuple(name[len(NOT) :].strip() for name in away)
    if "" in unwanted:
        raise BadUsage(f'"{NOT}" must be followed by what to leave out, such as "{NOT} reflection".')
    wanted = tuple(name for name in names if name not in away)
    if not wanted:
        raise BadUsage(f"Only exclusions are asked for ({', '.join(away)}): name what to look for too.")
    return wanted, unwanted


def _grouped(
    names: Sequence[str], known: Vocabulary, vocabulary: Vocabulary, notes: list[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The words of every class, and the text it was asked for with, both by its title."""
    groups: dict[str, tuple[str, ...]] = {}
    texts: dict[str, str] = {}
    owners: dict[str, str] = {}  # the class of every word
    for name in names:
        words = _words(name, known, vocabulary, notes)
        title = name if name in known.names else described(alternatives(name)[0])[0]
        text = name
        same = {title} | {owners[word] for word in words if word in owners}
        joined = () if same.isdisjoint(groups) else [each for each in groups if each in same]
        for other in joined:
            shared = next((word for word in words if word in groups[other]), title)
            notes.append(f'"{name}" and "{other}" are one class, "{shared}".')
            words = tuple(dict.fromkeys((*groups.pop(other), *words)))
            text, title = "|".join(dict.fromkeys((*texts.pop(other).split("|"), *text.split("|")))), other
        groups[title], texts[title] = words, text
        owners |= dict.fromkeys(words, title)
    return groups, texts


def _words(name: str, known: Vocabulary, vocabulary: Vocabulary, notes: list[str]) -> tuple[str, ...]:
    """The words of one asked class, with those that mean a class of the model under its name there.

    A description is for what the model does not know: a class that it was trained on keeps what it learned.
    """
    if name in known.names:
        return (name,)
    found = []
    for word in alternatives(name):
        short, description = described(word)
        meant = lexicon.meant(short, known.names)
        if meant is not None and meant != word:
            kind = "trained class" if meant in vocabulary.seen else "class"
            notes.append(f'"{short}" is the {kind} "{meant}"{_unused(description)}.')
        found.append(meant or word)
    return tuple(dict.fromkeys(found))


def _unused(description: str | None) -> str:
    return "" if description is None else "; its description is not needed"


def _check_words(groups: dict[str, tuple[str, ...]], known: Vocabulary, strict: bool, notes: list[str]) -> None:
    """Note, or refuse, words that nobody knows: they are slips, and any answer about them is a guess."""
    for words in groups.values():
        for word in words:
            if word in known.names or described(word)[1] is not None:  # a description says what its name does not
                continue
            for unknown in lexicon.unknown_words(word):
                near = lexicon.near_words(unknown)
                hint = f" Near matches: {', '.join(near)}." if near else ""
                told = f'"{unknown}" is in no dictionary at hand, so what is found for it is a guess.{hint}'
                if strict:
                    raise UnknownWord(told, unknown, near)
                notes.append(told)
