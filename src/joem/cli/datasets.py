"""Commands about datasets: looking at one, preparing the benchmarks, importing masks."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from joem.cli import checks
from joem.cli.output import Incomplete
from joem.cli.parser import Names, Told
from joem.errors import BadUsage
from joem.vocabulary import starred

if TYPE_CHECKING:
    from joem.data import ClassCount, Dataset, Imported, Preparation


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
    backbones: str | None = None,
) -> Told:
    """Look at a dataset, list protocols, recipes and backbones.

    Tells images and pixels per class. joem data prepare KIND makes downloads ready, joem data import FORMAT SOURCE
    takes masks from labelling tools.

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
        backbones: list the backbones of timm whose names hold this word, such as dinov2, clip or mobileclip, with
            licence and size; nothing is downloaded.
    """
    from joem import protocols as published
    from joem import recipe

    if protocols:
        yield from published.names()
        return list(published.names())
    if recipes:
        yield from (f"{name:28} {recipe.about(name).splitlines()[0]}" for name in recipe.names())
        return list(recipe.names())
    if backbones is not None:
        return (yield from _backbones(backbones))
    if kind is None:
        raise BadUsage("Say which dataset: joem data scenes, joem data voc --root DIR, or joem data folder --root DIR.")
    if root is not None:
        checks.data_root(kind, root)
    marked = published.get(protocol) if protocol else None
    from joem import data as datasets

    options = {"count": count} if kind == "scenes" else {}
    split = split or (marked.train_split if marked else None)
    try:
        if kind == "folder" and root is not None:
            pictures: Dataset = datasets.check_folder(root, split)
        else:
            pictures = datasets.open(kind, root, split, **options)
    except datasets.FaultsFound as error:
        return Incomplete({"faults": error.faults.to_dict()}, str(error))
    if write is not None:
        datasets.write_folder(pictures, write)
        yield f"Wrote {len(pictures)} pictures with masks to {write}."
        return {"images": len(pictures), "folder": str(write)}
    vocabulary = marked.vocabulary if marked else datasets.scenes.vocabulary() if kind == "scenes" else None
    return (yield from _described(pictures, datasets.describe(pictures, vocabulary)))


def _described(pictures: "Dataset", rows: "Sequence[ClassCount]") -> Told:
    yield f"{len(pictures)} pictures"
    for row in rows:
        yield f"  {starred(row.name, row.unseen):28} {row.images:7} images {row.pixels:12} pixels"
    if any(row.unseen for row in rows):
        yield "  * unseen"
    return _sizes(pictures, rows)


def _backbones(word: str) -> Told:
    from joem.models.backbones.listing import known_backbones

    found = []
    for each in known_backbones(word):
        found.append(each._asdict())
        yield f"{each.name:60} {each.parameters / 1e6:8.1f} M   {each.side:4} px   {each.licence}"
    return found


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
    sizes = {split: _sizes(pictures, counts[split]) for split, pictures in splits.items()}
    advice = "Not ready yet: see above for what to fetch or replace, then run the same command again."
    all_found = {**found.to_dict(), "splits": sizes, "training_images": left}
    return Incomplete(all_found, None if found.ready else advice)


Format = Literal["coco", "cityscapes", "labelme", "cvat", "huggingface", "mask-rgb"]
"""The names of `data.FORMATS`, known here without importing torch."""


def import_masks(
    format: Format,
    source: str,
    *,
    out: Path,
    images: str | None = None,
    masks: str | None = None,
    names: str | None = None,
    classes: Names | None = None,
    void: Names | None = None,
    rest: Literal["background", "void"] | None = None,
    split: str | None = None,
    val: float | None = None,
    link: bool = False,
    skip_broken: bool = False,
) -> Told:
    """Turn masks of labelling tools and benchmarks into a dataset folder.

    The folder has images/, masks/, classes.txt and, if there are splits, splits/. It is written whole or not at all;
    all that is wrong with the source is told at once.

    Example:
        joem data import coco annotations.json --images photos --out my-data

    Args:
        format: coco, cityscapes, labelme, cvat, huggingface or mask-rgb.
        source: its file or folder; for huggingface also the name of a dataset.
        out: the new folder.
        images: where the pictures are, if not in the usual place; for huggingface the column of the pictures.
        masks: where the masks are, if not in the usual place; for huggingface the column of the masks.
        names: the classes of huggingface and mask-rgb: a file, or names with commas; for labelme their order.
        classes: take only these classes, in this order.
        void: classes whose pixels are void.
        rest: what pixels of no class are (default: background under no shape, void in masks).
        split: take only this split of the source.
        val: put this share of the pictures in the list val, the others in train; always the same ones.
        link: link to the pictures instead of copying them.
        skip_broken: leave out the pictures that have faults, instead of writing nothing.
    """
    from joem import data as datasets

    try:
        found = datasets.import_masks(
            format,
            source,
            out,
            images=images,
            masks=masks,
            names=names,
            classes=classes,
            void=void or (),
            rest=rest,
            split=split,
            val=val,
            link=link,
            skip_broken=skip_broken,
        )
    except datasets.FaultsFound as error:
        advice = "Nothing was written; --skip-broken leaves such pictures out."
        return Incomplete({"faults": error.faults.to_dict()}, f"{error}\n{advice}")
    yield from _imported(found)
    return found.to_dict()


def _imported(found: "Imported") -> Iterator[str]:
    yield f"Wrote {found.images:,} pictures with masks of {len(found.names)} classes to {found.folder}."
    for split, count in found.splits.items():
        yield f"  {split:10} {count:7,}   {found.folder / 'splits' / split}.txt"
    for title, faults in (("Left out", found.left_out), ("Note", found.notes)):
        for line in faults.lines():
            yield f"{title}: {line}"
    yield f"Look at it with: joem data folder --root {found.folder}"


def _sizes(pictures: "Dataset", counts: "Sequence[ClassCount]") -> dict[str, Any]:
    return {"images": len(pictures), "classes": [row._asdict() for row in counts]}


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
        yield f"{starred(rows[0].name, rows[0].unseen):24}" + "".join(f"{row.images:12,}" for row in rows)
