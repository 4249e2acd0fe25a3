"""Commands that use a trained model: predict, export, import-checkpoint, serve."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from joem import __version__, decision, extras
from joem.cli import checks
from joem.cli.checks import ShownClass
from joem.cli.output import Incomplete, own_thread_only
from joem.cli.parser import Changes, Names, RuleValues, Told
from joem.errors import BadUsage, JoemError
from joem.model_folder import DEFAULT_MODEL, fingerprint
from joem.shards import Shard
from joem.web import Limits, Scale

if TYPE_CHECKING:
    from joem import cluster, prediction
    from joem.segmenter import Segmenter

Form = Literal["coco", "label-studio", "cvat", "cut-outs", "scores"]
"""What `exchange.WRITERS` writes."""
Format = Literal["folders", "parquet", "both"]
"""What `saving.Saving` keeps."""
Engine = Literal["local", "ray"]
_MOST_TOLD = 100  # failures of pictures that are counted


def predict(
    images: list[str],
    *,
    model: str | None = None,
    classes: Names | None = None,
    add: list[str] | None = None,
    prompt: str | None = None,
    rule: str | None = None,
    values: RuleValues,
    no_background: bool = False,
    strict_words: bool = False,
    example: list[str] | None = None,
    min_score: float | None = None,
    refine: bool = False,
    save: tuple[Form, ...] = (),
    longest: int | None = None,
    vectors: Path | None = None,
    device: str = "cpu",
    jobs: int = 1,
    format: Format = "folders",
    rows: int = 1000,
    shard: str = "1/1",
    skip_done: bool = False,
    engine: Engine = "local",
    out: str = "predictions",
) -> Told:
    """Segment your own pictures with your own words.

    Example:
        joem predict photo.jpg holiday/ "scans/*.tif" --classes "person, sofa|couch, not: reflection" --out found

    Args:
        images: picture files, folders, patterns in quotes, or - for a list on the standard input.
        model: a model's folder, an .onnx file or the name of one in the box.
        classes: names separated by commas; the model's if not given. "sofa|couch" is either, "okapi: a striped animal"
            describes, "not: reflection" takes away. Plurals, hyphens and other words for a class that was trained lead
            to it. The background comes by itself.
        add: further names, commas between; may be repeated.
        prompt: sentence around new names, such as "a photo of a {}", if the model reads some; several with | between.
        rule: how seen and unseen classes are decided between; the model's if not given.
        values: the model's if not given; for
        no_background: give every pixel one of the names, instead of leaving the rest to the background.
        strict_words: refuse words that are in no dictionary at hand, instead of warning.
        example: a class by an example, NAME=PHOTO,MASK, or by points on it, NAME=PHOTO,X:Y,!X:Y (! where it is not);
            may be repeated.
        min_score: from 0 to 1; pixels that are less likely right become "other".
        refine: let outlines follow the picture's own edges.
        save: further files for each picture.
        longest: look at copies reduced to this longer side, in pixels.
        vectors: where the model's word-vector file is now.
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        jobs: pictures worked on at the same time.
        format: a folder with files for each picture, Parquet files of many pictures (masks as run lengths, scores), or
            both.
        rows: pictures in a Parquet file.
        shard: I/N takes the I-th of N parts of the pictures, for N machines with the same command; chosen by a hash of
            the path as it is given.
        skip_done: leave out the pictures whose results are there, whatever stopped the run before.
        engine: this process, or the Ray cluster of RAY_ADDRESS (one on this machine if it is not set) with --jobs
            workers; --format parquet. Pictures and --out may then be addresses of object stores, s3://... or gs://....
        out: folder for the results.
    """
    checks.values_of_rule(rule, values)
    checks.model(model, vectors)
    shown, part = checks.examples(example or ()), Shard.parse(shard)
    checks.engine(engine, format, save, [*images, out])
    from joem import cluster, prediction, saving

    pictures = _pictures(images, on_ray := engine == "ray", out)
    load = partial(_segmenter, model, vectors, device, prompt, shown)
    segmenter = _segmenter(model, vectors, "cpu", prompt, shown) if on_ray else load()
    names = _wanted(segmenter, classes, add or (), shown)
    decision.check_values(rule or segmenter.model.recipe.decision.rule, values)
    request = prediction.Request(
        names, rule, values, longest, not no_background, strict_words, min_score, save, _points_on(shown), refine
    )
    for note in segmenter.classes(names, not no_background, strict_words).notes:
        print(f"joem: {note}", file=sys.stderr)
    kept = saving.Saving(format, rows, part, skip_done, _identity(model, prompt, example or (), request))
    if on_ray:
        request.check(segmenter)
        with own_thread_only():
            parts = cluster.predict(load, pictures, request, out, kept, workers=jobs, on_gpus=device != "cpu")
            return (yield from _told_of_parts(parts))
    work = prediction.predict(segmenter, [*map(Path, pictures)], request, Path(out), jobs, kept)
    return (yield from _told_of_parts(_parts_of(work)) if kept.in_parquet else _told_of_pictures(work, save, out))


def _pictures(images: Sequence[str], on_ray: bool, out: str) -> list[str]:
    from joem import cluster, prediction

    if on_ray:
        return cluster.find_pictures(images, sys.stdin, results=out)
    found = [str(path) for path in prediction.find_pictures(images, sys.stdin, results=Path(out))]
    if not any(map(os.path.exists, found)):
        raise JoemError("\n".join(f"There is no picture {picture!r}." for picture in found))
    return found


def _identity(
    model: str | None, prompt: str | None, example: Sequence[str], request: "prediction.Request"
) -> dict[str, Any]:
    """What makes a result what it is, to know it again."""
    made = {"joem": __version__, "model": fingerprint(model or DEFAULT_MODEL), "prompt": prompt}
    return {**made, "example": list(example), **request.identity()}


def _told_of_pictures(work: Iterable["prediction.Done"], save: Sequence[str], out: str) -> Told:
    found, failed = [], []
    for done in work:
        if done.found is None:
            failed.append(str(done.error))
            continue
        found.append({"image": str(done.picture), "folder": str(done.folder), **done.found})
        areas = sorted(done.found["areas"].items(), key=lambda item: -item[1])
        yield f"{done.picture}: " + ", ".join(f"{name} {share:.0%}" for name, share in areas if share >= 0.005)
        yield f"  {done.folder}/" + ", ".join(("overlay.png", "mask.png", "result.json", *save))
    yield from _joined(found, save, Path(out))
    return Incomplete(found, _failure(failed, len(failed), len(found) + len(failed)))


def _parts_of(work: Iterable["prediction.Done"]) -> "Iterator[cluster.Part]":
    """What was written, file by file; a picture that failed is told at once."""
    from joem.cluster import Part

    for _, together in groupby(work, lambda done: done.error or done.folder):
        for number, done in enumerate(together, 1):
            written = Part(str(done.folder), number, ()) if done.found else Part(None, 0, (str(done.error),))
        yield written


def _told_of_parts(parts: "Iterable[cluster.Part]") -> Told:
    """Tell of files of many pictures; the pictures are counted, not listed."""
    count, failed = 0, 0
    told: list[str] = []
    for part in parts:
        count, failed = count + part.pictures, failed + len(part.errors)
        told += part.errors[: _MOST_TOLD - len(told)]
        if part.file is not None:
            yield f"{part.file}: {part.pictures} pictures"
    return Incomplete({"pictures": count, "failed": failed}, _failure(told, failed, count + failed))


def _failure(told: Sequence[str], failed: int, count: int) -> str | None:
    listed = [*told, "..."] if len(told) < failed else told
    return "\n  ".join([f"{failed} of {count} pictures failed:", *listed]) if failed else None


def _joined(found: Sequence[Mapping[str, Any]], save: Sequence[str], out: Path) -> Iterator[str]:
    """One file for all pictures, where each has one of its own: CVAT keeps the last upload only."""
    from joem import exchange

    for kind in sorted({"coco", "cvat"}.intersection(save)) if len(found) > 1 else ():
        yield str(exchange.join((Path(each["folder"], f"{kind}.json") for each in found), out / f"{kind}.json"))


def _wanted(
    segmenter: "Segmenter", classes: list[str] | None, add: Sequence[str], shown: Sequence[ShownClass]
) -> list[str]:
    """The names to ask for, each once: those given or the model's own, those to add, those of examples."""
    names = segmenter.vocabulary.names if classes is None else classes
    further = [name.strip() for text in add for name in text.split(",")]  # an empty one is told
    return list(dict.fromkeys([*names, *further, *(each.name for each in shown)]))


