"""What a training came to, in words."""

import torch

from joem.engine.evaluation import Evaluation
from joem.recipe import Recipe

_ALL = 0.995  # share of the pixels that is as good as all of them
_HARDLY = 0.05  # of the way from one colour to all right: a model with masks in disorder comes as far
_FOUND = 10.0  # IoU in percent above which a class counts as found


def verdict(found: Evaluation, recipe: Recipe) -> str:
    """One or two sentences on whether a model learned something.

    A model that gives all pixels one label, or is no better than one that does, is called so.

    Args:
        found: its scores.
        recipe: what was trained, for advice on what to change.
    """
    advice = f"{_advice(recipe)}."
    names, counts = found.vocabulary.names, found.confusion.double()
    pixels = counts.sum()
    if not pixels:
        return "No pixel of these pictures is labelled, so nothing can be said of the model."
    predicted, truth = counts.sum(0) / pixels, counts.sum(1) / pixels
    if predicted.max() >= _ALL:
        taken = names[int(predicted.argmax())]
        return f"All pixels are {taken}: the model learned nothing that shows. {advice}"
    shown = truth > 0
    per_class = torch.tensor(found.scores.per_class).double()[shown]
    one_colour = 100 * float(truth.max()) / int(shown.sum())
    mean = float(per_class.nanmean())
    commonest = names[int(truth.argmax())]
    if mean <= one_colour:
        return (
            f"Worse than one colour: the mean IoU is {mean:.1f}, and {one_colour:.1f} if all pixels were {commonest}. "
            f"{advice}"
        )
    if mean < one_colour + _HARDLY * (100 - one_colour):
        return (
            f"Hardly better than one colour: the mean IoU is {mean:.1f}, and {one_colour:.1f} if all pixels were "
            f"{commonest}. {advice}"
        )
    right = int((per_class > _FOUND).sum())
    return (
        f"{right} of the {int(shown.sum())} classes that are shown are found (IoU above {_FOUND:g}). The mean IoU is "
        f"{mean:.1f}; it would be {one_colour:.1f} if all pixels were {commonest}."
    )


def _advice(recipe: Recipe) -> str:
    """What may help a model that learned nothing."""
    longer = "Train longer (--train.steps)"
    if recipe.data.kind != "folder":
        return longer
    others = ["look at the masks (joem data folder --root DIR)", "add masks"]
    if recipe.method.name != "blend":
        others.append("take the recipe folder")
    elif recipe.train.start is None:
        others.append("start from a model that knows more (--from voc-names)")
    return f"{longer}, {', '.join(others[:-1])} or {others[-1]}"
