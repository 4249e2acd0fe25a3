"""A training step of L_ce + L_bar + lambda * L_sc against the same network with plain cross-entropy (Linux).

Run it as `python benchmarks/objective.py`. Both steps go forward, backward and update, in turns; the seconds that L_bar
and L_sc add are also measured alone, as features and labels go in and gradients come out.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from joem.engine import reuse_freed_memory
from joem.losses import resized
from joem.methods.joem import JoEm, JoEmSettings
from joem.models.heads import DeepLabV3PlusSettings
from joem.settings import ModelSettings
from joem.vocabulary import VOID, Vocabulary
from losses import regions

CLASSES = 21


def plain(method: JoEm, features: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of the labels at the size of the features."""
    return F.cross_entropy(method.classifier(features), resized(labels, features.shape[2:]), ignore_index=VOID)


def whole(method: JoEm, features: Tensor, labels: Tensor) -> Tensor:
    """The paper's objective, as it is trained."""
    return torch.stack(list(method.objective(features, labels).terms.values())).sum()


def measured(steps: list[Callable[[], float]], rounds: int) -> list[list[float]]:
    """CPU seconds of every step, round by round: on a busy machine they tell more than the clock."""
    for step in steps:
        step()
    return [[step() for step in steps] for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", nargs="+", default=["resnet18", "resnet101"])
    parser.add_argument("--variant", default="paper", choices=["paper", "official"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--bf16", action="store_true", help="train with --train.precision bf16-mixed")
    given = parser.parse_args()
    reuse_freed_memory()
    print(f"DeepLabV3+, four 312x312 pictures, {CLASSES} classes, {torch.get_num_threads()} threads")
    for name in given.backbones:
        torch.manual_seed(0)
        vocabulary = Vocabulary(tuple(f"class {index}" for index in range(CLASSES)))
        settings = ModelSettings(backbone=name, head=DeepLabV3PlusSettings())
        method = JoEm(settings, JoEmSettings(variant=given.variant), vocabulary, torch.randn(CLASSES, 300)).train()
        optimiser = torch.optim.SGD(method.parameters(), lr=1e-4, momentum=0.9)
        images, labels = torch.randn(4, 3, 312, 312), regions(CLASSES)

        def step(loss: Callable[[JoEm, Tensor, Tensor], Tensor]) -> float:
            start = time.process_time()
            optimiser.zero_grad()  # noqa: B023
            with torch.autocast("cpu", enabled=given.bf16):
                value = loss(method, method.features(images), labels)  # noqa: B023
            value.backward()
            optimiser.step()  # noqa: B023
            return time.process_time() - start

        found = measured([lambda: step(plain), lambda: step(whole)], given.rounds)
        bare, full = (statistics.median(each) for each in zip(*found, strict=True))
        ratio = statistics.median(b / a for a, b in found)
        print(f"  {name:<12}cross-entropy {bare:6.3f} s, whole objective {full:6.3f} s, ratio {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
