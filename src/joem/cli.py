"""The command line: thin, quick to start, errors on stderr, exit 0 (done), 1 (failed) or 2 (bad usage)."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from joem import __version__
from joem.errors import BadUsage, JoemError, choose

_OVERVIEW = """\
joem {version}: segment pictures into classes named by words, including classes nobody ever labelled.

usage: joem COMMAND [options]      joem COMMAND --help teaches each one

  quickstart  the whole job on generated pictures, in minutes, with a report to look at
  train       train a recipe on the classes you have masks for
  evaluate    score a trained model: seen, unseen, hIoU, per class
  compare     train and score every system of the field side by side, beside the published numbers
  predict     segment your own pictures with your own words
  tune        choose lambda, sigma and gamma on seen classes held out as if unseen
  sweep       the whole seen-unseen trade-off of every rule from one pass
  report      one HTML file that shows a run: scores, curves, classes, pictures
  reproduce   a table or figure of the paper, with the published values beside ours
  export      write a model as one ONNX file that runs without torch
  serve       a web page and a REST API on a model
  data        prepare the benchmarks, look at a dataset, list protocols and recipes

Start here:   joem quickstart
Your photo:   joem predict photo.jpg --classes "cow, grass, tractor"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {"-h", "--help"}:
        print(_OVERVIEW.format(version=__version__), end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    try:
        choose("command", words[0], _COMMANDS)
        _COMMANDS[words[0]](words[1:])
    except BadUsage as error:
        return _fail(error, 2)
    except JoemError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    return 0


def _fail(message: object, code: int) -> int:
    print(f"joem: {message}", file=sys.stderr)
    return code


def _parser(command: str, usage: str, description: str, example: str) -> Any:
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        prog=f"joem {command}",
        usage=f"joem {command} {usage}",
        description=f"{description} Example: {example}",
        exit_on_error=False,
    )


def _parse(parser: Any, words: Sequence[str]) -> Any:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(list(words))
    except ArgumentError as error:
        raise BadUsage(f"{error}\n{parser.prog} --help lists what can be given.") from None


def _parse_with_recipe(parser: Any, words: Sequence[str]) -> Any:
    """Let a parser take a recipe by name or file first, with every setting of it overridable after it."""
    from joem import recipe

    parser.add_argument("recipe", help=f"a YAML file, or one in the box: {', '.join(recipe.names())}")
    parser.add_class_arguments(recipe.Recipe)
    if words and not words[0].startswith("-"):
        parser.set_defaults(recipe.load(words[0]).to_dict())
    elif not {"-h", "--help"} & set(words):
        raise BadUsage(f"Give the recipe first: {parser.usage}. Recipes in the box: {', '.join(recipe.names())}.")
    return _parse(parser, words)


def _recipe(values: Any, parser: Any) -> Any:
    from joem.recipe import Recipe

    made = parser.instantiate_classes(values)
    return Recipe(**{field: getattr(made, field) for field in Recipe.__dataclass_fields__})


def _quickstart(words: Sequence[str]) -> None:
    parser = _parser(
        "quickstart",
        "[options]",
        "Train, choose, evaluate, compare with shuffled words, add a word.",
        "joem quickstart",
    )
    parser.add_argument("--out", type=Path, default=Path("quickstart"), help="folder for the model and the report")
    parser.add_argument("--recipe", default="scenes", help="the recipe to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the pictures and the training")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    wish = _parse(parser, words)
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
    parser = _parser(
        "train",
        "RECIPE [--out DIR] [--resume] [--SETTING VALUE ...]",
        "Train a recipe on the classes you have masks for.",
        "joem train scenes --train.epochs 5 --out runs/a",
    )
    parser.add_argument("--out", type=Path, default=None, help="folder of the run; runs/RECIPE if not given")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the folder")
    parser.add_argument("--json", action="store_true", help="print where the model and its metrics are as JSON")
    wish = _parse_with_recipe(parser, words)
    from joem import engine

    out = wish.out or Path("runs") / Path(wish.recipe).stem
    engine.train(_recipe(wish, parser), out, resume=wish.resume)
    if wish.json:
        metrics = sorted(str(path) for path in out.glob("metrics*.csv"))
        print(json.dumps({"model": str(out / "model"), "metrics": metrics}, indent=2))
        return
    print(f"Trained. Model: {out / 'model'}   metrics: {out / 'metrics*.csv'}")


