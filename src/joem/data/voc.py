"""PASCAL VOC 2012 segmentation in its own layout, with the extra masks of train_aug where there are some."""

from pathlib import Path

from joem import protocols
from joem.data.files import FileDataset, Item, listed, read_list
from joem.errors import JoemError, choose


class VOC(FileDataset):
    """PASCAL VOC 2012.

    Args:
        root: VOCdevkit/VOC2012, VOCdevkit, or the folder that holds VOCdevkit.
        split: a list in ImageSets/Segmentation: train (1,464 pictures), val (1,449), or train_aug, whose
            10,582 pictures are those of train and 9,118 with masks in SegmentationClassAug.
    """

    def __init__(self, root: str | Path, split: str) -> None:
        folder = _find(Path(root))
        lists = {path.stem: path for path in sorted((folder / "ImageSets/Segmentation").glob("*.txt"))}
        # Some copies of train_aug.txt list paths ("/JPEGImages/x.jpg /SegmentationClassAug/x.png").
        stems = [Path(line.split()[0]).stem for line in read_list(lists[choose("VOC split", split, lists)])]
        masks = {
            mask.stem: mask
            for kind in ("SegmentationClassAug", "SegmentationClass")  # VOC's own masks take precedence
            for mask in (folder / kind).glob("*.png")
        }
        missing = [stem for stem in stems if stem not in masks]
        if missing:
            raise JoemError(
                f"{len(missing)} of the {len(stems)} pictures of split {split!r} have no mask in {folder}: "
                f"{listed(missing)}. The masks of train_aug beyond VOC's own belong in SegmentationClassAug."
            )
        items = [Item(stem, folder / "JPEGImages" / f"{stem}.jpg", masks[stem]) for stem in stems]
        super().__init__(protocols.get("voc-zs3-2").vocabulary, items)


def _find(root: Path) -> Path:
    for folder in (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012"):
        if (folder / "JPEGImages").is_dir():
            return folder
    raise JoemError(
        f"There is no PASCAL VOC 2012 in {root}: expected the folder JPEGImages there, in VOC2012 or in "
        "VOCdevkit/VOC2012. Unpack VOCtrainval_11-May-2012.tar and give the folder it makes."
    )