def _points_on(shown: Sequence[ShownClass]) -> dict[Path, dict[str, list[tuple[int, int, bool]]]]:
    """Examples by points, by the picture they are on: there they are also compared with the rest of it."""
    found: dict[Path, dict[str, list[tuple[int, int, bool]]]] = {}
    for name, photo, where in shown:
        if not isinstance(where, str):
            found.setdefault(Path(photo).resolve(), {}).setdefault(name, []).extend(where)
    return found


def export(
    model: str,
    *,
    format: Literal["onnx", "onnx-int8", "half", "folder"] = "onnx",
    pictures: list[str] | None = None,
    example: list[str] | None = None,
    out: Path,
) -> Told:
    """Write a model as one ONNX file that runs without torch.

    Its classes are still to be chosen then. onnx-int8 is faster and smaller, and some labels change. Or write a folder,
    with weights in half precision or as they are. Classes that are known by examples go along; those of an ONNX file
    are beside it.

    Example:
        joem export quickstart/model --out model.onnx

    Args:
        model: a model's folder or the name of one in the box.
        format: an ONNX file, one that computes with integers of eight bits, a half-size folder, or a folder.
        pictures: for onnx-int8, some dozens of pictures like those that the model is for: files, folders or patterns
            in quotes.
        example: a class by an example to add, as for joem predict; may be repeated.
        out: the file or folder to write.
    """
    checks.model(model)
    shown, as_onnx = checks.examples(example or ()), format in {"onnx", "onnx-int8"}
    if (format == "onnx-int8") != bool(pictures):
        raise BadUsage("--format onnx-int8 and --pictures go together: the pictures say how large numbers get.")
    if as_onnx:
        extras.require("onnx", "An ONNX file")
    from joem import engine

    segmenter = _segmenter(model, None, "cpu", None, shown)
    loaded = segmenter.model
    assert isinstance(loaded, engine.Model)
    different = None
    if not as_onnx:
        loaded.save(out, half=format == "half")
        yield f"Wrote {out}."
    else:
        from joem import onnx, tiles
        from joem.pictures import pixels_of, reduced
        from joem.prediction import find_pictures

        calibration = [reduced(pixels_of(file), tiles.SIDE) for file in find_pictures(pictures or ())]
        different = onnx.to_onnx(loaded, out, calibration)
        where = f"{len(calibration)} pictures" if calibration else "two random pictures"
        yield f"Wrote {out}; {different:.3%} of its labels differ from torch's on {where}."
    return {"file": str(out), "labels_that_differ": different}


