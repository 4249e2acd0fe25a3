"""Commands about datasets: looking at one, preparing the benchmarks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from joem.cli.parsing import new_parser, parse
from joem.errors import BadUsage, JoemError


def _data(words: Sequence[str]) -> None:
    if words[:1] == ["prepare"]:
        _prepare(words[1:])
        return
    parser = new_parser(
        "data",
        "[KIND] [options], or: joem data prepare KIND --root DIR",
        "Look at a dataset: images and pixels per class. joem data prepare KIND makes downloads ready.",
        "joem data scenes --count 50 --write out",
    )
    parser.add_argument("kind", nargs="?", default=None, help="scenes, voc, context, coco-stuff or folder")
    parser.add_argument("--root", default=None, help="where the files are")
    parser.add_argument(
        "--split", default=None, help="which list of pictures; the one a --protocol trains on if not given"
    )
    parser.add_argument("--protocol", default=None, help="mark the unseen classes of a protocol")
    parser.add_argument("--count", type=int, default=100, help="number of generated pictures (scenes)")
    parser.add_argument(
        "--write", type=Path, default=None, help="write images/, masks/ and classes.txt into this folder"
    )
    parser.add_argument("--protocols", action="store_true", help="list the published protocols")
    parser.add_argument("--recipes", action="store_true", help="list the recipes in the box")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = parse(parser, words)
    from joem import protocols, recipe

    if wish.protocols or wish.recipes:
        names = protocols.names() if wish.protocols else recipe.names()
        print(json.dumps(names, indent=2) if wish.json else "\n".join(names))
        return
    if wish.kind is None:
        raise BadUsage("Say which dataset: joem data scenes, joem data voc --root DIR, or joem data folder --root DIR.")
    from joem import data

    protocol = protocols.get(wish.protocol) if wish.protocol else None
    options = {"count": wish.count} if wish.kind == "scenes" else {}
    split = wish.split or (protocol.train_split if protocol else None)
    pictures = data.open(wish.kind, wish.root, split, **options)
    if wish.write is not None:
        data.write_folder(pictures, wish.write)
        written = {"images": len(pictures), "folder": str(wish.write)}
        print(
            json.dumps(written, indent=2)
            if wish.json
            else f"Wrote {len(pictures)} pictures with masks to {wish.write}."
        )
        return
    vocabulary = protocol.vocabulary if protocol else None
    if vocabulary is None and wish.kind == "scenes":
        vocabulary = data.scenes.vocabulary()
    if wish.kind == "folder":
        data.check(pictures)
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
    parser = new_parser(
        "data prepare",
        "voc|context|coco-stuff --root DIR [options]",
        "Check a download in its official layout, say what to fetch, build what must be derived.",
        "joem data prepare voc --root data --protocol voc-zs3-4",
    )
    parser.add_argument("kind", help="voc, context or coco-stuff")
    parser.add_argument("--root", type=Path, required=True, help="the folder in which the archives were unpacked")
    parser.add_argument("--protocol", default=None, help="mark the unseen classes of a protocol")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wish = parse(parser, words)
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
    left = None
    if protocol and splits:
        pictures = data.relabel(splits[found.splits[0]], protocol.vocabulary.names)
        left = len(data.seen_only(pictures, protocol.vocabulary, protocol.rule))
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


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "data": _data,
}
