"""What words for a class nobody labelled are best: its name, a description, a dictionary's gloss, several prompts.

Every run must be of a fold of held-out seen classes (`joem.calibration.fold_problems`), so that no unseen class and no
evaluation picture takes part. Each picture kept for scoring is encoded once; only the held-out classes' vectors change.

Run: python benchmarks/descriptions.py RUN [RUN ...]     25 minutes per fold of VOC beside other work, maps stored
"""

import argparse
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from joem import decision, semantics
from joem.calibration import Sweep, fold_problems, new_sweeps
from joem.decision import Decision
from joem.engine import MapStore, Model, Problem, Scoring, open_problem
from joem.scores import Scores
from joem.semantics import Semantics

DESCRIPTIONS = {
    "aeroplane": "a large metal machine with two long wings and a tail that flies in the sky or stands on a runway",
    "bicycle": "a thin metal frame with two spoked wheels, pedals, a saddle and handlebars, ridden by a person",
    "bird": "a small animal with feathers, two wings, a beak and two thin legs",
    "boat": "a vessel with a hull and often a mast or sails that floats on water",
    "bottle": "a tall narrow container of glass or plastic with a thin neck and a cap",
    "bus": "a long boxy road vehicle with rows of large windows and many seats for passengers",
    "car": "a road vehicle with four wheels, doors, windows and headlights",
    "cat": "a small furry pet with pointed ears, whiskers and a long tail",
    "chair": "a piece of furniture with four legs, a seat and a back for one person",
    "cow": "a large farm animal with horns and hooves, white, brown or black, that grazes on grass",
    "diningtable": "a piece of furniture with a flat top on legs, set with plates, glasses and food",
    "dog": "a furry pet with four legs, a snout, hanging ears and a tail",
    "horse": "a tall four-legged animal with a mane, a long head and hooves that people ride",
    "motorbike": "a heavy vehicle with two wheels, an engine, a fuel tank and handlebars",
    "person": "a human being with a face, hair, arms and legs who wears clothes",
    "pottedplant": "green leaves or flowers that grow in a pot",
    "sheep": "a farm animal with four thin legs and a thick white woolly coat",
    "sofa": "a long soft upholstered seat with cushions and armrests for several people",
    "train": "a row of long railway carriages with a locomotive on rails",
    "tvmonitor": "a flat black rectangular screen on a stand that shows pictures",
}

PROMPTS = (
    "a photo of a {}", "a picture of a {} in a scene", "a close-up photo of a {}", "there is a {} in the photo",
    "a photo of a large {}",
)  # fmt: skip

Words = Callable[[Semantics, Sequence[str]], Tensor]


def told(texts: Callable[[str], str], mode: semantics.space.Descriptions) -> Words:
    """Vectors of names with what is told about them."""
    return lambda space, names: space.with_descriptions(mode).vectors([f"{name}: {texts(name)}" for name in names])


def in_one_phrase(texts: Callable[[str], str]) -> Words:
    """Vectors of phrases that hold the name and what is told about it."""
    return lambda space, names: space.vectors([f"{name}, {texts(name)}" for name in names])


def exchanged(space: Semantics, names: Sequence[str]) -> Tensor:
    """Control: vectors of names, each with the description of another held-out class."""
    others = [*names[1:], *names[:1]]
    return space.with_descriptions("both").vectors(
        [f"{name}: {DESCRIPTIONS[other]}" for name, other in zip(names, others, strict=True)]
    )


def prompted(*prompts: str) -> Words:
    """Vectors of names in sentences."""
    return lambda space, names: space.with_prompt(prompts).vectors(names)


def gloss(name: str) -> str:
    """What WordNet says, or else the name again."""
    return semantics.gloss(name) or name


WORDS: dict[str, Words] = {
    "name": lambda space, names: space.vectors(names),
    "gloss": told(gloss, "description"),
    "name + gloss": told(gloss, "both"),
    "name, gloss in one phrase": in_one_phrase(gloss),
    "description": told(DESCRIPTIONS.__getitem__, "description"),
    "name + description": told(DESCRIPTIONS.__getitem__, "both"),
    "name + another's description": exchanged,
    "name, description in one phrase": in_one_phrase(DESCRIPTIONS.__getitem__),
    "prompt {}": prompted("{}"),
    "five prompts": prompted(*PROMPTS),
    "{} and five prompts": prompted("{}", *PROMPTS),
}


def fold_of(model: Model) -> Problem:
    """The fold that a model was trained on."""
    problem = open_problem(model.recipe.data)
    for fold in fold_problems(problem, None, seed=0):
        if (fold.vocabulary.names, fold.vocabulary.unseen) == (model.vocabulary.names, model.vocabulary.unseen):
            return fold
    raise SystemExit(f"No fold holds out {', '.join(model.vocabulary.unseen)}: words are chosen on folds only.")


@torch.no_grad()
def measure(run: str) -> dict[str, dict[str, Scores]]:
    """Words -> rule -> scores on the pictures that a fold keeps for scoring."""
    model = Model.load(run)
    fold, method = fold_of(model), model.method.eval()
    names, unseen = fold.vocabulary.names, list(fold.vocabulary.unseen_indices)
    rules = {"own rule": model.recipe.decision, "nn": Decision("nn")}
    prototypes, scorings, sweeps = {}, {}, {}
    for words, vectors_of in WORDS.items():
        vectors = model.vectors.clone()
        vectors[unseen] = vectors_of(model.semantics, fold.vocabulary.unseen)
        prototypes[words] = method.prototypes(vectors, names)
        scorings[words] = {rule: Scoring(each, fold.vocabulary) for rule, each in rules.items()}
        sweeps[words] = new_sweeps(model, fold, ["cs"])["cs"]
    store, started = MapStore.open(model.recipe, method.trunk), time.monotonic()
    for index in range(len(fold.val)):
        truth = fold.val.labels(index)
        features = method.features(store.maps(fold.val, index))
        known = decision.norms(features, size=truth.shape)
        for words, each in prototypes.items():
            ranking = decision.rank(features, each, unseen, size=truth.shape, known=known)
            for evaluator in (*scorings[words].values(), sweeps[words]):
                evaluator.update(index, ranking, truth[None])
        if index % 50 == 49:
            print(f"{run}: {index + 1}/{len(fold.val)} pictures, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{run} holds out {', '.join(fold.vocabulary.unseen)}; its own rule: {model.recipe.decision}")
    return {
        words: {rule: each.result().scores for rule, each in scorings[words].items()}
        | {"best cs": best(sweeps[words], unseen)}
        for words in WORDS
    }


def best(sweep: Sweep, unseen: list[int]) -> Scores:
    """The scores at the gamma with the largest hIoU, chosen with hindsight."""
    return max(sweep.curve(unseen).scores, key=lambda each: each.hiou)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a fold's training")
    torch.set_num_threads(1)
    found = {run: measure(run) for run in parser.parse_args().runs}
    print("\nunseen mIoU / hIoU, the mean over the runs last")
    for rule in ("own rule", "nn", "best cs"):
        print(f"\n{rule}")
        for words in WORDS:
            rows = [(each[words][rule].miou_unseen, each[words][rule].hiou) for each in found.values()]
            rows.append(tuple(sum(column) / len(column) for column in zip(*rows, strict=True)))
            print(f"{words:32s}" + "".join(f"{unseen:7.1f} / {hiou:4.1f}" for unseen, hiou in rows))


if __name__ == "__main__":
    main()