def import_checkpoint(files: list[str], *, recipe: str | None = None, out: Path, changes: Changes) -> Told:
    """Turn a checkpoint of the authors' public code into a model that joem evaluate scores.

    It is two .pth files, of the visual and of the semantic encoder, with their config.json beside them, which says the
    split and sigma. Nothing in the files is run. The word vectors must be those of the training.

    Example:
        joem import-checkpoint voc_zs3_unseen_04 --semantics.vectors word2vec:FILE --out authors-voc-4

    Args:
        files: the two files, or a folder that holds them and no other .pth file.
        recipe: a recipe with the network; official-joem or official-context, by config.json, if not given.
        out: the model's folder.
        changes: settings of the recipe to replace.
    """
    from joem import recipe as recipes

    vectors = recipes.values(recipe or "official-joem", changes).get("semantics", {}).get("vectors", "")
    checks.vector_files(str(vectors))
    extras.require("train", "The network of the authors", "segmentation_models_pytorch")
    from joem import engine

    engine.check_folder(out)
    model = engine.import_checkpoint([Path(file) for file in files], recipe, changes)
    model.save(out)
    yield f"Wrote {out}; unseen: {', '.join(model.vocabulary.unseen)}."
    yield f"Next: joem evaluate {out} --root DIR"
    return {"model": str(out), "unseen": list(model.vocabulary.unseen), "decision": model.recipe.decision.to_dict()}


