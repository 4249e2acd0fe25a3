"""Problems with some SEEN classes held out as if unseen, and how a recipe is trained on one of them."""

from dataclasses import replace
from pathlib import Path

import torch

from joem import data, engine, methods, parallel
from joem.engine import Model, Problem
from joem.errors import BadUsage, JoemError
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary

_PICTURES = 500  # to score on: enough to choose a parameter by


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
    folds = _proportional_folds(vocabulary) if folds is None else folds
    names = [name for name in vocabulary.seen if name != vocabulary.background]
    if not 2 <= folds <= len(names):
        raise BadUsage(f"{len(names)} seen classes can be cut into 2 to {len(names)} folds, got {folds}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(names), generator=generator).tolist()
    pictures = data.restrict(problem.train, vocabulary.seen)
    # Pictures to score on come as they are, with and without held-out classes: the more pictures show what is unseen,
    # the more correction seems good.
    shuffled = torch.randperm(len(pictures), generator=generator).tolist()
    count = min(_PICTURES, len(pictures) // 4)
    train, val = (data.View(pictures, sorted(indices)) for indices in (shuffled[count:], shuffled[:count]))
    held_out = [tuple(names[index] for index in sorted(order[fold::folds])) for fold in range(folds)]
    roles = [Vocabulary(vocabulary.seen, unseen, vocabulary.background) for unseen in held_out]
    return [Problem(each, problem.rule, train, val) for each in roles][:used]


def _proportional_folds(vocabulary: Vocabulary) -> int:
    most = len([name for name in vocabulary.seen if name != vocabulary.background])
    return min(most, max(2, round(len(vocabulary) / max(1, len(vocabulary.unseen)))))


def fold_recipe(recipe: Recipe, problem: Problem, fold: Problem) -> Recipe:
    """What is trained in a fold: fewer pictures, but as many steps as the whole training takes.

    The classes that are unseen in the whole problem teach nothing in its folds.
    """
    if not len(data.showing(fold.val, fold.vocabulary.unseen)):
        raise JoemError(
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
