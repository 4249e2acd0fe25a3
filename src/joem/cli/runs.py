"""Commands that train, score, tune and report."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joem.cli.parsing import (
    check_setting_of_rule,
    new_parser,
    parse,
    parse_with_recipe,
    recipe_of,
    to_numbers,
    value_of,
)
from joem.errors import BadUsage, JoemError, choose


@contextmanager
def _one_voice() -> Iterator[None]:
    """Processes that train together end together: the first tells the user how, the others leave without a word."""
    from joem import engine

    try:
        yield
    except JoemError:
        if engine.place()[0] == 0:
            raise
    if engine.place()[0] > 0:
        raise SystemExit(0)  # with another code, the launcher would kill the first process before it has spoken


def _quickstart(words: Sequence[str]) -> None:
    parser = new_parser(
        "quickstart",
        "[options]",
        "Train, choose, evaluate, compare with shuffled words, add a word.",
        "joem quickstart",
    )
    parser.add_argument("--out", type=Path, default=Path("quickstart"), help="folder for the model and the report")
    parser.add_argument("--recipe", default="scenes", help="the recipe to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the pictures and the training")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    wish = parse(parser, words)
    from joem import quickstart, recipe

    settings = recipe.load(wish.recipe)
    settings.train.seed = settings.data.seed = wish.seed
    outcome = quickstart.run(settings, wish.out)
    numbers = outcome.to_dict()
    if wish.json:
        print(json.dumps(numbers, indent=2))
        return
    rows = [(f"{rule.upper()}", row) for rule, row in numbers["results"].items()]
    rows += [(f"{rule.upper()}, shuffled words", row) for rule, row in numbers["shuffled_control"].items()]
    _table("rule", ("miou_seen", "miou_unseen", "hiou"), rows)
    new = numbers["new_class"]
    print(f"\nA word never heard in training, {new['name']!r}: IoU {new['iou']:.1f}, added without training.")
    print(f"Report: {wish.out / 'report.html'}   model: {wish.out / 'model'}   ({numbers['seconds']:.0f} s)")


def _train(words: Sequence[str]) -> None:
    parser = new_parser(
        "train",
        "RECIPE [--out DIR] [--resume] [--SETTING VALUE ...]",
        "Train a recipe on the classes you have masks for.",
        "joem train scenes --train.epochs 5 --out runs/a",
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the run; runs/RECIPE if not given")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the folder")
    parser.add_argument("--json", action="store_true", help="print where the model and its metrics are as JSON")
    wish = parse_with_recipe(parser, words)
    from joem import engine

    out = wish.out or Path("runs") / Path(wish.recipe).stem
    with _one_voice():
        engine.train(recipe_of(wish, parser), out, resume=wish.resume)
    if wish.json:
        metrics = sorted(str(path) for path in out.glob("metrics*.csv"))
        print(json.dumps({"model": str(out / "model"), "metrics": metrics}, indent=2))
        return
    print(f"Trained. Model: {out / 'model'}   metrics: {out / 'metrics*.csv'}")


def _evaluate(words: Sequence[str]) -> None:
    parser = new_parser(
        "evaluate",
        "MODEL [options]",
        "Score a trained model: seen, unseen, hIoU, per class.",
        "joem evaluate runs/scenes",
    )
    parser.add_argument("model", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--device", default="cpu", help="where the networks run, such as cuda")
    parser.add_argument("--rule", default=None, help="one rule (nn, cs, ac, ratio); the first three and the model's "
                        "own if not given")  # fmt: skip
    parser.add_argument("--sigma", type=float, default=None, help="sigma of ac and ratio; the model's if not given")
    parser.add_argument("--gamma", type=float, default=None, help="gamma of cs; the model's if not given")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = parse(parser, words)
    if wish.rule:
        check_setting_of_rule(wish, wish.rule)
    from dataclasses import replace

    from joem import engine

    model = engine.Model.load(wish.model).to(wish.device)
    own = model.recipe.decision
    # The model's own rule comes last: its classes and confusions are told.
    rules = [wish.rule] if wish.rule else [rule for rule in ("nn", "cs", "ac") if rule != own.rule] + [own.rule]
    chosen = {
        key: getattr(own, key) if getattr(wish, key) is None else getattr(wish, key) for key in ("sigma", "gamma")
    }
    decisions = [replace(own, rule=rule, **chosen) for rule in rules]
    results = [found.to_dict() for found in engine.evaluate(model, _problem_of(model, wish.root), decisions)]
    if wish.json:
        print(json.dumps(results, indent=2))
        return
    _table(
        "rule",
        ("miou_seen", "miou_unseen", "hiou", "pixel_accuracy"),
        [(row["rule"], row) for row in results],
    )
    last = results[-1]
    marked = {name + (" *" if name in last["unseen"] else ""): value for name, value in last["per_class"].items()}
    print(f"\nPer class with {last['rule']} (* unseen):")
    for name, value in marked.items():
        print(f"  {name:28} " + ("   -" if value is None else f"{value:5.1f}"))
    print("\nConfusions that hurt most:")
    for pair in last["worst_confusions"]:
        print(f"  {pair['truth']} taken for {pair['predicted']}: {pair['percent']:.1f} % of its pixels")
    print(f"\n{last['images']} images, {last['images_per_second']:.1f} per second.")


def _compare(words: Sequence[str]) -> None:
    parser = new_parser(
        "compare",
        "[--protocol RECIPE] [--methods NAMES] [--seeds N] [--out DIR] [--SETTING VALUE ...]",
        "Train and score every system of the field on the same pictures, words and encoder, beside the published "
        "numbers. Runs that are done are not repeated: the same command goes on after an interruption.",
        "joem compare --protocol scenes --methods joem,spnet,zs3net --seeds 3 --out compare",
    )
    from joem import recipe

    parser.add_argument("--protocol", default="scenes", help=f"a YAML file, or one of {', '.join(recipe.names())}")
    parser.add_argument(
        "--methods",
        default="all",
        help="all, or names with commas between them: of methods, or of a table's rows, as their folders are called",
    )
    parser.add_argument(
        "--table",
        default="methods",
        help="methods, ablation, embedding-space, names, or generators, where --seeds and --folds do not count",
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs per row")
    parser.add_argument(
        "--folds",
        type=int,
        default=1,
        help="folds of held-out seen classes to choose sigma and gamma on; 0 takes the recipe's own",
    )
    parser.add_argument("--out", type=Path, default=Path("compare"), help="folder of the runs and the tables")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_class_arguments(recipe.Recipe)
    protocol = value_of("--protocol", words) or "scenes"

    def read(name: str) -> tuple[Any, Any]:
        """The options, and a recipe with the settings among them."""
        parser.set_defaults(recipe.values(name))
        wish = parse(parser, words)
        return wish, recipe_of(wish, parser)

    wish, settings = read(protocol)
    from dataclasses import replace

    from joem import compare

    own = {method: replace(read(name)[1], data=settings.data) for method, name in compare.own_recipes(protocol).items()}
    names = None if wish.methods == "all" else [name.strip() for name in wish.methods.split(",")]
    choose("table", wish.table, (*compare.TABLES, "generators"))
    if wish.table == "generators":
        qualities = compare.generators(settings, wish.out, names, own=own)
        plain = {name: [vars(row) for row in rows] for name, rows in qualities.items()}
        print(json.dumps(plain, indent=2) if wish.json else compare.markdown(*compare.quality_table(qualities)))
        return
    with _one_voice():
        found = compare.run(settings, wish.out, wish.table, names, wish.seeds, wish.folds, own=own)
    files = compare.write(found, wish.out, " ".join(["joem compare", *words]))
    if wish.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(compare.markdown(*compare.score_table(found)))
        print(f"\n{compare.scale(found)}\n\nWith every rule and class: {', '.join(map(str, files))}")
    if found.failures:
        told = "\n  ".join(found.failures)
        raise JoemError(f"{len(found.failures)} could not be run; the same command runs only these again:\n  {told}")


def _tune(words: Sequence[str]) -> None:
    parser = new_parser(
        "tune",
        "RECIPE [--out DIR] [--SETTING VALUE ...]",
        "Choose lambda, sigma and gamma by training with some seen classes held out as if unseen; no unseen class and "
        "no evaluation picture takes part. The same command goes on where it stopped; started several times, on one "
        "machine or many that share the folder or --storage, it shares the work. Writes DIR/recipe.yaml for joem train "
        "and DIR/tuned.json, which says why.",
        "joem tune scenes --folds 3 --lambdas 0.01,0.1,1 --out runs/tuned",
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the results; runs/RECIPE-tuned if not given")
    parser.add_argument("--lambdas", default=None, help="values to try; for joem the paper's 0.001 to 10 if not given")
    parser.add_argument("--folds", type=int, default=None, help="parts the seen classes are cut into; by default the "
                        "held-out share is the unseen share")  # fmt: skip
    parser.add_argument("--used", type=int, default=None, help="how many of the folds to train; all if not given")
    parser.add_argument("--storage", default=None, help="a database for Optuna; a journal in DIR if not given")
    parser.add_argument("--json", action="store_true", help="print what was chosen and why as JSON")
    wish = parse_with_recipe(parser, words)
    from joem import calibration, engine

    settings = recipe_of(wish, parser)
    out = wish.out or Path("runs") / f"{Path(wish.recipe).stem}-tuned"
    found = calibration.tune(
        settings,
        engine.open_problem(settings.data, needed=("train",)),
        out,
        to_numbers("--lambdas", wish.lambdas),
        wish.folds,
        wish.used,
        wish.storage,
    )
    if wish.json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    columns = ["lambda", "sigma", "gamma"] if found.has_lambda else ["sigma", "gamma"]
    print("".join(f"{column:>10}" for column in columns) + f"{'hIoU on held-out seen classes':>32}")
    for row in found.table:
        print("".join(f"{row[column]:10.3g}" for column in columns) + f"{row['hiou']:32.1f}")
    print(f"\n{found.reason}\nNext: joem train {out / 'recipe.yaml'}")


def _sweep(words: Sequence[str]) -> None:
    parser = new_parser(
        "sweep",
        "RUN [options]",
        "The scores of every gamma (cs) and every sigma (ac, ratio) from one pass over the evaluation pictures, with "
        "curves as CSV, JSON and PNG. The best values found here are hindsight: choose with joem tune.",
        "joem sweep runs/scenes --sigmas 1,0.9,0.8,0.7",
    )
    parser.add_argument("run", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--device", default="cpu", help="where the networks run, such as cuda")
    parser.add_argument("--rules", default="cs,ac,ratio", help="which rules, separated by commas")
    parser.add_argument("--gammas", default=None, help="values of cs; from 0 to where all is unseen if not given")
    parser.add_argument("--sigmas", default=None, help="values of ac and ratio; 1 to 0.02 if not given")
    parser.add_argument("--out", type=Path, default=None, help="folder for the curves; RUN/sweep if not given")
    parser.add_argument("--json", action="store_true", help="print the curves as JSON")
    wish = parse(parser, words)
    from joem import calibration, engine
    from joem.report import curves as curve_files

    calibration.join_processes()
    model = engine.Model.load(wish.run).to(wish.device)
    gammas, sigmas = to_numbers("--gammas", wish.gammas), to_numbers("--sigmas", wish.sigmas)
    curves = calibration.sweep(
        model,
        _problem_of(model, wish.root),
        [rule.strip() for rule in wish.rules.split(",")],
        gammas=sorted({0.0, *gammas}) if gammas else None,
        sigmas=sorted({1.0, *sigmas}, reverse=True) if sigmas else calibration.SIGMAS,
    )
    out = wish.out or wish.run / "sweep"
    if not curve_files.save(curves, model.recipe.decision, out):
        return
    if wish.json:
        print(json.dumps([curve.to_dict() for curve in curves.values()], indent=2))
        return
    first = next(iter(curves.values()))
    rows = [("nn", first.points()[0])]
    for rule, curve in curves.items():
        rows.append((f"{rule}, {curve.parameter} {curve.values[curve.best]:.3g}", curve.points()[curve.best]))
    _table("best with hindsight", ("miou_seen", "miou_unseen", "hiou"), rows)
    print("\n" + "   ".join(f"area under {rule}: {curve.area:.1f}" for rule, curve in curves.items()))
    print(f"Curves: {out}/curves.csv, curves.json and *.png")


def _report(words: Sequence[str]) -> None:
    parser = new_parser(
        "report",
        "RUN [options]",
        "Write one self-contained HTML file with scores, curves, confusions, classes, best and worst pictures, the "
        "embedding space, recipe and provenance.",
        "joem report runs/scenes",
    )
    parser.add_argument("run", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--device", default="cpu", help="where the networks run, such as cuda")
    parser.add_argument("--out", type=Path, default=None, help="the file; RUN/report.html if not given")
    parser.add_argument("--figures", type=Path, default=None, help="also write the embedding space as PNG files here")
    parser.add_argument(
        "--pair",
        default=None,
        help="SEEN,UNSEEN: the classes of the Apollonius figure; those that meet most often if not given",
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    wish = parse(parser, words)
    seen, _, unseen = (wish.pair or "").partition(",")
    if wish.pair is not None and not (seen.strip() and unseen.strip()):
        raise BadUsage(f"--pair takes a seen and an unseen class with a comma between them, got {wish.pair!r}.")
    pair = (seen.strip(), unseen.strip()) if wish.pair else None
    from joem import engine
    from joem.report import run

    model = engine.Model.load(wish.run).to(wish.device)
    problem = _problem_of(model, wish.root)
    out = wish.out or wish.run / "report.html"
    found = run.write(model, problem, wish.run, out, pair=pair, pictures=wish.figures)
    print(json.dumps(found.own.to_dict(), indent=2) if wish.json else f"{found.own.scores}\nReport: {out}")


def _reproduce(words: Sequence[str]) -> None:
    parser = new_parser(
        "reproduce",
        "[NAME] [options]",
        "Run a table or figure of the paper as a job: train what it needs, write a table with the published values "
        "beside ours, and figures. Without a name, list the jobs. Runs that are done are kept.",
        "joem reproduce fig5 --scale lite --root VOCdevkit",
    )
    parser.add_argument("name", nargs="?", default=None, help="which table or figure")
    parser.add_argument("--scale", default="paper", help="paper: its networks and data; lite: VOC on a CPU")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipes say")
    parser.add_argument("--vectors", default=None, help="source of word vectors, if not the recipes' own")
    parser.add_argument(
        "--folds",
        type=int,
        default=3,
        help="folds of held-out seen classes that tables choose sigma and gamma on; lambda is the recipes' own",
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the job; runs/reproduce/NAME if not given")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    wish = parse(parser, words)
    from joem import reproduce

    if wish.name is None:
        for name, job in reproduce.JOBS.items():
            print(f"  {name:12} {job.about} ({' or '.join(job.recipes)})")
        return
    out = wish.out or Path("runs") / "reproduce" / wish.name
    with _one_voice():
        rows = reproduce.reproduce(wish.name, out, wish.scale, wish.root, wish.vectors, wish.folds)
    if wish.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':56}{'seen / unseen / hIoU':>24}{'published':>24}  on")
    for row in rows:
        ours, theirs = (_three(values) for values in (row, row["published"]))
        print(f"{row['what']:56}{ours:>24}{theirs:>24}  {row['published_on'] or ''}")
    print(f"\nTable and figures: {out}")


def _three(scores: Any) -> str:
    values = [scores[key] for key in ("seen", "unseen", "hiou")] if scores else []
    return " / ".join("-" if value is None else f"{value:.1f}" for value in values)


def _problem_of(model: Any, root: str | None) -> Any:
    """The evaluation pictures a model was made for, wherever they are now."""
    from dataclasses import replace

    from joem import engine

    model.recipe.data = replace(model.recipe.data, root=root or model.recipe.data.root)  # stored maps go by it too
    return engine.open_problem(model.recipe.data, needed=("val",))


def _table(first: str, columns: Sequence[str], rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
    titles = {"miou_seen": "seen", "miou_unseen": "unseen", "hiou": "hIoU", "pixel_accuracy": "pixels right"}
    print(f"{first:24}" + "".join(f"{titles[column]:>14}" for column in columns))
    for name, row in rows:
        cells = ("-" if row[column] is None else f"{row[column]:.1f}" for column in columns)
        print(f"{name:24}" + "".join(f"{cell:>14}" for cell in cells))


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "quickstart": _quickstart,
    "train": _train,
    "evaluate": _evaluate,
    "compare": _compare,
    "tune": _tune,
    "sweep": _sweep,
    "report": _report,
    "reproduce": _reproduce,
}
