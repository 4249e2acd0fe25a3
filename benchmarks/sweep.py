"""The whole trade-off of a rule: deciding again for every value against one pass of `joem.calibration.Sweep`.

Deciding again starts from the features of every picture, or, harder to beat, from rankings that were kept in memory.

Run: python benchmarks/sweep.py
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from _measure import measure
from joem import decision, scores
from joem.calibration import Sweep
from joem.decision import Ranking
from joem.scores import Scores

PICTURES, SIZE, FEATURES, CHANNELS = 4, (366, 500), (46, 63), 256
Ranked = Iterable[tuple[Ranking, Tensor]]


class Pictures:
    """Pictures of PASCAL VOC's usual size: smooth features around prototypes, blocks of labels."""

    def __init__(self, classes: int) -> None:
        self.unseen = torch.arange(classes) >= classes - classes // 5
        self.prototypes = torch.randn(classes, CHANNELS)
        self.features, self.truth = [], []
        for _ in range(PICTURES):
            truth = torch.randint(0, classes, (1, 1, 6, 8))
            coarse = self.prototypes[truth[0]].permute(0, 3, 1, 2) + 2 * torch.randn(1, CHANNELS, 6, 8)
            self.features.append(F.interpolate(coarse, size=FEATURES, mode="bilinear"))
            self.truth.append(F.interpolate(truth.float(), size=SIZE)[:, 0].long())

    def ranked(self) -> Ranked:
        """Rank one picture after the other."""
        for features, truth in zip(self.features, self.truth, strict=True):
            yield decision.rank(features, self.prototypes, self.unseen, size=SIZE), truth


def grid(rule: str, values: int) -> tuple[float, ...]:
    steps = [step / values for step in range(values)]
    return tuple(20 * step for step in steps) if rule == "cs" else tuple(1 - step for step in steps)


def decided(ranked: Ranked, rule: str, value: float, unseen: Tensor) -> Scores:
    """Decide by one value, count and score."""
    counts = torch.zeros(len(unseen), len(unseen), dtype=torch.int64)
    for ranking, truth in ranked:
        counts += scores.confusion(truth, decision.get(rule).decide(ranking, value), len(unseen))
    return scores.scores(counts, unseen)


def one_pass(ranked: Ranked, rule: str, values: tuple[float, ...], unseen: Tensor) -> list[Scores]:
    sweep = Sweep(rule, values, len(unseen))
    for index, (ranking, truth) in enumerate(ranked):
        sweep.update(index, ranking, truth)
    return list(sweep.curve(unseen.nonzero().flatten().tolist()).scores)


def compare(pictures: Pictures, kept: list[tuple[Ranking, Tensor]], rule: str, count: int) -> str:
    values, unseen = grid(rule, count), pictures.unseen
    again = measure(lambda: [decided(pictures.ranked(), rule, value, unseen) for value in values], repeats=1)
    once = measure(lambda: one_pass(pictures.ranked(), rule, values, unseen))
    again_kept = measure(lambda: [decided(kept, rule, value, unseen) for value in values], repeats=1)
    once_kept = measure(lambda: one_pass(kept, rule, values, unseen))
    same = repr([decided(kept, rule, value, unseen) for value in values]) == repr(one_pass(kept, rule, values, unseen))
    costs = "".join(
        f"{slow.seconds * 1e3:9.0f} {fast.seconds * 1e3:6.0f} ms {slow.seconds / fast.seconds:5.1f} x"
        for slow, fast in ((again, once), (again_kept, once_kept))
    )
    return f"{len(unseen):4d}  {rule:5s}  {count:6d}{costs}  {same}"


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine would hide the difference
    print(f"{PICTURES} pictures of {SIZE[0]}x{SIZE[1]}, one thread; scores of every value included\n")
    print("                     from features               from kept rankings")
    print("   K  rule   values    again   once     faster    again   once     faster  same scores")
    for classes in (21, 60, 847):
        pictures = Pictures(classes)
        kept = list(pictures.ranked())
        for rule in ("cs", "ac", "ratio"):
            for count in (20, 100) if (classes, rule) == (21, "cs") else (20,):
                print(compare(pictures, kept, rule, count), flush=True)


if __name__ == "__main__":
    main()
