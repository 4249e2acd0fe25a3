"""Who taught a model which words, and what they had seen; kept with the model."""

from pathlib import Path
from typing import TYPE_CHECKING

from joem.engine.stored_maps import CaptionSet
from joem.engine.teachers.networks import open_network
from joem.methods import Method
from joem.model import Teaching
from joem.recipe import Recipe

if TYPE_CHECKING:  # problems are opened with teachers
    from joem.engine.problem import Problem


def teaching_of(
    problem: "Problem", recipe: Recipe, method: Method, captions: CaptionSet | None
) -> tuple[Teaching, ...]:
    """Everybody who taught words in a training: masks, classifiers, other networks and captions."""
    data, vocabulary = recipe.data, problem.vocabulary
    shown = tuple(name for name in vocabulary.seen if name not in vocabulary.taught)
    found = [Teaching("masks", data.kind, f"{len(problem.train)} pictures of {data.train_split or 'all'}", shown)]
    if data.transductive:
        found.append(Teaching("unlabelled", data.kind, "pictures that hold unseen classes, without a label", ()))
    names = method.heard_names
    if names:
        found.append(Teaching("names", f"classifier of {recipe.model.backbone}", "labels of ImageNet's photos", names))
    for each in data.teachers:
        known = set(open_network(each).names)
        words = tuple(name for name in vocabulary.taught if name in known)
        found.append(Teaching("teacher", Path(each.file).name, each.saw, words))
    if captions is not None:
        photos = captions.photos
        found.append(Teaching("captions", photos.root.name, f"{len(photos)} photos with captions", photos.names))
    return tuple(found)
