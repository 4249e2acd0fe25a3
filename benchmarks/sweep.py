"""The whole trade-off of a rule: deciding again for every value against one pass of `joem.calibration.Sweep`.

Run: python benchmarks/sweep.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from _measure import measure
from joem import decision, scores
from joem.calibration import Sweep
from joem.decision import Ranking
from joem.scores import Scores

PICTURES, SIZE, CHANNELS = 4, (366, 500), 64


def pictures(classes: int, unseen: Tensor) -> list[tuple[Ranking, Tensor]]:
    """Ranked pictures of PASCAL VOC's usual size: smooth features around prototypes, blocks of labels."""
    prototypes = torch.randn(classes, CHANNELS)
    made = []
    for _ in range(PICTURES):
        truth = torch.randint(0, classes, (1, 1, 6, 8))
        features = prototypes[truth[0]].permute(0, 3, 1, 2) + 2 * torch.randn(1, CHANNELS, 6, 8)
        labels = F.interpolate(truth.float(), size=SIZE)[:, 0].long()
        made.append((decision.rank(features, prototypes, unseen, size=SIZE), labels))
    return made


def grid(rule: str, values: int) -> tuple[float, ...]:
    steps = [step / values for step in range(values)]
    return tuple(20 * step for step in steps) if rule == "cs" else tuple(1 - step for step in steps)


def again(ranked: list[tuple[Ranking, Tensor]], rule: str, values: tuple[float, ...], unseen: Tensor) -> list[Scores]:
    """Decide for every value, count and score."""
    classes = len(unseen)
    counts = [torch.zeros(classes, classes, dtype=torch.int64) for _ in values]
    for ranking, truth in ranked:
        for matrix, value in zip(counts, values, strict=True):
            labels = decision.decide(ranking, rule, gamma=value, sigma=value)
            matrix.add_(scores.confusion(truth, labels, classes))
    return [scores.scores(matrix, unseen) for matrix in counts]


def one_pass(
    ranked: list[tuple[Ranking, Tensor]], rule: str, values: tuple[float, ...], unseen: Tensor
) -> list[Scores]:
    sweep = Sweep(rule, values, len(unseen))
    for ranking, truth in ranked:
        sweep.update(ranking, truth)
    return list(sweep.curve(unseen.nonzero().flatten().tolist()).scores)


def compare(ranked: list[tuple[Ranking, Tensor]], rule: str, count: int, unseen: Tensor) -> str:
    values = grid(rule, count)
    slow = measure(lambda: again(ranked, rule, values, unseen), repeats=1)
    fast = measure(lambda: one_pass(ranked, rule, values, unseen))
    same = repr(again(ranked, rule, values, unseen)) == repr(one_pass(ranked, rule, values, unseen))
    costs = f"{slow.seconds * 1e3:11.0f} ms  {fast.seconds * 1e3:7.1f} ms  {slow.seconds / fast.seconds:7.1f}"
    return f"{len(unseen):4d}  {rule:5s}  {count:6d}  {costs}  {same}"


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine would hide the difference
    print(f"{PICTURES} ranked pictures of {SIZE[0]}x{SIZE[1]}, one thread; scores of every value included\n")
    print("   K  rule   values  deciding again    one pass     faster  same scores")
    for classes in (21, 60, 847):
        unseen = torch.arange(classes) >= classes - classes // 5
        ranked = pictures(classes, unseen)
        for rule in ("cs", "ac", "ratio"):
            for count in (20, 100):
                print(compare(ranked, rule, count, unseen))


if __name__ == "__main__":
    main()
