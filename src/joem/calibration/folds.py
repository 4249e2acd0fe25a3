"""Problems with some SEEN classes held out as if unseen, and how a recipe is trained on one of them."""

from dataclasses import replace
from pathlib import Path

import torch

from joem import data, engine, methods, parallel
from joem.data import Dataset
from joem.engine import Model, Problem
from joem.errors import BadUsage, JoemError
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary

_PICTURES = 500  # to score on: enough to choose a parameter by
_QUARTER = 4  # one in so many pictures is kept for scoring
_FEW = 20  # pictures of held-out classes among those: too few to choose by


class TooFewPictures(JoemError):
    """No picture shows what a fold holds out."""


def fold_problems(problem: Problem, folds: int | None, seed: int, used: int | None = None) -> list[Problem]:
    """Training pictures without the unseen classes, with a part of the seen classes held out in turn.

    Neither the unseen classes nor the evaluation pictures are touched. Some of the training pictures are kept for
    scoring, the same in every fold.

    Args:
        problem: the whole problem.
        folds: into how many parts the seen classes are cut; None holds out the same share of the classes as is
            unseen. The strength of the correction depends on that share: with few held-out classes nearly every
            strength looks good.
        seed: of the cut.
        used: how many of the folds to give, all if None.
    """
    if used is not None and used < 1:
        raise BadUsage(f"At least one fold must be trained, got {used}.")
    vocabulary = problem.vocabulary
    folds = proportional_folds(vocabulary) if folds is None else folds
    shown = vocabulary.without_taught().seen  # what only a teacher knows has no masks to be scored by
    names = [name for name in shown if name != vocabulary.background]
    if not 2 <= folds <= len(names):
        raise BadUsage(f"{len(names)} seen classes can be cut into 2 to {len(names)} folds, got {folds}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(names), generator=generator).tolist()
    pictures = data.restrict(problem.train, vocabulary.seen)
    # Pictures to score on come as they are, with and without held-out classes: the more pictures show what is unseen,
    # the more correction seems good.
    shuffled = torch.randperm(len(pictures), generator=generator).tolist()
    count = min(_PICTURES, len(pictures) // _QUARTER)
    train, val = (data.View(pictures, sorted(indices)) for indices in (shuffled[count:], shuffled[:count]))
    held_out = [tuple(names[index] for index in sorted(order[fold::folds])) for fold in range(folds)]
    roles = [Vocabulary(vocabulary.seen, unseen, vocabulary.background, vocabulary.taught) for unseen in held_out]
    return [Problem(each, problem.rule, train, val) for each in roles][:used]


def proportional_folds(vocabulary: Vocabulary) -> int:
    """Into how many folds seen classes are cut, so that the same share of the classes is held out as is unseen."""
    most = len([name for name in vocabulary.seen if name != vocabulary.background])
    return min(most, max(2, round(len(vocabulary) / max(1, len(vocabulary.unseen)))))


def scoring_parts(fold: Problem) -> list[tuple[Dataset, int]]:
    """The pictures that a fold is scored on, and how often each of them counts.

    They are those kept for scoring. Where few of these show a held-out class, all training pictures that do are added,
    since training leaves them out, and what is kept of the others counts four times: the share of pictures that show
    what is unseen, on which the best correction depends, stays as it is.
    """
    shown = data.showing(fold.val, fold.vocabulary.unseen)
    left_out = data.showing(fold.train, fold.vocabulary.unseen)
    if len(shown) >= _FEW or fold.rule not in {"exclude", "unlabel"} or not len(left_out):
        return [(fold.val, 1)]
    others = data.restrict(fold.val, fold.vocabulary.seen)
    parts = [(shown, 1), (left_out, 1), (data.relabel(others, fold.vocabulary.names), _QUARTER)]
    return [(pictures, times) for pictures, times in parts if len(pictures)]


def fold_recipe(recipe: Recipe, problem: Problem, fold: Problem) -> Recipe:
    """What is trained in a fold: fewer pictures, but as many steps as the whole training takes.

    The classes that are unseen in the whole problem teach nothing in its folds.
    """
    if not any(len(data.showing(each, fold.vocabulary.unseen)) for each, _ in scoring_parts(fold)):
        raise TooFewPictures(
            f"None of the {len(fold.val)} pictures kept for scoring shows {', '.join(fold.vocabulary.unseen)}: there "
            "are too few pictures to choose by. Take more of them, or cut the seen classes into fewer --folds."
        )
    whole, part = (len(data.seen_only(each.train, each.vocabulary, each.rule)) for each in (problem, fold))
    epochs = max(1, round(recipe.train.epochs * whole / part))
    method = methods.get(recipe.method.name).for_fold(recipe.method, problem.vocabulary.unseen)
    return replace(recipe, train=replace(recipe.train, epochs=epochs), method=method)


def train_in(folder: Path | None, recipe: Recipe, problem: Problem | None = None) -> Model:
    """Train a recipe in a folder, going on where a stop left it; on the recipe's own data if no problem is given."""
    resume = folder is not None and parallel.from_first(lambda: has_checkpoint(folder))
    return engine.train(recipe, folder, problem=problem, resume=resume)


def has_checkpoint(folder: Path) -> bool:
    """Whether a training was stopped in a folder and can go on."""
    return any(folder.glob("checkpoints/step-*"))
