"""What a person asks for, understood: comma lists, other spellings and words, the background that goes unsaid."""

from collections.abc import Sequence
from dataclasses import dataclass

from joem.errors import BadUsage, UnknownWord
from joem.semantics import alternatives, lexicon
from joem.vocabulary import Vocabulary

Asked = str | Sequence[str] | None
"""Class names as a list or with commas between them; None for those of the model."""


@dataclass(frozen=True)
class Question:
    """The classes that are asked for.

    Attributes:
        names: one name per class, as it was asked for.
        words: the words of every class; those that mean a class of the model are its name there.
        asked: what each class was asked for with; that of several that are one class, joined with "|".
        notes: what was understood otherwise than it was written, one sentence each.
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...]
    notes: tuple[str, ...] = ()


def understand(asked: Asked, vocabulary: Vocabulary, background: bool = True, strict_words: bool = False) -> Question:
    """What is asked for, in terms of the classes of a model.

    Args:
        asked: class names; "sofa|couch" gives one class by several words, the first of which is its name.
        vocabulary: the classes of the model.
        background: add the model's background class where the names have none.
        strict_words: refuse words that are in no lexicon, instead of noting them.

    >>> vocabulary = Vocabulary(("background", "aeroplane", "cow"), background="background")
    >>> question = understand("Airplanes, tractor", vocabulary)
    >>> question.names, question.words[0]
    (('Airplanes', 'tractor', 'background'), ('aeroplane',))
    >>> question.notes
    ('"Airplanes" is the trained class "aeroplane".',)
    """
    if asked is None:
        return Question(vocabulary.names, tuple((name,) for name in vocabulary.names), vocabulary.names)
    names = _listed(asked)
    groups: dict[str, tuple[str, ...]] = {}
    texts: dict[str, str] = {}
    notes: list[str] = []
    for name in names:
        words = _words(name, vocabulary, notes)
        title = name if name in vocabulary.names else alternatives(name)[0]
        for other in [each for each, taken in groups.items() if set(taken) & set(words)]:
            shared = next(word for word in words if word in groups[other])
            notes.append(f'"{name}" and "{other}" are one class, "{shared}".')
            words = tuple(dict.fromkeys((*groups.pop(other), *words)))
            name, title = "|".join(dict.fromkeys((*texts.pop(other).split("|"), *name.split("|")))), other  # noqa: PLW2901
        groups[title], texts[title] = words, name
    own = vocabulary.background
    if background and own is not None and not any(own in words for words in groups.values()):
        groups[own], texts[own] = (own,), own
    _check_words(groups, vocabulary, strict_words, notes)
    return Question(tuple(groups), tuple(groups.values()), tuple(texts.values()), tuple(notes))


def _listed(asked: str | Sequence[str]) -> tuple[str, ...]:
    """The names that are asked for, each once."""
    if isinstance(asked, str):
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if not names:
            raise BadUsage(f"No class name is in {asked!r}: give names with commas between them, such as 'cow, grass'.")
        return Vocabulary(tuple(dict.fromkeys(names))).names
    return Vocabulary(tuple(dict.fromkeys(asked))).names


def _words(name: str, vocabulary: Vocabulary, notes: list[str]) -> tuple[str, ...]:
    """The words of one asked class, with those that mean a class of the model under its name there."""
    if name in vocabulary.names:
        return (name,)
    found = []
    for word in alternatives(name):
        known = lexicon.meant(word, vocabulary.names)
        if known is not None and known != word:
            kind = "trained class" if known in vocabulary.seen else "class"
            notes.append(f'"{word}" is the {kind} "{known}".')
        found.append(known or word)
    return tuple(dict.fromkeys(found))


def _check_words(groups: dict[str, tuple[str, ...]], vocabulary: Vocabulary, strict: bool, notes: list[str]) -> None:
    """Note, or refuse, words that nobody knows: they are slips, and any answer about them is a guess."""
    for words in groups.values():
        for word in words:
            for unknown in [] if word in vocabulary.names else lexicon.unknown_words(word):
                near = lexicon.near_words(unknown)
                hint = f" Near matches: {', '.join(near)}." if near else ""
                told = f'"{unknown}" is in no dictionary at hand, so what is found for it is a guess.{hint}'
                if strict:
                    raise UnknownWord(told, unknown, near)
                notes.append(told)
