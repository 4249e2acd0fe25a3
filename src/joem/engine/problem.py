"""What a recipe asks to be learnt: which pictures, which classes, who is unseen."""

from collections.abc import Collection
from dataclasses import dataclass

from joem import data, protocols
from joem.data import Dataset
from joem.engine.teachers import check_zero_shot, taught
from joem.errors import BadUsage
from joem.settings import DataSettings
from joem.vocabulary import Vocabulary


@dataclass(frozen=True)
class Problem:
    """Pictures to train and to evaluate on, with the roles of their classes.

    Attributes:
        vocabulary: the classes; labels of both datasets are its indices. Under the rule "ignore" the background is
            no class: its pixels are void in both.
        rule: what happens to unseen masks in training, "exclude", "ignore" or "unlabel", see `data.seen_only`.
        train: the training pictures before the rule.
        val: the evaluation pictures.
    """

    vocabulary: Vocabulary
    rule: str
    train: Dataset
    val: Dataset


def open_problem(
    settings: DataSettings,
    every_mask: bool = False,
    needed: Collection[str] = ("train", "val"),
    cache: str | None = None,
) -> Problem:
    """Open the data of a recipe and settle which classes are unseen.

    Args:
        settings: which data.
        every_mask: let generated training pictures show the unseen classes too, for the supervised upper bound; the
            pictures of other datasets show them anyway.
        needed: which pictures will be used, "train", "val" or both; the others are not looked for on the disk, and
            the problem has none of them.
        cache: folder that keeps what teachers say of the training pictures.
    """
    unseen = _unseen(settings)
    opened = _open(settings, needed, () if every_mask else unseen)
    first = next(iter(opened.values()))
    vocabulary, rule = _roles(settings, first, unseen)
    if settings.transductive and rule == "exclude":
        rule = "unlabel"
    if "train" in opened and settings.teachers:
        check_zero_shot(settings, vocabulary)
        opened["train"] = taught(data.relabel(opened["train"], vocabulary.names), settings, cache)
        vocabulary = vocabulary.with_taught(opened["train"].names[len(vocabulary) :])
    found = {part: data.relabel(pictures, vocabulary.names) for part, pictures in opened.items()}
    none = data.View(first, (), vocabulary.names)
    return Problem(vocabulary, rule, found.get("train", none), found.get("val", none))


def _unseen(settings: DataSettings) -> tuple[str, ...]:
    """The unseen classes, where no protocol says it; generated pictures have some of their own."""
    return tuple(settings.unseen) or (data.scenes.vocabulary().unseen if settings.kind == "scenes" else ())


def _open(settings: DataSettings, needed: Collection[str], unseen: tuple[str, ...]) -> dict[str, Dataset]:
    """The pictures of every part that is needed, "train" or "val"."""
    if settings.kind == "scenes":
        return {part: _generated(settings, part, unseen) for part in needed}
    splits = dict(zip(("train", "val"), settings.splits(), strict=True))
    if settings.kind != "folder" or splits != {"train": "train", "val": "val"} or data.has_lists(settings.root or ""):
        return {part: data.open(settings.kind, settings.root, splits[part]) for part in needed}
    whole = data.open(settings.kind, settings.root, None)
    idle = unseen if settings.rule == "exclude" and not settings.transductive else ()
    divided = data.divide(whole, [name for name in idle if name in whole.names])
    return {part: pictures for part, pictures in zip(("train", "val"), divided, strict=True) if part in needed}


def _generated(settings: DataSettings, part: str, unseen: tuple[str, ...]) -> Dataset:
    """Generated pictures; those to train on show no unseen class, as if nobody had met one yet."""
    count = {"train": settings.train_count, "val": settings.val_count}[part]
    return data.open("scenes", None, part, count=count, size=settings.size, seed=settings.seed, unseen=unseen)


def _roles(settings: DataSettings, pictures: Dataset, unseen: tuple[str, ...]) -> tuple[Vocabulary, str]:
    """The classes, who is unseen, and the rule of training."""
    if settings.protocol is None:
        own = Vocabulary(pictures.names, unseen, settings.background or pictures.background)
        return own.without_background() if settings.rule == "ignore" else own, settings.rule
    protocol = protocols.get(settings.protocol)
    known = Vocabulary(pictures.names, background=pictures.background)
    if protocol.vocabulary.names not in {known.names, known.without_background().names}:
        raise BadUsage(
            f"Protocol {settings.protocol!r} is about {protocol.dataset!r} with {len(protocol.vocabulary)} classes, "
            f"but {settings.kind!r} has {len(known)} others: choose a protocol for these data, or give --data.unseen."
        )
    return protocol.vocabulary, protocol.rule
