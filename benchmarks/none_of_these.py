"""Telling labelled objects from everything else, and right from wrong: scores against the raw distance and the margin.

    python benchmarks/none_of_these.py runs/lite-blend-strict/model --folds TUNED/fold-0/model TUNED/fold-1/model

Two questions of every evaluation picture of VOC:

objects     all names but the background are asked for. A pixel of a labelled object is positive, one of VOC's
            background is none of these. AUROC, and the share of background that passes where 95 % of objects do.
all         all names are asked for. Are decisions that score high right? AUROC of right against wrong, the area under
            the risk-coverage curve (the mean share of mistakes over all coverages, from the surest), the mistakes left
            at 80 % coverage, and how far the score is from how often it is right (expected calibration error).

100 pixels of each picture, the same for all. The distance is that to the class which was taken, the margin how much
nearer it is than the next one, among trained classes and those asked for.
"""

import argparse
from dataclasses import replace

import torch
from torch import Tensor

from joem import calibration, engine, losses
from joem.decision import Decision, distances, rank
from joem.engine import Model, Problem
from joem.vocabulary import VOID

PIXELS = 100


def auroc(score: Tensor, positive: Tensor) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    _, inverse, counts = score.unique(return_inverse=True, return_counts=True)
    middle = (counts.cumsum(0) - (counts - 1) / 2).double()[inverse]  # the mean rank of equal values
    ones = positive.sum().double()
    return float((middle[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones)))


def false_positives(score: Tensor, positive: Tensor, rate: float = 0.95) -> float:
    """The share of negatives at least as high as the value that `rate` of the positives reach."""
    ordered = score[positive].sort(descending=True).values
    threshold = ordered[max(0, int(rate * len(ordered) + 0.999999) - 1)]
    return float((score[~positive] >= threshold).double().mean())


def risk_coverage(score: Tensor, right: Tensor) -> tuple[float, float]:
    """The area under the risk-coverage curve, and the risk at 80 % coverage, in percent."""
    wrong = (~right[score.argsort(descending=True, stable=True)]).double().cumsum(0)
    risk = wrong / torch.arange(1, len(wrong) + 1)
    return 100 * float(risk.mean()), 100 * float(risk[int(0.8 * len(risk)) - 1])


def calibration_error(score: Tensor, right: Tensor, bins: int = 15) -> float:
    """The mean distance between the score and how often it is right, over bins of equal width, in percent."""
    index = (score * bins).long().clamp(max=bins - 1)
    gaps = [
        (index == each).double().mean() * (score[index == each].mean() - right[index == each].double().mean()).abs()
        for each in index.unique()
    ]
    return 100 * float(torch.stack(gaps).sum())


def ask(model: Model, decision: Decision, problem: Problem) -> dict[str, Tensor]:
    """Rows of (d, d', score, taken, truth) of every pixel drawn, for both questions."""
    vocabulary = problem.vocabulary
    every = model.prototypes(vocabulary.names)
    trained = torch.tensor([name in vocabulary.seen for name in vocabulary.names])
    is_object = torch.tensor([name != vocabulary.background for name in vocabulary.names])
    questions = {"objects": is_object, "all": torch.ones_like(is_object)}
    rows: dict[str, list[Tensor]] = {key: [] for key in questions}
    generator = torch.Generator().manual_seed(0)
    for _, features, truth in engine.encoded(model, problem.val):
        labels = losses.resized(truth[None], features.shape[-2:]).flatten()
        labelled = (labels != VOID).nonzero().flatten()
        if not len(labelled):
            continue
        drawn = labelled[torch.randint(len(labelled), (PIXELS,), generator=generator)]
        pixels = features.flatten(2)[:, :, drawn].unsqueeze(2)
        apart = distances(pixels, every)[0, :, 0]
        for key, asked in questions.items():
            index = asked.nonzero().flatten()
            taken = index[decision.decide(rank(pixels, every[index], ~trained[index]))[0, 0]]
            own = apart.gather(0, taken[None])[0]
            other = apart.masked_fill(~(trained | asked)[:, None], torch.inf).scatter(0, taken[None], torch.inf).amin(0)
            score = decision.score(own, other, ~trained[taken])
            rows[key].append(torch.stack([own, other, score, taken.float(), labels[drawn].float()], 1))
    return {key: torch.cat(each).double() for key, each in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--folds", nargs="*", default=[], help="models of folds 0, 1 ... to fit the score on")
    given = parser.parse_args()
    model = Model.load(given.model)
    decision, problem = model.recipe.decision, engine.open_problem(model.recipe.data)
    if given.folds:
        parts = zip(map(Model.load, given.folds), calibration.fold_problems(problem, None, 0), strict=False)
        pixels = [row for fold in parts for row in calibration.ask_pixels(*fold)]
        decision = replace(decision, score=calibration.fit_score(pixels, decision))
    print(decision.to_dict(), f"{len(problem.val)} pictures", flush=True)
    background = problem.vocabulary.names.index(problem.vocabulary.background)
    for key, rows in ask(model, decision, problem).items():
        own, other, score, taken, truth = rows.unbind(1)
        signals = {"score": score, "margin": other - own, "1 - d/d'": 1 - own / other, "distance": -own}
        right, positive = taken == truth, truth != background
        for name, signal in signals.items():
            if key == "objects":
                found = auroc(signal, positive), false_positives(signal, positive)
                print("objects  {:10} AUROC {:.1%}  FPR at 95 % TPR {:.1%}".format(name, *found))
            else:
                area, at_80 = risk_coverage(signal, right)
                print(f"all      {name:10} AUROC {auroc(signal, right):.1%}  AURC {area:.1f}  at 80 % {at_80:.1f}")
        if key == "all":
            mistakes = float((~right).double().mean())
            print(f"calibration error {calibration_error(score, right):.1f} points; mistakes {mistakes:.1%}")


if __name__ == "__main__":
    main()
