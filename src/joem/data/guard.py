"""Zero-shot stays zero-shot: rules that keep unseen classes out of training, and a guard that checks."""

import numpy as np
import torch
from torch import Tensor

from joem.data.counts import class_pixels
from joem.data.dataset import Dataset
from joem.data.faults import listed
from joem.data.transforms import Transform
from joem.data.views import Unlabelled, View
from joem.errors import BadUsage, JoemError, LeakageError, choose
from joem.vocabulary import VOID, Vocabulary


def seen_only(dataset: Dataset, vocabulary: Vocabulary, rule: str) -> View:
    """Apply a training rule, so that no label of an unseen class is left.

    Args:
        dataset: pictures labelled with all classes.
        vocabulary: the same classes, and which of them are unseen.
        rule: "exclude" drops every picture that holds an unseen pixel (ZS3 setting); "ignore" keeps all
            pictures and turns unseen pixels to void (SPNet setting, where `relabel` has done that to the background);
            "unlabel" keeps every picture that holds an unseen pixel without a single label, for transductive learning.

    >>> from joem.data import scenes
    >>> len(seen_only(scenes.Scenes(50), scenes.vocabulary(), "exclude")) < 50
    True
    """
    choose("training rule", rule, ("exclude", "ignore", "unlabel"))
    if dataset.names != vocabulary.names:
        raise BadUsage(
            f"The dataset has the classes {', '.join(dataset.names)}, the vocabulary has "
            f"{', '.join(vocabulary.names)}: both must list the same names in the same order. joem.data.relabel leaves "
            "classes out."
        )
    unseen = list(vocabulary.unseen_indices)
    pixels = class_pixels(dataset)
    keep = torch.ones(len(dataset), dtype=torch.bool)
    if rule in {"exclude", "unlabel"}:
        keep = (pixels[:, unseen] == 0).all(dim=1)
    foreground = [index for index in vocabulary.seen_indices if vocabulary.names[index] != vocabulary.background]
    if not pixels[keep][:, foreground].any():
        held_out = ". Add pictures that show a class, or "
        if unseen:
            held_out = (
                f" (unseen: {listed(vocabulary.unseen)}). Hold out fewer classes, add pictures without the unseen "
                "ones, or "
            )
        raise JoemError(
            f"No seen class left after rule {rule!r}: {int(keep.sum())} of {len(dataset)} pictures stay, "
            f"without a labelled pixel of a seen class other than the background{held_out}"
            f"check that the masks hold the labels 0 to {len(vocabulary) - 1}; {VOID} is void, which is no class."
        )
    hidden = set(unseen) if rule == "ignore" else set()
    labels = {label: VOID if label in hidden else label for label in range(VOID)}  # wrong labels stay, for the guard
    if rule == "unlabel":
        without = (~keep).nonzero().flatten().tolist()
        return Unlabelled(dataset, range(len(dataset)), labels=labels, without=without)
    return View(dataset, keep.nonzero().flatten().tolist(), labels=labels)


def guard(labels: Tensor, vocabulary: Vocabulary) -> None:
    """Raise `LeakageError` if labels hold anything but seen classes and void.

    >>> guard(torch.tensor([[0, 255]]), Vocabulary(("cow", "dog"), unseen=("dog",)))
    """
    allowed = torch.zeros(VOID + 1, dtype=torch.bool)
    allowed[[*vocabulary.seen_indices, VOID]] = True
    values = labels.flatten().cpu()
    if len(values) == 0 or (_in_range(values) and allowed.index_select(0, values).all()):
        return
    counts = torch.bincount(values.clamp(min=-1) + 1, minlength=VOID + 2)  # bin 0: negative labels
    counts[1 : VOID + 2][allowed] = 0
    found = []
    for bin_index in counts.nonzero().flatten().tolist():
        label = bin_index - 1
        known = 0 <= label < len(vocabulary)
        what = f"unseen class {vocabulary.names[label]!r}" if known else f"label {label}, which is no class"
        found.append(f"{what} ({int(counts[bin_index])} pixels)")
    raise LeakageError(
        f"Training labels hold {'; '.join(found)}. Only the seen classes and void ({VOID}) may reach a loss: "
        "make the training set with joem.data.seen_only, and check the masks it reads."
    )


def _in_range(values: Tensor) -> bool:
    lowest, highest = values.aminmax()
    return int(lowest) >= 0 and int(highest) <= VOID


class TrainingSet:
    """Seen-only, guarded, transformed samples, the same for the same (seed, epoch, index) in any process.

    Args:
        dataset: pictures labelled with all classes.
        vocabulary: the same classes, and which of them are unseen.
        rule: what to do with unseen masks, see `seen_only`.
        transform: what to do with each picture and its labels, see `joem.data.training`.
        seed: another seed, other crops.

    >>> from joem.data import scenes, training
    >>> transform = training(64, mean=(127, 127, 127), std=(128, 128, 128))
    >>> pictures = scenes.Scenes(20, only=["red circle"])
    >>> image, labels = TrainingSet(pictures, scenes.vocabulary(), "exclude", transform, seed=0)[3, 7]
    >>> image.shape, labels.unique()
    (torch.Size([3, 64, 64]), tensor([0, 1]))
    """

    def __init__(self, dataset: Dataset, vocabulary: Vocabulary, rule: str, transform: Transform, *, seed: int) -> None:
        self.samples = seen_only(dataset, vocabulary, rule)
        self.vocabulary, self.transform, self.seed = vocabulary, transform, seed

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The image (3, h, w) and labels (h, w) of the picture at (epoch, index)."""
        epoch, index = key
        sample = self.samples[index]
        guard(sample.labels, self.vocabulary)
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also reseed the GPUs, which dropout draws from.
            torch.default_generator.manual_seed(mixed(self.seed, epoch, index))
            return self.transform(sample.image, sample.labels)


def mixed(*numbers: int) -> int:
    """One seed from several numbers, without patterns between neighbours."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
