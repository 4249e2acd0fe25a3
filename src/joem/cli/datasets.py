"""Commands about datasets: looking at one, preparing the benchmarks."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joem.cli import checks
from joem.cli.output import Incomplete
from joem.cli.parser import Told
from joem.errors import BadUsage

if TYPE_CHECKING:
    from joem.data import ClassCount, Dataset, Preparation


def data(
    kind: str | None = None,
    *,
    root: str | None = None,
    split: str | None = None,
    protocol: str | None = None,
    count: int = 100,
    write: Path | None = None,
    protocols: bool = False,
    recipes: bool = False,
) -> Told:
    """Look at a dataset, list protocols and recipes.

    Tells images and pixels per class. joem data prepare KIND makes downloads ready.

    Example:
        joem data scenes --count 50 --write out

    Args:
        kind: scenes, voc, context, coco-stuff or folder.
        root: where the files are.
        split: which list of pictures; the one a --protocol trains on if not given.
        protocol: mark the unseen classes of a protocol.
        count: number of generated pictures (scenes).
        write: write images/, masks/ and classes.txt into this folder.
        protocols: list the published protocols.
        recipes: list the recipes in the box.
    """
    from joem import protocols as published

    if protocols or recipes:
        names = published.names() if protocols else _recipes()
        yield from names if protocols else (f"{name:28} {about}" for name, about in _recipes().items())
        return list(names)
    if kind is None:
        raise BadUsage("Say which dataset: joem data scenes, joem data voc --root DIR, or joem data folder --root DIR.")
    if root is not None:
        checks.data_root(kind, root)
    marked = published.get(protocol) if protocol else None
    from joem import data as datasets

    options = {"count": count} if kind == "scenes" else {}
    pictures = datasets.open(kind, root, split or (marked.train_split if marked else None), **options)
    if write is not None:
        datasets.write_folder(pictures, write)
        yield f"Wrote {len(pictures)} pictures with masks to {write}."
        return {"images": len(pictures), "folder": str(write)}
    if kind == "folder":
        datasets.check(pictures)
    vocabulary = marked.vocabulary if marked else datasets.scenes.vocabulary() if kind == "scenes" else None
    rows = datasets.describe(pictures, vocabulary)
    yield f"{len(pictures)} pictures"
    for row in rows:
        yield f"  {row.name + (' *' if row.unseen else ''):28} {row.images:7} images {row.pixels:12} pixels"
    if any(row.unseen for row in rows):
        yield "  * unseen"
    return {"images": len(pictures), "classes": [row._asdict() for row in rows]}


def prepare(kind: str, *, root: Path, protocol: str | None = None) -> Told:
    """Check a download in its official layout, say what to fetch, build what must be derived.

    Example:
        joem data prepare voc --root data --protocol voc-zs3-4

    Args:
        kind: voc, context or coco-stuff.
        root: the folder in which the archives were unpacked.
        protocol: mark the unseen classes of a protocol.
    """
    from joem import protocols

    marked = protocols.get(protocol) if protocol else None
    if marked is not None and marked.dataset != kind:
        raise BadUsage(f"Protocol {protocol!r} is about {marked.dataset!r}, not about {kind!r}.")
    if not root.is_dir():
        raise BadUsage(f"There is no folder {root}: make it, unpack the archives in it and run this again.")
    from joem import data as datasets

    found = datasets.prepare(kind, root)
    yield from _pieces(kind, found)
    splits = {split: datasets.open(kind, root, split) for split in found.splits} if found.ready else {}
    vocabulary = marked.vocabulary if marked else None
    counts = {split: datasets.describe(pictures, vocabulary) for split, pictures in splits.items()}
    left = None
    if splits:
        yield from _counts(splits, counts)
        if marked is not None:
            pictures = datasets.relabel(splits[found.splits[0]], marked.vocabulary.names)
            left = len(datasets.seen_only(pictures, marked.vocabulary, marked.rule))
            yield f"  * unseen in {marked.name}, which leaves {left:,} training pictures (rule: {marked.rule})"
        yield f"Ready. Give --data.root {root} to joem train."
    sizes = {
        split: {"images": len(pictures), "classes": [row._asdict() for row in counts[split]]}
        for split, pictures in splits.items()
    }
    advice = "Not ready yet: see above for what to fetch or replace, then run the same command again."
    all_found = {**found.to_dict(), "splits": sizes, "training_images": left}
    return Incomplete(all_found, None if found.ready else advice)


def _recipes() -> dict[str, str]:
    from joem import recipe

    return {name: recipe.about(name).partition("\n")[0] for name in recipe.names()}


def _pieces(kind: str, found: "Preparation") -> Iterator[str]:
    yield f"{kind} in {found.folder}"
    for piece in found.pieces:
        yield f"  {piece.state:11} {piece.name:15} {piece.count:7,} of {piece.expected:7,}   {piece.path}"
    masks = found.conversion
    if masks.written or masks.kept or masks.broken:
        yield f"Converted {masks.written:,} masks; {masks.kept:,} were there already."
    for path, reason in masks.broken.items():
        yield f"  broken      {path}: {reason}"
    for advice in dict.fromkeys(piece.advice for piece in found.pieces if piece.state != "found"):
        yield f"To do: {advice}"


def _counts(splits: "Mapping[str, Dataset]", counts: "Mapping[str, Sequence[ClassCount]]") -> Iterator[str]:
    yield f"\n{'pictures that show':24}" + "".join(f"{split:>12}" for split in splits)
    yield f"{'(any class)':24}" + "".join(f"{len(pictures):12,}" for pictures in splits.values())
    for rows in zip(*counts.values(), strict=True):
        name = rows[0].name + (" *" if rows[0].unseen else "")
        yield f"{name:24}" + "".join(f"{row.images:12,}" for row in rows)
