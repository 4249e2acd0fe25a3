"""Telling labelled objects from everything else, and right from wrong: scores against the raw distance and the margin.

    python benchmarks/none_of_these.py runs/lite-blend-strict/model --score 'TUNED/recipe.yaml'

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

from joem import calibration, engine, losses, recipe
from joem.asking import understand
from joem.classes import AskedClasses
from joem.decision import distances, rank
from joem.engine import Model
from joem.vocabulary import VOID

PIXELS = 100


def auroc(score: Tensor, positive: Tensor) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    values, inverse, counts = score.unique(return_inverse=True, return_counts=True)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--score", help="a recipe whose score to take, instead of the model's own")
    parser.add_argument("--folds", nargs="*", default=[], help="models of folds to fit the score on, by their numbers")
    given = parser.parse_args()
    model = Model.load(given.model)
    decision = model.recipe.decision
    problem = engine.open_problem(model.recipe.data)
    if given.score:
        decision = replace(decision, score=recipe.load(given.score).decision.score)
    if given.folds:
        parts = calibration.fold_problems(problem, None, 0)
        loaded = ((Model.load(path), parts[number]) for number, path in enumerate(given.folds))
        decision = replace(
            decision,
            score=calibration.fit_score([row for fold in loaded for row in calibration.ask_pixels(*fold)], decision),
        )
    print(decision.to_dict())
    assert decision.score is not None
    vocabulary = problem.vocabulary
    words = dict(zip(vocabulary.names, model.prototypes(vocabulary.names), strict=True))
    objects = [name for name in vocabulary.names if name != vocabulary.background]
    questions = {"objects": understand(objects, vocabulary, background=False), "all": understand(None, vocabulary)}
    asked = {key: AskedClasses.of(each, words, {}, vocabulary.seen, None) for key, each in questions.items()}
    rows: dict[str, list[Tensor]] = {key: [] for key in asked}
    generator = torch.Generator().manual_seed(0)
    every = torch.stack(list(words.values()))
    trained = torch.tensor([name in vocabulary.seen for name in vocabulary.names])
    for _, features, truth in engine.encoded(model, problem.val):
        labels = losses.resized(truth[None], features.shape[-2:]).flatten()
        labelled = (labels != VOID).nonzero().flatten()
        if not len(labelled):
            continue
        drawn = labelled[torch.randint(len(labelled), (PIXELS,), generator=generator)]
        pixels = features.flatten(2)[:, :, drawn].unsqueeze(2)
        apart = distances(pixels, every)[0, :, 0]
        for key, classes in asked.items():
            index = torch.tensor([vocabulary.names.index(name) for name in classes.names])
            unseen = ~trained[index]
            taken = index[decision.decide(rank(pixels, every[index], unseen))[0, 0]]
            own = apart.gather(0, taken[None])[0]
            among = trained | torch.isin(torch.arange(len(every)), index)
            other = apart.masked_fill(~among[:, None], torch.inf).scatter(0, taken[None], torch.inf).amin(0)
            score = decision.score(own, other, ~trained[taken])
            rows[key].append(torch.stack([own, other, score, taken.float(), labels[drawn].float()], 1))
    background = vocabulary.names.index(vocabulary.background)
    for key, parts in rows.items():
        own, other, score, taken, truth = torch.cat(parts).double().unbind(1)
        signals = {"score": score, "margin": other - own, "ratio 1 - d/d'": 1 - own / other, "distance": -own}
        right = taken == truth
        for name, signal in signals.items():
            if key == "objects":
                positive = truth != background
                print(
                    f"objects  {name:15} AUROC {100 * auroc(signal, positive):5.1f}  FPR at 95 % TPR "
                    f"{100 * false_positives(signal, positive):5.1f}"
                )
            else:
                area, at_80 = risk_coverage(signal, right)
                error = f"  calibration error {calibration_error(signal, right):4.1f}" if name == "score" else ""
                print(
                    f"all      {name:15} AUROC {100 * auroc(signal, right):5.1f}  area under risk-coverage {area:5.1f}  "
                    f"mistakes at 80 % coverage {at_80:5.1f}{error}"
                )
        if key == "all":
            print(f"all      mistakes at full coverage {100 * (1 - float(right.double().mean())):.1f}")


if __name__ == "__main__":
    main()
