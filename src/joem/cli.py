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
  predict     segment your own pictures with your own words
  export      write a model as one ONNX file that runs without torch
  data        look at a dataset, write the generated one to disk, list protocols and recipes

Start here:   joem quickstart
Then:         joem predict photo.jpg --model quickstart/model --classes "background, red circle, purple star"
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
        parser.default_config_files = [str(recipe.find(words[0]))]
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
    wish = _parse_with_recipe(parser, words)
    from joem import engine

    out = wish.out or Path("runs") / Path(wish.recipe).stem
    engine.train(_recipe(wish, parser), out, resume=wish.resume)
    print(f"Trained. Model: {out / 'model'}   metrics: {out / 'metrics.csv'}")


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
    settings = replace(model.recipe.data, root=wish.root or model.recipe.data.root)
    own = model.recipe.decision
    rules = [wish.rule] if wish.rule else ["nn", "cs", "ac"]
    chosen = {
        key: getattr(own, key) if getattr(wish, key) is None else getattr(wish, key) for key in ("sigma", "gamma")
    }
    decisions = [replace(own, rule=rule, **chosen) for rule in rules]
    results = [found.to_dict() for found in engine.evaluate(model, engine.open_problem(settings), decisions)]
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
        "Write a trained model as one file that runs without torch, classes still to be chosen.",
        "joem export quickstart/model --out model.onnx",
    )
    parser.add_argument("model", help="a model's folder or the name of one in the box")
    parser.add_argument("--format", choices=["onnx"], default="onnx", help="the kind of file")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    wish = _parse(parser, words)
    from joem import engine, export

    different = export.to_onnx(engine.Model.load(wish.model), wish.out)
    print(f"Wrote {wish.out}; {different:.3%} of its labels differ from torch's on two random pictures.")


def _data(words: Sequence[str]) -> None:
    parser = _parser(
        "data",
        "[KIND] [options]",
        "Look at a dataset: images and pixels per class.",
        "joem data scenes --count 50 --write out",
    )
    parser.add_argument("kind", nargs="?", default=None, help="scenes, voc or folder")
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
        print("\n".join(protocols.names() if wish.protocols else recipe.names()))
        return
    if wish.kind is None:
        raise BadUsage("Say which dataset: joem data scenes, joem data voc --root DIR, or joem data folder --root DIR.")
    from joem import data

    options = {"count": wish.count} if wish.kind == "scenes" else {}
    pictures = data.open(wish.kind, wish.root, wish.split, **options)
    if wish.write is not None:
        data.write_folder(pictures, wish.write)
        print(f"Wrote {len(pictures)} pictures with masks to {wish.write}.")
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
    "predict": _predict,
    "export": _export,
    "data": _data,
}

if __name__ == "__main__":
    sys.exit(main())
