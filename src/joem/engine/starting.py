"""Training that starts from a model that exists, and what it forgets of the classes that this one knew."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from joem import decision, methods, scores
from joem.decision import Decision
from joem.engine.evaluation import Evaluation, encoded, evaluate, spread_over
from joem.engine.problem import open_problem
from joem.errors import BadUsage
from joem.methods import Method
from joem.model import Model, word_vectors
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary


def start_of(recipe: Recipe) -> tuple[Recipe, Model | None]:
    """The model that a recipe starts from, if any, and the recipe with the networks, words and rule of that model.

    Data and training stay the recipe's own.
    """
    if recipe.train.start is None:
        return recipe, None
    if recipe.data.teachers or recipe.data.captions:
        raise BadUsage("A training that starts from a model learns from masks alone: leave data.teachers and captions.")
    start = Model.load(recipe.train.start)
    old = start.recipe
    return replace(recipe, model=old.model, method=old.method, semantics=old.semantics, decision=old.decision), start


def first_model(recipe: Recipe, vocabulary: Vocabulary, start: Model | None) -> Model:
    """The model at the first step: fresh weights, or all that fits of the model it starts from.

    Weights that belong to classes, such as centres, are taken by the names of these; those of new classes are fresh.
    """
    if start is None:
        return Model.create(recipe, vocabulary)
    vectors = word_vectors(start, vocabulary.names)
    kind = methods.get(recipe.method.name)
    recipe = replace(recipe, method=kind.with_vocabulary(recipe.method, vocabulary))
    method = kind(recipe.model, recipe.method, vocabulary, vectors)
    method.learn_names(start.semantics)
    theirs, known = start.method.state_dict(), start.method.vocabulary
    with torch.no_grad():
        for name, own in method.state_dict().items():
            classes = _classes_of(name, known), _classes_of(name, vocabulary)
            if None not in classes:
                _copy_rows(theirs[name], own, *classes)  # type: ignore[arg-type]
            elif name in theirs and theirs[name].shape == own.shape:
                own.copy_(theirs[name])
    method.trunk.mean, method.trunk.std = start.method.trunk.mean, start.method.trunk.std
    return Model(recipe, vocabulary, start.semantics, vectors, method)


def _classes_of(name: str, vocabulary: Vocabulary) -> tuple[str, ...] | None:
    """The classes that the rows of a weight belong to; None where they belong to none."""
    if name.startswith("classifier."):
        return vocabulary.names
    return vocabulary.seen if name.endswith(".centres") else None


def _copy_rows(source: Tensor, target: Tensor, known: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    for row, name in enumerate(wanted):
        if name in known:
            target[row] = source[known.index(name)]


def kept_weights(method: Method, start: Model | None) -> list[nn.Parameter]:
    """What does not learn in a training with a start: the map from words to prototypes, so that old words stay put."""
    if start is None:
        return []
    semantic = {id(each) for group in method.parameter_groups(1.0).get("semantic", []) for each in group["params"]}
    return [
        weight
        for name, weight in method.named_parameters()
        if id(weight) in semantic and _classes_of(name, method.vocabulary) is None
    ]


def keep_statistics(method: nn.Module) -> None:
    """Leave the statistics by which features are normalised as they are, or all of the old ones would move."""
    for each in method.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            each.eval()


def with_old_classes(model: Model, start: Model | None) -> Model:
    """A trained model that also knows the classes of the model it started from, behind its own."""
    if start is None:
        return model
    own, old = model.vocabulary, start.vocabulary
    more = tuple(name for name in old.names if name not in own.names and name != old.background)
    unseen = (*own.unseen, *(name for name in old.unseen if name in more))
    names = (*own.names, *more)
    vectors = word_vectors(start, names)
    taught = tuple(name for name in old.taught if name in more)  # the last ones there, and so here
    return replace(model, vocabulary=Vocabulary(names, unseen, own.background, taught), vectors=vectors)


@dataclass(frozen=True)
class Forgetting:
    """What a model forgot of the classes of the model it started from.

    Attributes:
        images: how many pictures were looked at; 0 where none was kept back.
        kept: old class -> share, in percent, of the pixels that the old model gave it and the new one gives it too;
            only classes that the old model saw in these pictures.
        same: the share of all these pixels, nan if there are none.
        not_new: unseen classes of the new data that the old model had masks of, so that their scores are not zero-shot.
        before: scores of the old model on its own data, if these were given.
        after: scores of the new one there.
    """

    images: int
    kept: dict[str, float]
    same: float
    not_new: tuple[str, ...] = ()
    before: Evaluation | None = None
    after: Evaluation | None = None

    def lines(self) -> list[str]:
        """What to tell people."""
        told = []
        if not self.images and self.before is None:
            told = [
                "What it forgot: no picture was kept back to compare on. --from-data DIR takes those of the old data."
            ]
        elif self.images and not self.kept:
            told = [f"What it forgot: the old model finds none of its classes in {self.images} pictures to compare on."]
        elif self.images:
            worst = sorted(self.kept.items(), key=lambda pair: pair[1])[:5]
            told = [
                f"What it forgot: asked for the old classes in {self.images} pictures kept back, it agrees with the "
                f"old model on {self.same:.1f} % of what that one found "
                f"({', '.join(f'{name} {share:.0f} %' for name, share in worst)})."
            ]
        if self.before is not None and self.after is not None:
            shown = [f"{each.scores.miou_seen:.1f}" for each in (self.before, self.after)]
            told.append(
                f"On {self.after.images} pictures of the old data the mean IoU of the old classes was {shown[0]} "
                f"and is {shown[1]} now."
            )
        if self.not_new:
            told.append(f"Not zero-shot: the old model had masks of {', '.join(self.not_new)}.")
        return told

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        found: dict[str, Any] = {"images": self.images, "kept": self.kept, "same": self.same if self.kept else None}
        found["not_new"] = list(self.not_new)
        scored = {"before": self.before, "after": self.after}
        return found | {name: each.to_dict() for name, each in scored.items() if each is not None}


@torch.no_grad()
def forgetting(model: Model, old_root: str | None = None, most: int = 50) -> Forgetting:
    """Compare a model with the one it started from (`train.start`), on what that one knew.

    Without the old data the old model is the judge: both are asked for the old classes in evaluation pictures of the
    new ones, and the new labels are compared with the old.

    Args:
        model: what was trained.
        old_root: where the data of the old model are; both are scored on its evaluation pictures then.
        most: how many pictures to look at, of the new data; four times as many of the old ones.
    """
    start = Model.load(model.recipe.train.start or "")
    compared = _compared(start, model, most)
    before, after = _on_old_data(start, model, old_root, 4 * most) if old_root else (None, None)
    old = {name for name in model.recipe.data.unseen if name in start.vocabulary.seen}
    return Forgetting(*compared, tuple(sorted(old)), before, after)


def _compared(start: Model, model: Model, most: int) -> tuple[int, dict[str, float], float]:
    """On how many pictures of the new data both were asked for the old classes, and where they agree."""
    try:
        pictures = spread_over(open_problem(model.recipe.data, needed=("val",)).val, most)
    except BadUsage:  # no list of evaluation pictures
        return 0, {}, float("nan")
    if not len(pictures):
        return 0, {}, float("nan")
    known, rule = start.vocabulary, start.recipe.decision
    labels: list[Tensor] = []
    for each in (replace(start, recipe=model.recipe), model):
        prototypes = each.prototypes(known.names)
        found = [
            rule.decide(decision.rank(features, prototypes, known.unseen_indices, size=truth.shape)).cpu()
            for _, features, truth in encoded(each, pictures, title="what it forgot")
        ]
        labels.append(torch.cat([picture.flatten() for picture in found]))
    counts = scores.confusion(labels[0], labels[1], len(known))
    return len(pictures), *_agreement(counts, known)


def _agreement(counts: Tensor, vocabulary: Vocabulary) -> tuple[dict[str, float], float]:
    """The share of the pixels of every old class that are given to it again, and of those of all together."""
    rows = [
        index for index, name in enumerate(vocabulary.names) if name != vocabulary.background and counts[index].sum()
    ]
    again, given = counts.diagonal()[rows].double(), counts[rows].sum(1).double()
    kept = {vocabulary.names[row]: 100 * float(again[at] / given[at]) for at, row in enumerate(rows)}
    return kept, 100 * float(again.sum() / given.sum())


def _on_old_data(start: Model, model: Model, root: str, most: int) -> tuple[Evaluation, Evaluation]:
    """Scores of the old and of the new model on evaluation pictures of the old one's data."""
    settings = replace(start.recipe.data, root=root)
    problem = open_problem(settings, needed=("val",))
    problem = replace(problem, val=spread_over(problem.val, most))
    recipe = replace(model.recipe, data=settings)  # so that stored maps are those of these pictures
    by: list[Decision] = [start.recipe.decision]
    before, after = (evaluate(replace(each, recipe=recipe), problem, by)[0] for each in (start, model))
    return before, after
