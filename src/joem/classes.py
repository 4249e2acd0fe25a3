"""The classes that are asked for: prototypes of their words, and examples of them, each with the class it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from joem import decision
from joem.asking import Question
from joem.decision import Norms, Ranking
from joem.examples import Examples

NEARER = 0.93
"""A pixel is of an example if it is nearer to it than this many times its distance to what was trained; from folds, see
docs/log/examples.md."""


@dataclass(frozen=True)
class AskedClasses:
    """Classes that are asked for.

    A pixel that is clearly nearer to an example than to where the trained classes lie takes the example's class; the
    others are decided between by words. Distances to words and to features are not compared: a word lies further away.

    Attributes:
        names: one name per class.
        unseen: indices of the classes none of whose words has training masks.
        prototypes: (W,C), one for every word.
        owners: (W,), which class each word belongs to.
        shown: (E,C), the examples.
        shown_owners: (E,), which class each example belongs to.
        centres: (n,C), where the trained classes lie among the features.
        asked: what each class was asked for with.
        notes: what was understood otherwise than it was written, one sentence each.
        rest: the class of pixels that nobody wants, where there is one.
        words: the words of all classes.
    """

    names: tuple[str, ...]
    unseen: tuple[int, ...]
    prototypes: Tensor
    owners: Tensor
    shown: Tensor
    shown_owners: Tensor
    centres: Tensor
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rest: str | None = None
    words: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, question: Question, words: dict[str, Tensor], examples: Examples, seen: Sequence[str], centres: Tensor
    ) -> "AskedClasses":
        """The classes of a question.

        Args:
            question: what is asked for.
            words: prototypes (C,) of words; those that are known by their examples alone are missing.
            examples: prototypes of examples.
            seen: the names with training masks.
            centres: see the attributes.
        """
        pairs = [(index, word) for index, group in enumerate(question.words) for word in group]
        spoken = [(index, words[word]) for index, word in pairs if word in words]
        shown = [(index, each.to(centres)) for index, word in pairs for each in examples.get(word, ())]
        return cls(
            names=question.names,
            unseen=tuple(index for index, group in enumerate(question.words) if not set(group) & set(seen)),
            prototypes=_stacked([each for _, each in spoken], centres),
            owners=torch.tensor([index for index, _ in spoken], dtype=torch.int64),
            shown=_stacked([each for _, each in shown], centres),
            shown_owners=torch.tensor([index for index, _ in shown], dtype=torch.int64),
            centres=centres,
            asked=question.asked,
            notes=question.notes,
            rest=question.rest,
            words=frozenset(word for _, word in pairs),
        )

    def rank(
        self, features: Tensor, size: Sequence[int] | None, unseen: Sequence[int], known: Norms | None = None
    ) -> Ranking:
        """`decision.rank` where the distance to a class is that to the nearest of its words.

        Pixels of an example have its class as the nearest seen one and no unseen one: no rule decides otherwise.
        """
        if not len(self.prototypes):  # examples alone: the nearest one
            return self._rank_words(self.shown, self.shown_owners, features, size, unseen, known)
        by_word = self._rank_words(self.prototypes, self.owners, features, size, unseen, known)
        if not len(self.shown):
            return by_word
        is_shown = torch.arange(len(self.centres) + len(self.shown)) >= len(self.centres)
        near = decision.rank(features, torch.cat([self.centres, self.shown]), is_shown, size, known)
        owners = self.shown_owners.to(features.device)
        return Ranking(
            *(
                torch.where(near.unseen_distance < NEARER * near.seen_distance, of_example, of_word)
                for of_example, of_word in zip(
                    (
                        owners[near.unseen - len(self.centres)],
                        near.unseen_distance,
                        near.seen_distance,
                        torch.full_like(near.unseen, -1),
                        torch.full_like(near.unseen_distance, torch.inf),
                    ),
                    by_word,
                    strict=True,
                )
            )
        )

    def _rank_words(
        self,
        prototypes: Tensor,
        owners: Tensor,
        features: Tensor,
        size: Sequence[int] | None,
        unseen: Sequence[int],
        known: Norms | None,
    ) -> Ranking:
        is_unseen = torch.isin(owners, torch.tensor(unseen, dtype=torch.int64))
        ranking = decision.rank(features, prototypes, is_unseen, size, known)
        counts = torch.bincount(owners[~is_unseen], minlength=len(self.names)).tolist()
        if owners.tolist() == list(range(len(self.names))):  # a word each
            return ranking
        on_device = owners.to(features.device)
        nearest_seen, nearest_unseen = (_owner(on_device, each) for each in (ranking.seen, ranking.unseen))
        second = ranking.second_seen_distance
        for index in (index for index, count in enumerate(counts) if count > 1):
            others = prototypes[~is_unseen & (owners != index)]  # the second class, not the second word
            apart = decision.rank(features, others, (), size, known).seen_distance if len(others) else torch.inf
            second = torch.where(nearest_seen == index, apart, second)
        return Ranking(nearest_seen, ranking.seen_distance, second, nearest_unseen, ranking.unseen_distance)

    def distances(self, features: Tensor, size: Sequence[int] | None) -> Tensor:
        """Distances (B,K,Ho,Wo) to the nearest word or example of each class."""
        by_prototype = decision.distances(features, torch.cat([self.prototypes, self.shown]), size)
        owners = torch.cat([self.owners, self.shown_owners])
        of_class = [by_prototype[:, owners == index].amin(dim=1) for index in range(len(self.names))]
        return torch.stack(of_class, dim=1)


def _stacked(rows: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(rows) if rows else like[:0]


def _owner(owners: Tensor, nearest: Tensor) -> Tensor:
    """Which class each prototype belongs to; -1 stays -1."""
    return torch.where(nearest < 0, nearest, owners[nearest])
