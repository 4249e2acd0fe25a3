"""Words against examples: what 0, 1, 5 and 20 examples of each unseen class bring. Not zero-shot any more.

    python benchmarks/examples.py runs/lite-blend-strict/model --draws 5
    python benchmarks/examples.py FOLD/model --fold 0            a fold's model, on the classes it held out

Examples are training pictures that show an unseen class on at least 2 % of their pixels, with the mask of that class;
another draw takes others. Every evaluation picture is encoded once. Prints seen and unseen mIoU and hIoU by the model's
own rule, mean and standard deviation over the draws.
"""

import argparse
import json

import torch

from joem import calibration, data, decision, engine, examples, scores
from joem.asking import understand
from joem.classes import AskedClasses
from joem.engine import Model, Problem

LEAST = 0.02  # share of a picture that an example must mark


def draw(model: Model, problem: Problem, count: int, draws: int) -> dict[str, torch.Tensor]:
    """Prototypes (draws * count, C) of examples of every unseen class."""
    pixels = data.class_pixels(problem.train)
    shares = pixels / pixels.sum(1, keepdim=True).clamp(min=1)
    found = {}
    for label in problem.vocabulary.unseen_indices:
        fitting = (shares[:, label] >= LEAST).nonzero().flatten()
        order = torch.randperm(len(fitting), generator=torch.Generator().manual_seed(label))[: count * draws]
        chosen = fitting[order].tolist()
        found[problem.vocabulary.names[label]] = torch.cat(
            [
                examples.of_mask(features, truth == label)
                for _, features, truth in engine.encoded(model, problem.train, chosen, "examples")
            ]
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--fold", type=int, help="number of the fold that the model was trained on")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    model = Model.load(given.model)
    problem = engine.open_problem(model.recipe.data)
    if given.fold is not None:
        problem = calibration.fold_problems(problem, None, 0)[given.fold]
    vocabulary = problem.vocabulary
    trained = model.trained or engine.trained_features(model, problem)
    shown = draw(model, problem, max(given.counts), given.draws)
    words = dict(zip(vocabulary.names, model.prototypes(vocabulary.names), strict=True))
    question = understand(None, vocabulary)
    sets = {(0, 0): AskedClasses.of(question, words, {}, vocabulary.seen, None)}
    for count in given.counts:
        for number in range(given.draws):
            start = number * max(given.counts)
            some = {name: each[start : start + count] for name, each in shown.items()}
            sets[count, number] = AskedClasses.of(question, words, some, vocabulary.seen, trained)
    confusions = {key: torch.zeros(len(vocabulary), len(vocabulary), dtype=torch.int64) for key in sets}
    rule = model.recipe.decision
    centres = trained.whitened(trained.centres)
    means = trained.whitened(torch.cat([classes.shown for key, classes in sets.items() if key[0]]))
    for index, features, truth in engine.encoded(model, problem.val):
        ranking = sets[0, 0].rank(features, truth.shape, sets[0, 0].unseen)
        found = {(0, 0): rule.decide(ranking)}
        # All sets at once: what `AskedClasses.with_examples` does for each.
        compared = trained.whitened(features.movedim(1, -1)).movedim(-1, 1).contiguous()
        apart = decision.distances(compared, torch.cat([centres, means]), truth.shape)[0]
        of_trained, of_examples = apart[: len(centres)].amin(0), apart[len(centres) :].split(len(vocabulary.unseen))
        for (key, classes), of_set in zip(list(sets.items())[1:], of_examples, strict=True):
            nearest, example = of_set.min(0)
            found[key] = torch.where(nearest < of_trained, classes.shown_owners[example], found[0, 0])
            if index == 0:  # up to ties that float32 parts otherwise
                same = rule.decide(classes.with_examples(ranking, features, truth.shape))
                assert (same != found[key]).float().mean() < 1e-4
        for key, labels in found.items():
            confusions[key] += scores.confusion(truth[None], labels, len(vocabulary))
    found = {key: scores.scores(each, vocabulary.unseen_indices) for key, each in confusions.items()}
    print(f"{given.model}, unseen: {', '.join(vocabulary.unseen)}; {len(problem.val)} pictures, rule {rule}")
    print(f"{'examples':>8} {'seen':>12} {'unseen':>12} {'hIoU':>12}")
    for count in (0, *given.counts):
        rows = torch.tensor([(s.miou_seen, s.miou_unseen, s.hiou) for (n, _), s in found.items() if n == count])
        spread = rows.std(0) if len(rows) > 1 else torch.zeros(3)
        columns = (
            f"{mean:5.1f} +- {std:3.1f}" for mean, std in zip(rows.mean(0).tolist(), spread.tolist(), strict=True)
        )
        print(f"{count:8d} " + " ".join(f"{column:>12}" for column in columns), flush=True)
    per_class = {f"{n}/{number}": [round(iou, 1) for iou in s.per_class] for (n, number), s in found.items()}
    print(json.dumps({"names": vocabulary.names, "iou": per_class}))


if __name__ == "__main__":
    main()
