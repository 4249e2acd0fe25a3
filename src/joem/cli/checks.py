"""What can be refused before torch is imported: values that no rule takes, and files that are not there."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from joem import decision, extras, model_folder, protocols, recipe
from joem.errors import BadUsage, JoemError, choose
from joem.io import read_json
from joem.model_description import check_description

_ON_DISK = ("voc", "context", "coco-stuff", "folder")  # known here without importing torch; `data.open` knows all
_TOWERS = ("clip", "sentence")  # of `semantics.SOURCES` those that read a folder


def values_of_rule(rule: str | None, values: Mapping[str, float | None]) -> None:
    """Refuse values that are out of range, and those that the rule, where one is given, does not look at."""
    for name, value in values.items():
        if value is not None:
            decision.parameters()[name].check(value)
    if rule is not None:
        decision.check_values(rule, values)


def data_root(kind: str, root: str | None) -> None:
    """Refuse a dataset whose folder is not given or not there."""
    if root is None and kind in _ON_DISK:
        raise BadUsage(
            f"Dataset {kind!r} is read from files: say where with --root DIR, or --data.root DIR with a recipe."
        )
    if root is not None and kind != "scenes" and not Path(root).is_dir():
        raise BadUsage(f"There is no folder {root}: say where the files of {kind!r} are.")


def model(path: str | Path | None, vectors: Path | None = None) -> None:
    """Refuse a model, or a word-vector file for it, that is not there."""
    found = path if path is not None else model_folder.DEFAULT_MODEL
    if Path(found).suffix != ".onnx":
        model_folder.find_model(found)
    elif not Path(found).is_file():
        raise JoemError(f"There is no model {found}: joem export writes one.")
    if vectors is not None and not vectors.exists():
        raise BadUsage(f"There is no word-vector file {vectors}: give --vectors the file, or a folder that holds it.")


def engine(name: str, format: str, save: Sequence[str], places: Sequence[str]) -> None:
    """Refuse an engine that cannot write a format or reach a place, or whose packages are absent."""
    if save and format == "parquet":
        raise BadUsage(f"--save {save[0]} is a file in the folder of a picture: add --format both, or leave it out.")
    if name == "ray" and format != "parquet":
        raise BadUsage(f"--engine ray writes Parquet files, not {format}: add --format parquet.")
    addresses = [place for place in places if "://" in place]
    if name != "ray" and addresses:
        raise BadUsage(f"{addresses[0]} is not on this machine: add --engine ray --format parquet, which reads it.")
    if name == "ray":
        extras.require("ray", "--engine ray")
    elif format != "folders":
        extras.require("parquet", "A Parquet file")


def replicas(engine: str, scaled: bool, trusted_proxies: Sequence[str]) -> None:
    """Refuse what one of the ways to serve cannot do, or whose packages are absent."""
    if engine != "ray" and scaled:
        raise BadUsage("--scale is for replicas on a Ray cluster: add --engine ray.")
    if engine == "ray" and trusted_proxies:
        raise BadUsage("--trusted-proxies is for one process: Ray's own proxy tells replicas who asks.")
    if engine == "ray":
        extras.require("ray", "--engine ray")


def model_with_data(path: Path, root: str | None) -> None:
    """Refuse a model that is not there, or whose data are not."""
    file = model_folder.find_model(path) / model_folder.DESCRIPTION
    settings = _mapping(check_description(read_json(file), file)["recipe"].get("data"))
    kept = settings.get("root")
    data_root(str(settings.get("kind", "scenes")), root or (None if kept is None else str(kept)))


def recipe_files(name: str, changes: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not there, or whose data, backbone weights or word vectors are not."""
    sections = recipe.values(name, changes)
    data, semantics, encoder = (_mapping(sections.get(key)) for key in ("data", "semantics", "model"))
    root = data.get("root")
    data_root(str(data.get("kind", "scenes")), None if root is None else str(root))
    weights_file(str(encoder.get("weights", "none")))
    vector_files(str(semantics.get("vectors", "")))


