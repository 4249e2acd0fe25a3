"""Datasets of a few pixels, and how to make their files."""

import numpy as np
import pytest
import torch
from PIL import Image

from joem import data
from joem.errors import JoemError
from joem.vocabulary import Vocabulary

MEAN, STD = (127.0, 100.0, 90.0), (128.0, 60.0, 50.0)
COW = Vocabulary(("background", "dog", "cow"), unseen=("cow",), background="background")


class Masks:
    """A dataset held in memory; `shown` are the labels that samples really have, if they differ."""

    def __init__(self, masks, names=COW.names, shown=None):
        self.names, self.background = names, "background"
        self.masks, self.shown = masks, shown or masks

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        labels = torch.tensor(self.shown[index])
        image = (labels * 40 % 256).to(torch.uint8).expand(3, -1, -1).contiguous()
        return data.Sample(image, labels, self.name(index))

    def labels(self, index):
        return torch.tensor(self.masks[index])

    def name(self, index):
        return f"picture-{index}"


CLEAN, COWS, EMPTY = [[0, 1], [1, 255]], [[0, 2], [1, 2]], [[0, 0], [0, 255]]


def save_palette(labels, path):
    mask = Image.fromarray(labels)
    mask.putpalette(bytes(range(256)) * 3)
    mask.save(path)


def failure(call, *arguments, kind=JoemError, **options):
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    return str(error.value)


def write_pictures(root):
    """A folder of two pictures, 5 wide and 4 high, with palette masks."""
    (root / "images").mkdir()
    (root / "masks").mkdir()
    (root / "classes.txt").write_text("background\ndog\ncow\n")
    for name in ("a", "b"):
        Image.new("RGB", (5, 4), (10, 20, 30)).save(root / "images" / f"{name}.png")
        mask = np.zeros((4, 5), np.uint8)
        mask[0, :3] = [1, 2, 255]
        save_palette(mask, root / "masks" / f"{name}.png")
    return root
