"""A model that knows one more class, from its word alone."""

from dataclasses import replace

import torch
from torch import Tensor

from joem import data, methods
from joem.engine.fabric import launched
from joem.engine.problem import Problem
from joem.engine.training import Run
from joem.errors import BadUsage
from joem.model import Model
from joem.vocabulary import Vocabulary


def add_class(model: Model, name: str, problem: Problem, vector: Tensor | None = None) -> Model:
    """A model that also knows a new name, from its word alone.

    Methods that take words at once are only told the name. The others run those stages again that need all names
    (`Method.new_class_stages`), on the training pictures of the problem the model was trained on. `vector` (D) is the
    word vector, where it does not come from the model's own source.
    """
    old = model.vocabulary
    if type(model.method).sees_every_mask:
        raise BadUsage(
            f"{model.recipe.method.name} learns from masks: a new class needs masks and a whole new training."
        )
    vocabulary = Vocabulary((*old.names, name), (*old.unseen, name), old.background)
    vectors = torch.cat([model.vectors, model.semantics.vectors((name,)) if vector is None else vector[None]])
    if not model.method.new_class_stages:
        return replace(model, vocabulary=vocabulary, vectors=vectors)
    bare = replace(model.recipe.model, weights="none")
    method = methods.get(model.recipe.method.name)(bare, model.recipe.method, vocabulary, vectors)
    methods.copy_leading_rows(model.method, method)
    method.trunk.mean, method.trunk.std = model.method.trunk.mean, model.method.trunk.std
    larger = replace(model, vocabulary=vocabulary, vectors=vectors, method=method.eval())
    same = {label: label for label in range(len(old))}
    train_set = data.View(problem.train, range(len(problem.train)), vocabulary.names, same)
    larger_problem = replace(problem, vocabulary=vocabulary, train=train_set)
    fabric = launched(model.recipe.train, method.rests)
    run = Run(model.recipe, larger_problem, fabric, None, larger, method.new_class_stages)
    run.fit()
    return run.finish()
