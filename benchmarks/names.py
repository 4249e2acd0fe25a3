"""What ImageNet's names cost a training step: time and memory at 1k, 12k and 22k names, all at once and in blocks.

Run: python benchmarks/names.py
"""

import torch

from _measure import measure
from joem.methods.experts import Cosine, CosineSettings, NamesTeacher, Shared, View, names
from joem.models import Hypercolumns
from joem.semantics import imagenet
from joem.vocabulary import Vocabulary

CHANNELS, PICTURES, PIXELS, WORDS = [48, 120, 352], 32, 64, 384


def step(count: int, many: int) -> None:
    """Forward and backward of what names teach, on so many pixels as a step of the lite recipes has."""
    names.MANY = many
    torch.manual_seed(0)
    teacher = NamesTeacher(CHANNELS[-1], range(count), WORDS, saved=False)
    teacher.vectors.normal_()
    vocabulary = Vocabulary(("background", "horse", "cow"), ("cow",), "background")
    expert = Cosine(CosineSettings(), Shared(vocabulary, WORDS, CHANNELS, (8, 16, 16), teacher))
    columns = torch.randn(PICTURES, sum(CHANNELS) + 2 * CHANNELS[-1], 1, PIXELS)
    view = View(Hypercolumns(columns), columns[:, sum(CHANNELS[:-1]) : sum(CHANNELS)], (1, PIXELS))
    terms = expert.terms(view, torch.randint(0, 2, (PICTURES, 1, PIXELS)), torch.randn(3, WORDS))
    torch.stack(list(terms.values())).sum().backward()


def main() -> None:
    print(f"{'names':>8} {'how':>12} {'s / step':>9} {'peak MB':>8}")
    for subset in ("imagenet-1k", "imagenet-12k", "imagenet-22k"):
        count = len(imagenet.entries_of(subset))
        for how, many in (("all at once", count), ("in blocks", 0)):
            found = measure(lambda count=count, many=many: step(count, many), repeats=1)
            print(f"{count:8} {how:>12} {found.seconds:9.2f} {found.peak_bytes / 1e6:8.0f}", flush=True)


if __name__ == "__main__":
    main()
