"""COCO-Stuff: nothing to convert, the maps hold the labels of the protocol."""

from pathlib import Path

from joem.data.coco_stuff import folders
from joem.data.files import by_stem
from joem.data.preparation.conversion import Piece, Preparation

PICTURES = {"train": 118_287, "val": 5_000}
"""Pictures of COCO 2017."""


def prepare(root: Path) -> Preparation:
    """Check the download."""
    pieces = []
    for split, expected in PICTURES.items():
        pictures, maps = folders(root, split)
        images, masks = by_stem(pictures, ".jpg"), by_stem(maps, ".png")
        coco = f"Fetch {split}2017.zip (images.cocodataset.org/zips) and unpack it in {root / 'images'}."
        pieces.append(Piece(f"{split} pictures", pictures, len(images), expected, coco))
        stuff = (
            "Fetch stuffthingmaps_trainval2017.zip (github.com/nightrome/cocostuff, Downloads) and unpack it in "
            f"{root / 'annotations'}."
        )
        pieces.append(Piece(f"{split} maps", maps, len(masks), expected, stuff))
    return Preparation(root, tuple(pieces), ("train", "val"))