def serve(
    *,
    model: str | None = None,
    models: Path | None = None,
    device: str = "cpu",
    prompt: str | None = None,
    host: str = "127.0.0.1",
    allowed_hosts: tuple[str, ...] = (),
    trusted_proxies: tuple[str, ...] = (),
    port: int = 8000,
    token_file: Path | None = None,
    samples: Path | None = None,
    vectors: Path | None = None,
    limits: Limits,
    engine: Engine = "local",
    scale: Scale,
    json: bool = False,
) -> Told:
    """A web page and a REST API on a model.

    Drop a photo, type words, see the result. Runs until it is stopped.

    Example:
        joem serve --model quickstart/model

    Args:
        model: a folder, an .onnx file or a name in the box; the boxed default if not given.
        models: folder of further models, to choose from on the page; without --model the first of them is the default.
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        prompt: sentence around new names, such as "a photo of a {}", if the model reads some.
        host: address to listen on; 0.0.0.0 for all.
        allowed_hosts: names it is reached by besides localhost, IP addresses and --host.
        trusted_proxies: addresses of proxies before it, whose X-Forwarded-For tells who asks.
        port: port to listen on; 0 for any free one.
        token_file: file with the bearer token that calls must carry.
        samples: folder of pictures for the page to offer, with words in NAME.txt; samples/ of the model if not given.
        vectors: where the model's word-vector file is now.
        limits: bounds of what requests may cost.
        engine: this process, or replicas on the Ray cluster of RAY_ADDRESS (one on this machine if it is not set).
        scale: how many replicas there are, with --engine ray.
        json: print the address as JSON once it can be called.
    """
    checks.model(model, vectors)
    checks.replicas(engine, scale != Scale(), trusted_proxies)
    from joem.web import serve as run
    from joem.web.gallery import own_samples
    from joem.web.models import find_models
    from joem.web.server import read_token

    token = read_token(token_file) if token_file else None
    others = find_models(models) if models else {}
    chosen = model or (str(next(iter(others.values()))) if others else DEFAULT_MODEL)
    load = partial(_segmenter, chosen, vectors, device, prompt)
    announce = (lambda address: print(dumps({"address": address}), flush=True)) if json else None
    pictures, name = samples or own_samples(Path(chosen)), Path(chosen).name.removesuffix(".onnx")
    if engine == "ray":
        from joem.web import replicas

        told = {"limits": limits, "token": token, "sample_folder": pictures, "allowed_hosts": allowed_hosts}
        with own_thread_only():
            replicas.serve(load, scale, host, announce, port=port, name=name, others=others, **told)
    else:
        run(load(), host, port, limits, token, pictures, allowed_hosts, trusted_proxies, announce, name, others)
    yield from ()


def _segmenter(
    model: str | None, vectors: Path | None, device: str, prompt: str | None, shown: Sequence[ShownClass] = ()
) -> "Segmenter":
    from joem.segmenter import Segmenter

    segmenter = Segmenter.load(model or DEFAULT_MODEL, [vectors] if vectors else ())
    if device != "cpu":
        segmenter.to(device)
    if prompt:
        segmenter = segmenter.with_prompt(prompt)
    for name, photo, where in shown:
        segmenter = segmenter.with_examples(name, [(photo, where)])
    return segmenter
