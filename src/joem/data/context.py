"""PASCAL Context with 59 classes and background, on the pictures of PASCAL VOC 2010."""

from pathlib import Path

from joem import protocols
from joem.data.files import FileDataset, by_stem, pair
from joem.data.voc import find_year, read_stems
from joem.errors import JoemError, choose

VOCABULARY = protocols.get("context-zs3-2").vocabulary
"""The 60 classes, in the order of the masks that `joem data prepare context` writes."""

# A name of its own: other tools keep 60-class masks in another order under SegmentationClassContext.
LISTS, MASKS = "ImageSets/Main", "Context59"


class Context(FileDataset):
    """PASCAL Context, prepared with `joem data prepare context`.

    Args:
        root: VOCdevkit/VOC2010, VOCdevkit, or the folder that holds VOCdevkit.
        split: train (4,998 pictures) or val (5,105), the lists of VOC 2010 in ImageSets/Main.
    """

    def __init__(self, root: str | Path, split: str) -> None:
        choose("Context split", split, ("train", "val"))
        folder = find_year(Path(root), 2010)
        advice = f"See what is missing, and make the masks, with: joem data prepare context --root {root}"
        listing = folder / LISTS / f"{split}.txt"
        if not listing.is_file():
            raise JoemError(f"There is no PASCAL VOC 2010 in {root}: expected {listing}. {advice}")
        masks = by_stem(folder / MASKS, ".png")
        super().__init__(VOCABULARY, pair(split, read_stems(listing), folder / "JPEGImages", masks, advice))
