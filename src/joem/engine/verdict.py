"""What a training came to, in words."""

import torch

from joem.engine.evaluation import Evaluation

_ALL = 0.995  # share of the pixels that is as good as all of them
_HARDLY = 0.05  # of the way from one colour to all right: a model with masks in disorder comes as far
_FOUND = 10.0  # IoU in percent above which a class counts as found
_ADVICE = "Train longer (--train.steps), look at the masks (joem data folder --root DIR), or start from recipe folder."


def verdict(found: Evaluation) -> str:
    """One or two sentences on whether a model learned something.

    A model that gives all pixels one label, or is no better than one that does, is called so.
    """
    names, counts = found.vocabulary.names, found.confusion.double()
    pixels = counts.sum()
    if not pixels:
        return "No pixel of these pictures is labelled, so nothing can be said of the model."
    predicted, truth = counts.sum(0) / pixels, counts.sum(1) / pixels
    if predicted.max() >= _ALL:
        taken = names[int(predicted.argmax())]
        return f"All pixels are {taken}: the model learned nothing that shows. {_ADVICE}"
    shown = truth > 0
    per_class = torch.tensor(found.scores.per_class).double()[shown]
    one_colour = 100 * float(truth.max()) / int(shown.sum())
    mean = float(per_class.nanmean())
    commonest = names[int(truth.argmax())]
    if mean <= one_colour:
        return (
            f"Worse than one colour: the mean IoU is {mean:.1f}, and {one_colour:.1f} if all pixels were {commonest}. "
            f"{_ADVICE}"
        )
    if mean < one_colour + _HARDLY * (100 - one_colour):
        return (
            f"Hardly better than one colour: the mean IoU is {mean:.1f}, and {one_colour:.1f} if all pixels were "
            f"{commonest}. {_ADVICE}"
        )
    right = int((per_class > _FOUND).sum())
    return (
        f"{right} of the {int(shown.sum())} classes that are shown are found (IoU above {_FOUND:g}). The mean IoU is "
        f"{mean:.1f}; it would be {one_colour:.1f} if all pixels were {commonest}."
    )
