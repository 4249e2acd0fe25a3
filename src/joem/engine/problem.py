"""What a recipe asks to be learnt: which pictures, which classes, who is unseen."""

from dataclasses import dataclass

from joem import data, protocols
from joem.data import Dataset
from joem.errors import BadUsage
from joem.recipe import DataSettings
from joem.vocabulary import Vocabulary


@dataclass(frozen=True)
class Problem:
    """Pictures to train and to evaluate on, with the roles of their classes.

    Attributes:
        vocabulary: the classes; labels of both datasets are its indices.
        rule: what happens to unseen masks in training, "exclude" or "ignore".
        ignored: labels that do not count in scores (the background in the SPNet setting).
        train: the training pictures before the rule.
        val: the evaluation pictures.
    """

    vocabulary: Vocabulary
    rule: str
    ignored: tuple[int, ...]
    train: Dataset
    val: Dataset


def open_problem(settings: DataSettings, every_mask: bool = False) -> Problem:
    """Open the data of a recipe and settle which classes are unseen.

    `every_mask` lets generated training pictures show the unseen classes too, for the supervised upper bound; the
    pictures of other datasets show them anyway.
    """
    if settings.kind == "scenes":
        return _scenes(settings, every_mask)
    train = data.open(settings.kind, settings.root, settings.train_split)
    val = data.open(settings.kind, settings.root, settings.val_split)
    if settings.protocol is None:
        vocabulary = Vocabulary(train.names, tuple(settings.unseen), settings.background or train.background)
        return Problem(vocabulary, settings.rule, (), train, val)
    protocol = protocols.get(settings.protocol)
    vocabulary = protocol.vocabulary
    if vocabulary.names != train.names:
        raise BadUsage(
            f"Protocol {settings.protocol!r} is about {protocol.dataset!r} with {len(vocabulary)} classes, but "
            f"{settings.kind!r} has {len(train.names)} others: choose a protocol for these data, or give --data.unseen."
        )
    hidden = () if protocol.score_background or vocabulary.background is None else (vocabulary.background,)
    return Problem(vocabulary, protocol.rule, tuple(map(vocabulary.index, hidden)), train, val)


def _scenes(settings: DataSettings, every_mask: bool) -> Problem:
    """Training pictures show seen classes only, as in a world where nobody met the others yet."""
    vocabulary = data.scenes.vocabulary()
    if settings.unseen:
        vocabulary = vocabulary.with_unseen(settings.unseen)
    counts = {"train": settings.train_count, "val": settings.val_count}
    train, val = (
        data.open(
            "scenes",
            None,
            split,
            count=count,
            size=settings.size,
            seed=settings.seed,
            unseen=() if every_mask else vocabulary.unseen,
        )
        for split, count in counts.items()
    )
    return Problem(vocabulary, "exclude", (), train, val)