def weights_file(weights: str) -> None:
    """Refuse backbone weights that are not there."""
    if weights not in {"none", "imagenet", "wheel"} and not Path(weights).is_file():
        raise BadUsage(
            f"There is no weights file {weights!r}: give none, imagenet, wheel, or a .safetensors or .pth file."
        )


def vector_files(spec: str) -> None:
    """Refuse a source of word vectors, such as glove+word2vec:FILE, that names a file or folder which is not there."""
    sources = re.split(r"\+(?=\w+(?:[:+]|$))", spec)
    for first, source in enumerate(sources):
        kind, colon, _ = source.partition(":")
        ends = range(first + 1, len(sources) + 1)  # the name of a file may hold a + too
        files = ["+".join(sources[first:end]).partition(":")[2] for end in ends]
        found = [Path(file).expanduser() for file in files if file]
        if kind in _TOWERS:
            if not (any(each.exists() for each in found) or (kind == "clip" and "@" in files[0])):
                by_name = ", or NAME@PRETRAINED, as in clip:ViT-B-16@openai" if kind == "clip" else ""
                raise BadUsage(f"There is no folder of a text tower at {files[0]!r}: give {kind}:FOLDER{by_name}.")
        elif colon and not any(each.is_file() for each in found):
            raise BadUsage(
                f"There is no file of word vectors at {files[0]}: give the path of a .vec, .txt or .bin file, with a "
                "recipe as --semantics.vectors word2vec:FILE."
            )


def vectors_by_data(texts: Sequence[str]) -> dict[str, str]:
    """Sources of word vectors by protocol or dataset, and by "" for all others; those that are not there are refused.

    >>> vectors_by_data(["glove", "context=use", "voc-spnet=glove+use"])
    {'': 'glove', 'context': 'use', 'voc-spnet': 'glove+use'}
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, source = text.partition("=")
        if not equals or ":" in key:  # of a file's name
            key, source = "", text
        else:
            known = {each.dataset for each in map(protocols.get, protocols.names())}
            choose("dataset or protocol", key, [*sorted(known), *protocols.names()])
        if key in found:
            raise BadUsage(f"--vectors is given twice for {key or 'all data'}: {found[key]} and {source}.")
        vector_files(source)
        found[key] = source
    return found


class ShownClass(NamedTuple):
    """A class by an example: a photo, and a mask of the same size or points on it."""

    name: str
    photo: str
    where: str | list[tuple[int, int, bool]]


def examples(texts: Sequence[str]) -> list[ShownClass]:
    """Read examples, NAME=PHOTO,MASK or NAME=PHOTO,X:Y,!X:Y, and refuse those that are written otherwise or not there.

    >>> examples(["flag=pyproject.toml,12:34,!5:6"])
    [ShownClass(name='flag', photo='pyproject.toml', where=[(12, 34, True), (5, 6, False)])]
    """
    return [_example(text) for text in texts]


def _example(text: str) -> ShownClass:
    name, _, rest = text.partition("=")
    photo, _, where = rest.partition(",")
    name, photo, where = name.strip(), photo.strip(), where.strip()
    if not (name and photo and where):
        raise BadUsage(
            f"--example takes NAME=PHOTO,MASK, or points as NAME=PHOTO,X:Y with ! before those that are not, got "
            f"{text!r}. Example: --example flag=photo.jpg,120:80"
        )
    points = [re.fullmatch(r"(!?)(\d{1,6}):(\d{1,6})", part.strip()) for part in where.split(",")]
    for file in [photo] if all(points) else [photo, where]:
        if not Path(file).is_file():
            raise BadUsage(f"There is no file {file!r} for the example of {name!r}.")
    if all(points):
        return ShownClass(name, photo, [(int(each[2]), int(each[3]), not each[1]) for each in points if each])
    return ShownClass(name, photo, where)


def _mapping(section: Any) -> Mapping[str, Any]:
    return section if isinstance(section, Mapping) else {}