def _evaluate(words: Sequence[str]) -> None:
    parser = _parser(
        "evaluate",
        "MODEL [options]",
        "Score a trained model: seen, unseen, hIoU, per class.",
        "joem evaluate runs/scenes",
    )
    parser.add_argument("model", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--rule", default=None, help="one rule (nn, cs, ac, ratio); nn, cs and ac if not given")
    parser.add_argument("--sigma", type=float, default=None, help="sigma of ac and ratio; the model's if not given")
    parser.add_argument("--gamma", type=float, default=None, help="gamma of cs; the model's if not given")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = _parse(parser, words)
    from dataclasses import replace

    from joem import engine

    model = engine.Model.load(wish.model)
    own = model.recipe.decision
    rules = [wish.rule] if wish.rule else ["nn", "cs", "ac"]
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
    parser = _parser(
        "compare",
        "[--protocol RECIPE] [--methods NAMES] [--seeds N] [--out DIR] [--SETTING VALUE ...]",
        "Train and score every system of the field on the same pictures, words and encoder, beside the published "
        "numbers. Runs that are done are not repeated: the same command goes on after an interruption.",
        "joem compare --protocol scenes --methods joem,spnet,zs3net --seeds 3 --out compare",
    )
    from joem import recipe

    parser.add_argument("--protocol", default="scenes", help=f"a YAML file, or one of {', '.join(recipe.names())}")
    parser.add_argument("--methods", default="all", help="all, or names of methods with commas between them")
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
    parser.set_defaults(recipe.load(_value("--protocol", words) or "scenes").to_dict())
    wish = _parse(parser, words)
    from joem import compare

    names = None if wish.methods == "all" else [name.strip() for name in wish.methods.split(",")]
    settings = _recipe(wish, parser)
    choose("table", wish.table, (*compare.TABLES, "generators"))
    if wish.table == "generators":
        qualities = compare.generators(settings, wish.out, names)
        plain = {name: [vars(row) for row in rows] for name, rows in qualities.items()}
        print(json.dumps(plain, indent=2) if wish.json else compare.markdown(*compare.quality_table(qualities)))
        return
    found = compare.run(settings, wish.out, wish.table, names, wish.seeds, wish.folds)
    files = compare.write(found, wish.out, " ".join(["joem compare", *words]))
    if wish.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(compare.markdown(*compare.score_table(found)))
        print(f"\n{compare.scale(found)}\n\nWith every rule and class: {', '.join(map(str, files))}")
    if found.failures:
        told = "\n  ".join(found.failures)
        raise JoemError(f"{len(found.failures)} could not be run; the same command runs only these again:\n  {told}")


def _value(option: str, words: Sequence[str]) -> str | None:
    """What an option is given, before the parser knows the recipe whose defaults it should have."""
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
        if word == option and place + 1 < len(words):
            return words[place + 1]
    return None


def _predict(words: Sequence[str]) -> None:
    parser = _parser(
        "predict",
        "IMAGES... [--model MODEL] [--classes NAMES] [options]",
        "Segment your own pictures with your own words.",
        'joem predict photo.jpg holiday/ "scans/*.tif" --classes "background, cow, sofa|couch" --out found',
    )
    parser.add_argument(
        "images", nargs="+", help="picture files, folders, patterns in quotes, or - for a list on the standard input"
    )
    parser.add_argument("--model", default=None, help="a model's folder, an .onnx file or the name of one in the box")
    parser.add_argument(
        "--classes", default=None, help='names separated by commas, "sofa|couch" for either; the model\'s if not given'
    )
    parser.add_argument("--add", action="append", default=[], help="a further name; may be repeated")
    parser.add_argument(
        "--prompt", default=None, help='sentence around new names, such as "a photo of a {}", if the model reads some'
    )
    parser.add_argument("--rule", default=None, help="nn, cs, ac or ratio; the model's if not given")
    parser.add_argument("--sigma", type=float, default=None, help="sigma of ac and ratio; the model's if not given")
    parser.add_argument("--gamma", type=float, default=None, help="gamma of cs; the model's if not given")
    parser.add_argument(
        "--longest", type=int, default=None, help="look at copies reduced to this longer side, in pixels"
    )
    parser.add_argument("--vectors", type=Path, default=None, help="where the model's word-vector file is now")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    parser.add_argument("--jobs", type=int, default=1, help="pictures worked on at the same time")
    parser.add_argument("--out", type=Path, default=Path("predictions"), help="folder for the results")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = _parse(parser, words)
    from joem import prediction

    pictures = prediction.find_pictures(wish.images, sys.stdin, results=wish.out)
    segmenter = _segmenter(wish)
    names = _split(wish.classes) if wish.classes else list(segmenter.vocabulary.names)
    names += [name for name in wish.add if name not in names]
    asked = prediction.Wish(names, wish.rule, wish.sigma, wish.gamma, wish.longest)
    found, failed = [], []
    for done in _watched(prediction.predict(segmenter, pictures, asked, wish.out, wish.jobs), len(pictures)):
        if done.error is not None:
            failed.append(done.error)
            continue
        found.append({"image": str(done.picture), "folder": str(done.folder), **done.found})
        if not wish.json:
            _print_areas(found[-1])
    if wish.json:
        print(json.dumps(found, indent=2))
    if failed:
        raise JoemError(f"{len(failed)} of {len(pictures)} pictures failed:\n  " + "\n  ".join(failed))


def _segmenter(wish: Any) -> Any:
    from joem.segmenter import Segmenter

    search = [wish.vectors] if wish.vectors else ()
    segmenter = Segmenter.load(wish.model, search) if wish.model else Segmenter.load(search=search)
    if wish.device != "cpu":
        segmenter.to(wish.device)
    return segmenter.with_prompt(wish.prompt) if wish.prompt else segmenter


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _watched(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """The same, with a progress bar on a terminal if there are many."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(steps, "segmenting", total, console=console, transient=True, disable=total < 2)


def _print_areas(found: dict[str, Any]) -> None:
    areas = sorted(found["areas"].items(), key=lambda item: -item[1])
    print(f"{found['image']}: " + ", ".join(f"{name} {share:.0%}" for name, share in areas if share >= 0.005))
    print(f"  {found['folder']}/overlay.png, mask.png, result.json")


def _export(words: Sequence[str]) -> None:
    parser = _parser(
        "export",
        "MODEL --out FILE [options]",
        "Write a trained model as one ONNX file that runs without torch, classes still to be chosen, or as a folder "
        "with weights in half precision.",
        "joem export quickstart/model --out model.onnx",
    )
    parser.add_argument("model", help="a model's folder or the name of one in the box")
    parser.add_argument(
        "--format", choices=["onnx", "half"], default="onnx", help="an ONNX file, or a half-size folder"
    )
    parser.add_argument("--out", type=Path, required=True, help="the file or folder to write")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = _parse(parser, words)
    from joem import engine, export

    model = engine.Model.load(wish.model)
    if wish.format == "half":
        model.save(wish.out, half=True)
        different = None
    else:
        different = export.to_onnx(model, wish.out)
    if wish.json:
        print(json.dumps({"file": str(wish.out), "labels_that_differ": different}, indent=2))
    elif different is None:
        print(f"Wrote {wish.out}.")
    else:
        print(f"Wrote {wish.out}; {different:.3%} of its labels differ from torch's on two random pictures.")


def _tune(words: Sequence[str]) -> None:
    parser = _parser(
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
    wish = _parse_with_recipe(parser, words)
    from joem import calibration, engine

    settings = _recipe(wish, parser)
    out = wish.out or Path("runs") / f"{Path(wish.recipe).stem}-tuned"
    found = calibration.tune(
        settings,
        engine.open_problem(settings.data),
        out,
        _numbers("--lambdas", wish.lambdas),
        wish.folds,
        wish.used,
        wish.storage,
    )
    if wish.json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(f"{'lambda':>10}{'sigma':>10}{'gamma':>10}{'hIoU on held-out seen classes':>32}")
    for row in found.table:
        print(f"{row['lambda']:10g}{row['sigma']:10.3g}{row['gamma']:10.3g}{row['hiou']:32.1f}")
    print(f"\n{found.reason}\nNext: joem train {out / 'recipe.yaml'}")


def _sweep(words: Sequence[str]) -> None:
    parser = _parser(
        "sweep",
        "RUN [options]",
        "The scores of every gamma (cs) and every sigma (ac, ratio) from one pass over the evaluation pictures, with "
        "curves as CSV, JSON and PNG. The best values found here are hindsight: choose with joem tune.",
        "joem sweep runs/scenes --sigmas 1,0.9,0.8,0.7",
    )
    parser.add_argument("run", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--rules", default="cs,ac,ratio", help="which rules, separated by commas")
    parser.add_argument("--gammas", default=None, help="values of cs; from 0 to where all is unseen if not given")
    parser.add_argument("--sigmas", default=None, help="values of ac and ratio; 1 to 0.02 if not given")
    parser.add_argument("--out", type=Path, default=None, help="folder for the curves; RUN/sweep if not given")
    parser.add_argument("--json", action="store_true", help="print the curves as JSON")
    wish = _parse(parser, words)
    from joem import calibration, engine
    from joem.report import curves as curve_files

    calibration.join_processes()
    model = engine.Model.load(wish.run)
    gammas, sigmas = _numbers("--gammas", wish.gammas), _numbers("--sigmas", wish.sigmas)
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
    parser = _parser(
        "report",
        "RUN [options]",
        "Write one self-contained HTML file with scores, curves, confusions, classes, best and worst pictures, the "
        "embedding space, recipe and provenance.",
        "joem report runs/scenes",
    )
    parser.add_argument("run", type=Path, help="a model, a checkpoint or the folder of a run")
    parser.add_argument("--root", default=None, help="where the data are, if not where the recipe says")
    parser.add_argument("--out", type=Path, default=None, help="the file; RUN/report.html if not given")
    parser.add_argument("--figures", type=Path, default=None, help="also write the embedding space as PNG files here")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    wish = _parse(parser, words)
    from joem import engine, figures
    from joem.report import run

    model = engine.Model.load(wish.run)
    problem = _problem_of(model, wish.root)
    out = wish.out or wish.run / "report.html"
    found = run.write(model, problem, wish.run, out)
    if wish.figures is not None:
        figures.save(model, problem, wish.figures)
    print(json.dumps(found.own.to_dict(), indent=2) if wish.json else f"{found.own.scores}\nReport: {out}")


def _reproduce(words: Sequence[str]) -> None:
    parser = _parser(
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
    parser.add_argument("--out", type=Path, default=None, help="folder of the job; runs/reproduce/NAME if not given")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    wish = _parse(parser, words)
    from joem import reproduce

    if wish.name is None:
        for name, job in reproduce.JOBS.items():
            print(f"  {name:12} {job.about} ({' or '.join(job.recipes)})")
        return
    out = wish.out or Path("runs") / "reproduce" / wish.name
    rows = reproduce.reproduce(wish.name, out, wish.scale, wish.root, wish.vectors)
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
    """The data a model was made for, wherever they are now."""
    from dataclasses import replace

    from joem import engine

    return engine.open_problem(replace(model.recipe.data, root=root or model.recipe.data.root))


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise BadUsage(f"{option} takes numbers separated by commas, got {text!r}.") from None


def _serve(words: Sequence[str]) -> None:
    parser = _parser(
        "serve",
        "[--model MODEL] [options]",
        "Serve a web page and a REST API: drop a photo, type words, see the result.",
        "joem serve --model quickstart/model",
    )
    from joem.web import Limits

    parser.add_argument(
        "--model", default=None, help="a folder, an .onnx file or a name in the box; the boxed default if not given"
    )
    parser.add_argument("--device", default="cpu", help="where the networks run, such as cuda")
    parser.add_argument("--prompt", default=None, help="phrase around the names, such as 'a photo of a {}'")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all")
    parser.add_argument(
        "--allowed-hosts",
        nargs="+",
        default=[],
        help="names it is reached by besides localhost, IP addresses and --host",
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 for any free one")
    parser.add_argument(
        "--token-file", type=Path, default=None, help="file with the bearer token that calls must carry"
    )
    parser.add_argument("--samples", type=Path, default=None, help="folder of pictures for the page to offer")
    parser.add_argument("--vectors", type=Path, default=None, help="where the model's word-vector file is now")
    parser.add_class_arguments(Limits, "limits")
    wish = _parse(parser, words)
    limits = Limits(**vars(wish.limits))
    from joem.web import serve
    from joem.web.server import read_token

    token = read_token(wish.token_file) if wish.token_file else None
    serve(_segmenter(wish), wish.host, wish.port, limits, token, wish.samples, wish.allowed_hosts)


def _data(words: Sequence[str]) -> None:
    if words[:1] == ["prepare"]:
        _prepare(words[1:])
        return
    parser = _parser(
        "data",
        "[KIND] [options], or: joem data prepare KIND --root DIR",
        "Look at a dataset: images and pixels per class. joem data prepare KIND makes downloads ready.",
        "joem data scenes --count 50 --write out",
    )
    parser.add_argument("kind", nargs="?", default=None, help="scenes, voc, context, coco-stuff or folder")
    parser.add_argument("--root", default=None, help="where the files are")
    parser.add_argument("--split", default=None, help="which list of pictures")
    parser.add_argument("--protocol", default=None, help="mark the unseen classes of a protocol")
    parser.add_argument("--count", type=int, default=100, help="number of generated pictures (scenes)")
    parser.add_argument(
        "--write", type=Path, default=None, help="write images/, masks/ and classes.txt into this folder"
    )
    parser.add_argument("--protocols", action="store_true", help="list the published protocols")
    parser.add_argument("--recipes", action="store_true", help="list the recipes in the box")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = _parse(parser, words)
    from joem import protocols, recipe

    if wish.protocols or wish.recipes:
        names = protocols.names() if wish.protocols else recipe.names()
        print(json.dumps(names, indent=2) if wish.json else "\n".join(names))
        return
    if wish.kind is None:
        raise BadUsage("Say which dataset: joem data scenes, joem data voc --root DIR, or joem data folder --root DIR.")
    from joem import data

    options = {"count": wish.count} if wish.kind == "scenes" else {}
    pictures = data.open(wish.kind, wish.root, wish.split, **options)
    if wish.write is not None:
        data.write_folder(pictures, wish.write)
        written = {"images": len(pictures), "folder": str(wish.write)}
        print(
            json.dumps(written, indent=2)
            if wish.json
            else f"Wrote {len(pictures)} pictures with masks to {wish.write}."
        )
        return
    vocabulary = protocols.get(wish.protocol).vocabulary if wish.protocol else None
    if vocabulary is None and wish.kind == "scenes":
        vocabulary = data.scenes.vocabulary()
    rows = data.describe(pictures, vocabulary)
    if wish.json:
        print(json.dumps({"images": len(pictures), "classes": [row._asdict() for row in rows]}, indent=2))
        return
    print(f"{len(pictures)} pictures")
    for row in rows:
        print(f"  {row.name + (' *' if row.unseen else ''):28} {row.images:7} images {row.pixels:12} pixels")
    if any(row.unseen for row in rows):
        print("  * unseen")


def _prepare(words: Sequence[str]) -> None:
    parser = _parser(
        "data prepare",
        "voc|context|coco-stuff --root DIR [options]",
        "Check a download in its official layout, say what to fetch, build what must be derived.",
        "joem data prepare voc --root data --protocol voc-zs3-4",
    )
    parser.add_argument("kind", help="voc, context or coco-stuff")
    parser.add_argument("--root", type=Path, required=True, help="the folder in which the archives were unpacked")
    parser.add_argument("--protocol", default=None, help="mark the unseen classes of a protocol")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = _parse(parser, words)
    from joem import data, protocols

    protocol = protocols.get(wish.protocol) if wish.protocol else None
    if protocol is not None and protocol.dataset != wish.kind:
        raise BadUsage(f"Protocol {wish.protocol!r} is about {protocol.dataset!r}, not about {wish.kind!r}.")
    found = data.prepare(wish.kind, wish.root)
    if not wish.json:
        _show_pieces(wish.kind, found)
    splits = {split: data.open(wish.kind, wish.root, split) for split in found.splits} if found.ready else {}
    counts = {
        split: data.describe(pictures, protocol.vocabulary if protocol else None) for split, pictures in splits.items()
    }
    left = (
        len(data.seen_only(splits[found.splits[0]], protocol.vocabulary, protocol.rule))
        if protocol and splits
        else None
    )
    if wish.json:
        sizes = {
            split: {"images": len(pictures), "classes": [row._asdict() for row in counts[split]]}
            for split, pictures in splits.items()
        }
        print(json.dumps({**found.to_dict(), "splits": sizes, "training_images": left}, indent=2))
    elif splits:
        _show_counts({split: len(pictures) for split, pictures in splits.items()}, counts)
        if protocol is not None:
            print(f"  * unseen in {protocol.name}, which leaves {left:,} training pictures (rule: {protocol.rule})")
        print(f"Ready. Give --data.root {wish.root} to joem train.")
    if not found.ready:
        raise JoemError("Not ready yet: see above for what to fetch or replace, then run the same command again.")


def _show_pieces(kind: str, found: Any) -> None:
    print(f"{kind} in {found.folder}")
    for piece in found.pieces:
        print(f"  {piece.state:11} {piece.name:15} {piece.count:7,} of {piece.expected:7,}   {piece.path}")
    masks = found.conversion
    if masks.written or masks.kept or masks.broken:
        print(f"Converted {masks.written:,} masks; {masks.kept:,} were there already.")
    for path, reason in masks.broken.items():
        print(f"  broken      {path}: {reason}")
    for advice in dict.fromkeys(piece.advice for piece in found.pieces if piece.state != "found"):
        print(f"To do: {advice}")


def _show_counts(sizes: dict[str, int], counts: dict[str, Any]) -> None:
    print(f"\n{'pictures that show':24}" + "".join(f"{split:>12}" for split in sizes))
    print(f"{'(any class)':24}" + "".join(f"{size:12,}" for size in sizes.values()))
    for rows in zip(*counts.values(), strict=True):
        name = rows[0].name + (" *" if rows[0].unseen else "")
        print(f"{name:24}" + "".join(f"{row.images:12,}" for row in rows))


def _table(first: str, columns: Sequence[str], rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
    titles = {"miou_seen": "seen", "miou_unseen": "unseen", "hiou": "hIoU", "pixel_accuracy": "pixels right"}
    print(f"{first:24}" + "".join(f"{titles[column]:>14}" for column in columns))
    for name, row in rows:
        cells = ("-" if row[column] is None else f"{row[column]:.1f}" for column in columns)
        print(f"{name:24}" + "".join(f"{cell:>14}" for cell in cells))


_COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "quickstart": _quickstart,
    "train": _train,
    "evaluate": _evaluate,
    "compare": _compare,
    "predict": _predict,
    "tune": _tune,
    "sweep": _sweep,
    "report": _report,
    "reproduce": _reproduce,
    "serve": _serve,
    "export": _export,
    "data": _data,
}

if __name__ == "__main__":
    sys.exit(main())
