"""PASCAL VOC 2012 segmentation in its own layout, with the extra masks of train_aug where there are some."""

from pathlib import Path

from joem import protocols
from joem.data.files import FileDataset, by_stem, pair, read_list
from joem.errors import JoemError, choose

VOCABULARY = protocols.get("voc-zs3-2").vocabulary
"""The 21 classes, in the order of the masks."""

LISTS, OWN_MASKS, EXTRA_MASKS = "ImageSets/Segmentation", "SegmentationClass", "SegmentationClassAug"


class VOC(FileDataset):
    """PASCAL VOC 2012.

    Args:
        root: VOCdevkit/VOC2012, VOCdevkit, or the folder that holds VOCdevkit.
        split: a list in ImageSets/Segmentation: train (1,464 pictures), val (1,449), or train_aug, whose
            10,582 pictures are those of train and 9,118 with masks in SegmentationClassAug.
    """

    def __init__(self, root: str | Path, split: str) -> None:
        folder = find_year(Path(root), 2012)
        advice = f"See what is missing, and build train_aug, with: joem data prepare voc --root {root}"
        if not (folder / "JPEGImages").is_dir():
            raise JoemError(
                f"There is no PASCAL VOC 2012 in {root}: expected the folder JPEGImages there, in VOC2012 or in "
                f"VOCdevkit/VOC2012. {advice}"
            )
        lists = by_stem(folder / LISTS, ".txt")
        if split == "train_aug" and split not in lists:
            raise JoemError(f"There is no {folder / LISTS / 'train_aug.txt'}. {advice}")
        stems = read_stems(lists[choose("VOC split", split, lists)])
        # VOC's own masks take precedence.
        masks = by_stem(folder / EXTRA_MASKS, ".png") | by_stem(folder / OWN_MASKS, ".png")
        super().__init__(VOCABULARY, pair(split, stems, folder / "JPEGImages", masks, advice))


def find_year(root: Path, year: int) -> Path:
    """The folder of one year of PASCAL VOC at or in `root`; where its archive would put it, if it is not there."""
    folders = (root, root / f"VOC{year}", root / "VOCdevkit" / f"VOC{year}")
    return next((folder for folder in folders if (folder / "JPEGImages").is_dir()), folders[-1])


def read_stems(path: Path) -> list[str]:
    """The picture names in a list; some copies hold paths ("/JPEGImages/x.jpg /SegmentationClassAug/x.png")."""
    return [Path(line.split()[0]).stem for line in read_list(path)]
