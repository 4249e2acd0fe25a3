"""How well the teacher of names knows unseen classes by itself: ImageNet's classifier read by words, without a student.

    python benchmarks/teacher_alone.py --root DIR --protocol voc-zs3-10 --names strict

Nothing is trained. Every pixel takes the class whose word vector is nearest to the mean of the names' vectors, weighted
by the classifier's posterior (the expert `conse`). The share of each unseen class's pixels that is right is what a
student may have from the names alone; run it with `--names all` too.
"""

import argparse
from dataclasses import replace

from joem import engine, recipe
from joem.decision import Decision
from joem.engine import Model
from joem.engine.evaluation import spread_over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--protocol", default="voc-zs3-4")
    parser.add_argument("--names", choices=("strict", "all"), default="strict")
    parser.add_argument("--cache", help="folder of stored maps, as in --train.cache")
    parser.add_argument("--pictures", type=int, default=0, help="evenly spread over val; all if 0")
    given = parser.parse_args()
    conse = {"kind": "conse", "weight": 1.0, "temperature": 0.6, "attention": 8.0}
    own = recipe.load(
        "lite-blend-strict",
        {
            "data": {"root": given.root, "protocol": given.protocol},
            "method": {"names": given.names, "experts": [conse]},
            "train": {"cache": given.cache},
        },
    )
    problem = engine.open_problem(own.data, needed=("val",))
    if given.pictures:
        problem = replace(problem, val=spread_over(problem.val, given.pictures))
    model = Model.create(own, problem.vocabulary)
    for name, names in model.method.names_taken_out.items():
        print(f"{len(names)} names taken out for {name}: {', '.join(names)}")
    (found,) = engine.evaluate(model, problem, [Decision("nn")])
    print(f"{given.protocol}, {given.names} names, {found.images} pictures: {found.scores}")
    for label in problem.vocabulary.unseen_indices:
        row = found.confusion[label]
        share = 100 * float(row[label]) / max(1, int(row.sum()))
        print(f"{problem.vocabulary.names[label]:12} {share:5.1f} % of its pixels")


if __name__ == "__main__":
    main()
