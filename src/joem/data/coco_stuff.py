"""COCO-Stuff (164k): the pictures of COCO 2017 and pixel maps of 182 classes."""

from pathlib import Path

from joem import protocols
from joem.data.files import FileDataset, by_stem, pair
from joem.errors import JoemError, choose

VOCABULARY = protocols.get("cocostuff-spnet").vocabulary
"""The 182 classes, in the order of the maps; eleven of them never occur."""

_YEARS = {"train": "train2017", "val": "val2017"}


class CocoStuff(FileDataset):
    """COCO-Stuff.

    Args:
        root: the folder with images/ and annotations/, as in `folders`.
        split: train (118,287 pictures) or val (5,000).
    """

    def __init__(self, root: str | Path, split: str) -> None:
        choose("COCO-Stuff split", split, _YEARS)
        pictures, maps = folders(Path(root), split)
        stems = list(by_stem(pictures, ".jpg"))
        advice = f"See what is missing with: joem data prepare coco-stuff --root {root}"
        if not stems:
            raise JoemError(f"There are no pictures of COCO 2017 in {pictures}. {advice}")
        super().__init__(VOCABULARY, pair(split, stems, pictures, by_stem(maps, ".png"), advice))


def folders(root: Path, split: str) -> tuple[Path, Path]:
    """Where the pictures and the maps of a split are: in images/ or `root`, and in annotations/ or stuffthingmaps/."""
    year = _YEARS[split]
    return _first(root / "images" / year, root / year), _first(
        root / "annotations" / year, root / "stuffthingmaps" / year
    )


def _first(*folders: Path) -> Path:
    """The first of the folders that exists, or the first of all if none does."""
    return next((folder for folder in folders if folder.is_dir()), folders[0])
