"""Commands that use a trained model: on pictures, as one file, as a service."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from joem.cli.parsing import check_setting_of_rule, new_parser, parse, split_names
from joem.errors import JoemError


def _predict(words: Sequence[str]) -> None:
    parser = new_parser(
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
    parser.add_argument("--add", action="append", default=[], help="further names, commas between; may be repeated")
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
    wish = parse(parser, words)
    from joem import prediction

    pictures = prediction.find_pictures(wish.images, sys.stdin, results=wish.out)
    segmenter = _segmenter(wish)
    names = list(segmenter.vocabulary.names) if wish.classes is None else split_names(wish.classes)
    names += [name for text in wish.add for part in text.split(",") if (name := part.strip()) not in names]
    check_setting_of_rule(wish, wish.rule or segmenter.model.recipe.decision.rule)
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
    parser = new_parser(
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
    wish = parse(parser, words)
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


def _serve(words: Sequence[str]) -> None:
    parser = new_parser(
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
    wish = parse(parser, words)
    limits = Limits(**vars(wish.limits))
    from joem.web import serve
    from joem.web.server import read_token

    token = read_token(wish.token_file) if wish.token_file else None
    serve(_segmenter(wish), wish.host, wish.port, limits, token, wish.samples, wish.allowed_hosts)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "predict": _predict,
    "serve": _serve,
    "export": _export,
}
