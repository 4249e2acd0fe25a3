"""PASCAL VOC 2012: train_aug from the masks of the Semantic Boundaries Dataset (SBD)."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from joem.data.files import by_stem
from joem.data.preparation.conversion import Piece, Preparation, convert
from joem.data.voc import EXTRA_MASKS, LISTS, OWN_MASKS, VOCABULARY, find_year, read_stems
from joem.io import write_text

LISTED, EXTRA = 2_913, 9_118
"""Pictures in VOC's train and val; pictures of train_aug beyond them, that is SBD's minus VOC's."""


def prepare(root: Path) -> Preparation:
    """Check the download, convert SBD's masks to SegmentationClassAug and write train_aug.txt."""
    folder = find_year(root, 2012)
    sbd = _find_sbd(root, folder)
    train, val, train_aug = (_read(folder / LISTS / f"{split}.txt") for split in ("train", "val", "train_aug"))
    pictures, own = by_stem(folder / "JPEGImages", ".jpg"), by_stem(folder / OWN_MASKS, ".png")
    matlab = by_stem(sbd / "cls", ".mat")
    extra = sorted({*matlab, *by_stem(folder / EXTRA_MASKS, ".png")} - {*train, *val})
    needed = {*train, *val, *extra} or {*pictures}
    voc = f"Fetch VOCtrainval_11-May-2012.tar (host.robots.ox.ac.uk/pascal/VOC/voc2012) and unpack it in {root}."
    benchmark = (
        f"Fetch benchmark.tgz of SBD (home.bharathh.info/pubs/codes/SBD/download.html) and unpack it in {root}; "
        f"or put a folder {EXTRA_MASKS} of PNG masks, if you have one, in {folder}."
    )
    pieces = [
        Piece("lists", folder / LISTS, len({*train, *val}), LISTED, voc),
        Piece("pictures", folder / "JPEGImages", len(pictures.keys() & needed), max(len(needed), LISTED), voc),
        Piece("masks", folder / OWN_MASKS, len(own.keys() & {*train, *val}), LISTED, voc),
        Piece("extra masks", sbd / "cls" if matlab else folder / EXTRA_MASKS, len(extra), EXTRA, benchmark),
    ]
    listing = folder / LISTS / "train_aug.txt"
    if train_aug:
        count = len({*train_aug} & {*train, *extra}) - len({*train_aug} & {*val})  # val must never be trained on
        rebuild = f"Delete {listing}: it is built again from the masks."
        pieces.append(Piece("train_aug list", listing, count, len(train) + EXTRA, rebuild))
    # Without both lists nobody knows which pictures are extra.
    sources = {stem: matlab[stem] for stem in extra if stem in matlab and stem in pictures} if train and val else {}
    conversion = convert(sources, _labels, folder / "JPEGImages", folder / EXTRA_MASKS, VOCABULARY)
    preparation = Preparation(folder, tuple(pieces), ("train_aug", "val"), conversion)
    if preparation.ready and not train_aug:
        write_text(listing, "".join(f"{stem}\n" for stem in (*train, *extra)))
    return preparation


def _read(path: Path) -> list[str]:
    return read_stems(path) if path.is_file() else []


def _labels(mat: dict[str, Any]) -> NDArray[Any]:
    labels: NDArray[Any] = mat["GTcls"][0, 0]["Segmentation"]
    return labels


def _find_sbd(root: Path, folder: Path) -> Path:
    parents = (root, folder, folder.parent, folder.parent.parent)
    datasets = [parent / "benchmark_RELEASE/dataset" for parent in parents]
    return next((dataset for dataset in datasets if dataset.is_dir()), datasets[0])
