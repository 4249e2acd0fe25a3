"""PASCAL VOC 2012 of ten pictures in its own layout."""

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 64


def photo(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def two_halves(left: int, right: int, kind=np.uint8):
    labels = np.full((SIDE, SIDE), left, kind)
    labels[:, SIDE // 2 :] = right
    return labels


def write_voc(root: Path) -> Path:
    """Eight training pictures (four of them in train_aug alone) and two to evaluate on."""
    folder = root / "VOCdevkit/VOC2012"
    for part in ("SegmentationClass", "SegmentationClassAug", "ImageSets/Segmentation"):
        (folder / part).mkdir(parents=True)
    shown = {f"t{n}": (0, 1 + n) for n in range(8)} | {"v0": (0, 17), "v1": (3, 20)}
    for seed, (stem, halves) in enumerate(shown.items()):
        photo(folder / f"JPEGImages/{stem}.jpg", seed)
        masks = "SegmentationClassAug" if stem in {"t4", "t5", "t6", "t7"} else "SegmentationClass"
        mask = Image.fromarray(two_halves(*halves))
        mask.putpalette(bytes(range(256)) * 3)
        mask.save(folder / masks / f"{stem}.png")
    lists = {"train": [*shown][:4], "train_aug": [*shown][:8], "val": [*shown][8:]}
    for name, stems in lists.items():
        (folder / f"ImageSets/Segmentation/{name}.txt").write_text("\n".join(stems) + "\n")
    return root
