"""The classes that are asked for: prototypes of their words and means of their examples, each with its class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from joem import decision
from joem.asking import NOT, Asked, Question, understand
from joem.decision import Norms, Ranking
from joem.examples import Examples, TrainedFeatures, joined
from joem.semantics import lexicon
from joem.settings import split_names
from joem.vocabulary import Vocabulary

if TYPE_CHECKING:
    from joem.model import Model
    from joem.onnx import OnnxModel

BY_EXAMPLE = -2
"""The nearest unseen class of a pixel that an example decides: none."""


_ALIKE = 0.45
"""The cosine of prototypes above which surroundings that a model knows are what another word asks for.

Set by eye on fifty words and sixteen photos: lawn and grass, field and grass, street and road, forest and tree are
above it, flag and mirror below.
"""


@dataclass(frozen=True)
class AskedClasses:
    """Classes that are asked for.

    A pixel that is nearer to the mean of a class's examples than to where the trained classes lie takes that class; the
    others are decided between by words. Distances to words and to features are not compared: a word lies further away.

    Attributes:
        names: one name per class.
        unseen: indices of the classes none of whose words has training masks.
        prototypes: (W,C), one for every word.
        owners: (W,), which class each word belongs to.
        shown: (E,C), the means of the examples of classes that have some.
        shown_owners: (E,), which class each of them belongs to.
        trained: where the trained classes lie among the features; None where no example is compared with them.
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
    trained: TrainedFeatures | None = None
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rest: str | None = None
    words: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        question: Question,
        words: dict[str, Tensor],
        examples: Examples,
        vocabulary: Vocabulary,
        trained: TrainedFeatures | None,
    ) -> "AskedClasses":
        """The classes of a question.

        Args:
            question: what is asked for.
            words: prototypes (C,) of words; those that are known by their examples alone are missing.
            examples: prototypes of examples.
            vocabulary: the classes of the model.
            trained: see the attributes.
        """
        pairs = [(index, word) for index, group in enumerate(question.words) for word in group]
        with_masks = vocabulary.without_taught().seen
        asked = [words[word] for _, word in pairs if word in words and word not in with_masks]
        if question.rest is not None:
            rest = question.names.index(question.rest)
            around = [word for word in question.around if word in words]
            pairs += [(rest, word) for word in around if not _alike(words[word], asked)]
        spoken = [(index, words[word]) for index, word in pairs if word in words]
        shown = [(index, examples[word].mean(0)) for index, word in pairs if word in examples]
        return cls(
            names=question.names,
            unseen=tuple(index for index, group in enumerate(question.words) if not set(group) & set(vocabulary.seen)),
            prototypes=_stacked([each for _, each in spoken]),
            owners=torch.tensor([index for index, _ in spoken], dtype=torch.int64),
            shown=_stacked([each for _, each in shown]),
            shown_owners=torch.tensor([index for index, _ in shown], dtype=torch.int64),
            trained=trained,
            asked=question.asked,
            notes=question.notes,
            rest=question.rest,
            words=frozenset(word for _, word in pairs),
        )

    @classmethod
    def for_model(
        cls, model: "Model | OnnxModel", names: Asked, background: bool, strict_words: bool, shown: Examples
    ) -> "AskedClasses":
        """The classes that a model is asked for, see `Segmenter.classes`."""
        own, known = model.vocabulary, joined(model.examples, shown)
        new = [name for name in shown if name != NOT]
        listed = split_names(names)
        if new:
            listed = list(dict.fromkeys([*(own.names if listed is None else listed), *new]))
        question = understand(listed, own, background, strict_words, known)
        wanted = dict.fromkeys(word for group in (*question.words, question.around) for word in group if word != NOT)
        # A name that is no word is known by its examples alone, and so is what was shown just now and never trained.
        alone = {name for name in known if lexicon.unknown_words(name)} | {name for name in new if name not in own.seen}
        words = [word for word in wanted if word not in alone]
        prototypes = dict(zip(words, model.prototypes(tuple(words)), strict=True)) if words else {}
        return cls.of(question, prototypes, known, own, _trained(model) if known else None)

    @property
    def one_word_each(self) -> bool:
        """Whether every class has one word, so that the second word is that of the second class: it costs little."""
        return self.owners.tolist() == list(range(len(self.names)))

    @property
    def nearest_wins(self) -> bool:
        """Whether every pixel takes its nearest class by any rule: rules decide between seen and unseen classes."""
        return not len(self.shown) and len(self.unseen) in {0, len(self.names)}

    def nearest(self, features: Tensor, size: Sequence[int] | None) -> Tensor:
        """Labels (B,Ho,Wo) of features (B,C,H,W) where `nearest_wins`: quicker than a ranking, which says more."""
        return decision.nearest(features, self.prototypes, size, self.owners)

    def rank(
        self,
        features: Tensor,
        size: Sequence[int] | None,
        unseen: Sequence[int],
        known: Norms | None = None,
        on_it: bool = False,
        second: bool = True,
    ) -> Ranking:
        """`decision.rank` where the distance to a class is that to the nearest of its words, and examples come first.

        Args:
            features: v, (B,C,H,W); one picture where examples are on it.
            size: (Ho,Wo) the features are upsampled to; None keeps (H,W).
            unseen: indices of the unseen classes.
            known: what `decision.norms` gave.
            on_it: whether examples are on this very picture. Everything on it is like them in light and style, so they
                are compared with what words find on it, too.
            second: whether the second seen distance is needed, see `decision.rank`; found anyway where it costs little.
        """
        by_word = self.rank_words(features, size, unseen, known, second or self.one_word_each)
        found = self.regions(features) if on_it else None
        return self.with_examples(by_word, features, size, found)

    def regions(self, features: Tensor) -> Tensor | None:
        """The mean feature (n,C) of every class but the rest that the nearest words find on a picture (1,C,H,W)."""
        if not len(self.prototypes):
            return None
        nearest = self.owners.to(features.device)[decision.nearest(features, self.prototypes)].flatten()
        pixels = features[0].flatten(1).T
        present = torch.bincount(nearest).nonzero().flatten().tolist()
        found = [index for index in present if self.names[index] != self.rest]
        return torch.stack([pixels[nearest == index].mean(0) for index in found]) if found else None

    def with_examples(
        self, by_word: Ranking | None, features: Tensor, size: Sequence[int] | None, rivals: Tensor | None = None
    ) -> Ranking:
        """A ranking by words, with the pixels that examples decide: those nearer to one than to what was trained.

        `rivals` (n,C) are features to be nearer than, beside the trained ones.

        These pixels have the class of the example as the nearest seen one and no unseen one: no rule decides otherwise.
        Their distances are those between whitened features.
        """
        if not len(self.shown):
            assert by_word is not None  # there is at least one class
            return by_word
        assert self.trained is not None
        known = self.trained.centres
        centres = self.trained.whitened(known if rivals is None else torch.cat([known, rivals.to(known)]))
        shown = self.trained.whitened(self.shown.to(centres))
        if by_word is None:  # nothing else to be
            centres = centres[:0]
        # Whitening is linear, so it commutes with the interpolation to `size`.
        compared = self.trained.whitened(features.movedim(1, -1).to(shown)).movedim(-1, 1).contiguous()
        is_example = torch.arange(len(centres) + len(shown)) >= len(centres)
        near = decision.rank(compared, torch.cat([centres, shown]), is_example, size)
        of_example = Ranking(
            self.shown_owners.to(features.device)[near.unseen - len(centres)],
            near.unseen_distance,
            near.seen_distance,
            torch.full_like(near.unseen, BY_EXAMPLE),
            torch.full_like(near.unseen_distance, torch.inf),
        )
        if by_word is None:
            return of_example
        wins = near.unseen_distance < near.seen_distance
        return Ranking(*(torch.where(wins, *both) for both in zip(of_example, by_word, strict=True)))

    def rank_words(
        self,
        features: Tensor,
        size: Sequence[int] | None,
        unseen: Sequence[int],
        known: Norms | None = None,
        second: bool = True,
    ) -> Ranking | None:
        """The ranking by words alone; None where there are none."""
        if not len(self.prototypes):
            return None
        is_unseen = torch.isin(self.owners, torch.tensor(unseen, dtype=torch.int64))
        return decision.rank(features, self.prototypes, is_unseen, size, known, self.owners, second)

    def distances(self, features: Tensor, size: Sequence[int] | None) -> Tensor:
        """Distances (B,K,Ho,Wo) to the nearest word or example of each class."""
        by_prototype = decision.distances(
            features, torch.cat([each for each in (self.prototypes, self.shown) if len(each)]), size
        )
        owners = torch.cat([self.owners, self.shown_owners])
        of_class = [by_prototype[:, owners == index].amin(dim=1) for index in range(len(self.names))]
        return torch.stack(of_class, dim=1)


def _trained(model: "Model | OnnxModel") -> TrainedFeatures:
    """Where trained classes lie among the features; near their words, for all a model knows that never looked."""
    if model.trained is not None:
        return model.trained
    centres = model.prototypes(model.vocabulary.seen)
    return TrainedFeatures(centres, centres[:0], centres.new_ones(1))


def _alike(prototype: Tensor, others: list[Tensor]) -> bool:
    """Whether a prototype is nearly one of the others: a lawn is grass, and no background because of it."""
    return bool(others) and float(F.cosine_similarity(prototype[None], torch.stack(others)).max()) > _ALIKE


def _stacked(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows) if rows else torch.zeros(0, 0)
