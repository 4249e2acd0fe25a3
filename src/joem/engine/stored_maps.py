"""Training on pixels of a frozen backbone: its maps are computed once per picture and kept on disk."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from joem import data, methods, progress
from joem.data import Dataset
from joem.engine.memory import available_memory
from joem.errors import BadUsage
from joem.io import atomic_file, damage_told, read_noted, read_notes, read_tensors, write_tensors
from joem.models import HEADS, FeatureMaps, Trunk, hypercolumn
from joem.recipe import Recipe
from joem.settings import DataSettings
from joem.vocabulary import VOID, Vocabulary

_LEAST_MEMORY = 1 << 29  # bytes of maps that a training keeps in memory, some two hundred pictures
_MOST_MEMORY = 4 << 30
_SHARE = 16  # where memory is free, that part of it: several trainings may begin at once


@dataclass(frozen=True)
class MapStore:
    """The maps of a frozen backbone that hypercolumns are made of, one file per picture, in half precision.

    Attributes:
        trunk: makes them.
        folder: where the files are; it belongs to one backbone and one source of pictures.
    """

    trunk: Trunk
    folder: Path

    @classmethod
    def open(cls, recipe: Recipe, trunk: Trunk, captions: str | None = None) -> "MapStore":
        """The store that a recipe asks for with `train.cache`, of its pictures or of the folder of captioned photos."""
        model, pictures = recipe.model, recipe.data
        if captions is not None:
            pictures = DataSettings(kind="captions", root=captions)
        pixelwise = model.head is None or HEADS[model.head.name].takes_hypercolumns
        if recipe.train.cache is None or not pixelwise or not model.freeze_backbone:
            raise BadUsage(
                "Training on stored maps needs --model.head.name hypercolumn, --model.freeze_backbone true and a "
                f"folder --train.cache DIR, got {model.head and model.head.name}, {model.freeze_backbone} and "
                f"{recipe.train.cache}."
            )
        root = None if pictures.root is None else str(Path(pictures.root).resolve())
        every_mask = methods.get(recipe.method.name).sees_every_mask  # its generated pictures show other classes
        made: list[Any] = (
            [pictures.size, pictures.seed, pictures.unseen, every_mask] if pictures.kind == "scenes" else []
        )
        if model.weights == "none":
            made.append(recipe.train.seed)  # another seed, another network
        elif Path(model.weights).is_file():
            made += [Path(model.weights).stat().st_size, Path(model.weights).stat().st_mtime_ns]
        network: list[Any] = [model.backbone, model.weights, model.stride, model.side, *(model.multi_grid or ())]
        if model.dense is not None:
            network.append(model.dense)
        key = [*network, trunk.mean, pictures.kind, root, *made]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
        return cls(trunk, Path(recipe.train.cache).expanduser() / f"{pictures.kind}-{name}")

    def fill(self, pictures: Dataset, rank: int = 0, world: int = 1) -> None:
        """Compute what is missing for a dataset; processes share the work."""
        missing = [index for index in range(rank, len(pictures), world) if not self._has(pictures, index)]
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
        for index in progress.track(missing, "backbone maps"):
            self.maps(pictures, index)

    @torch.no_grad()
    def maps(self, pictures: Dataset, index: int) -> FeatureMaps:
        """The maps of one picture (1,C,H,W); it is read only if those of this version are not stored."""
        file, notes = self._file(pictures.name(index)), {"picture": pictures.version(index)}
        stored = read_noted(file, notes)
        if stored is None:
            image = self.trunk.normalised(pictures[index].image)[None]
            self.trunk.backbone.eval()
            quick = self.trunk.for_inference()
            computed = quick(image.to(next(self.trunk.parameters()).device)).maps[-hypercolumn.LEVELS :]
            with atomic_file(file, lasting=False) as draft:
                tensors = {str(level): each.half() for level, each in enumerate(computed)}
                write_tensors(draft, tensors, notes)
            stored = read_tensors(file)
        strides = self.trunk.strides[-hypercolumn.LEVELS :]
        with damage_told(file, "Remove the file: it will be made again."):
            return FeatureMaps([stored[str(level)].float() for level in range(len(strides))], strides)

    def _has(self, pictures: Dataset, index: int) -> bool:
        """Whether the maps of a picture as it is now are stored whole."""
        return read_notes(self._file(pictures.name(index))) == {"picture": pictures.version(index)}

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


class PixelSet:
    """Seen-only, guarded hypercolumns, the same for the same (seed, epoch, index) in any process.

    Args:
        dataset: pictures labelled with all classes.
        vocabulary: the same classes, and which of them are unseen.
        rule: what to do with unseen masks, see `joem.data.seen_only`.
        store: where the maps are.
        pixels: how many labelled pixels of each picture to draw; 0 takes a square of positions of the last map.
        side: side of that square; beyond the picture it is void.
        seed: another seed, other pixels.
    """

    def __init__(
        self,
        dataset: Dataset,
        vocabulary: Vocabulary,
        rule: str,
        store: MapStore,
        *,
        pixels: int,
        side: int,
        seed: int,
    ) -> None:
        self.samples = data.seen_only(dataset, vocabulary, rule)
        self.vocabulary, self.store, self.pixels, self.side, self.seed = vocabulary, store, pixels, side, seed
        self._kept: dict[int, tuple[hypercolumn.Basis, Tensor]] = {}
        self._taken, self._room = 0, min(max(_LEAST_MEMORY, available_memory() // _SHARE), _MOST_MEMORY)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Hypercolumns (Cin,1,P) or (Cin,S,S) of the picture at (epoch, index), and their labels."""
        epoch, index = key
        basis, labels = self._picture(index)
        generator = torch.Generator().manual_seed(data.mixed(self.seed, epoch, index))
        if self.pixels:
            positions, found = random_pixels(labels, self.pixels, generator)
        else:
            positions, found = random_square(labels, basis.coarse[-1].shape[-2:], self.side, generator)
        return hypercolumn.gather(basis, positions[None])[0], found

    def _picture(self, index: int) -> tuple[hypercolumn.Basis, Tensor]:
        """What the hypercolumns of a picture are made of, and its labels; those of a small set are read once."""
        if index in self._kept:
            basis, small = self._kept[index]
            return basis, small.long()
        labels = self.samples.labels(index)
        data.guard(labels, self.vocabulary)
        basis = hypercolumn.basis(self.store.maps(self.samples, index), joined=False)
        size = labels.numel() + sum(each.nbytes for each in (basis.fine, *basis.coarse, basis.everywhere))
        room = self._room if get_worker_info() is None else _LEAST_MEMORY  # loading processes live for an epoch
        if self._taken + size <= room:
            self._taken += size
            self._kept[index] = basis, labels.to(torch.uint8)
        return basis, labels


class CaptionSet:
    """Hypercolumns of captioned photos with their nouns, the same for the same (seed, step) in any process.

    Args:
        photos: the photos.
        store: where their maps are.
        batch: how many photos go with every step.
        pixels: how many pixels of each.
        seed: another seed, other photos and pixels.
    """

    def __init__(self, photos: data.Captioned, store: MapStore, *, batch: int, pixels: int, seed: int) -> None:
        self.photos, self.store, self.batch, self.pixels, self.seed = photos, store, batch, pixels, seed

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        """Hypercolumns (B,Cin,1,P) and which nouns each photo has (B,N)."""
        generator = torch.Generator().manual_seed(data.mixed(self.seed, step))
        chosen = torch.randint(len(self.photos), (self.batch,), generator=generator).tolist()
        columns = []
        for index in chosen:
            positions = torch.rand((1, self.pixels, 2), generator=generator) * 2 - 1
            columns.append(hypercolumn.gather(self.store.maps(self.photos, index), positions[None])[0])
        return torch.stack(columns), torch.stack([self.photos.nouns(index) for index in chosen])


def random_pixels(labels: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions (1,P,2) of labelled pixels drawn with replacement, in the form of grid_sample, and labels (1,P).

    A picture without a labelled pixel gives void ones.

    >>> labels = torch.tensor([[255, 255], [255, 3]])
    >>> random_pixels(labels, 2, torch.Generator())
    (tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]]), tensor([[3, 3]]))
    """
    height, width = labels.shape
    labelled = torch.from_numpy(np.flatnonzero(labels.numpy() != VOID))  # torch's nonzero takes three times as long
    if not len(labelled):
        labelled = torch.arange(height * width)
    drawn = labelled[torch.randint(len(labelled), (count,), generator=generator)]
    rows, columns = drawn // width, drawn % width
    positions = torch.stack([(columns + 0.5) / width, (rows + 0.5) / height], dim=-1) * 2 - 1
    return positions[None], labels.flatten()[drawn][None]


def random_square(labels: Tensor, grid: torch.Size, side: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions (S,S,2) of a square of a grid (H,W) laid over a picture, and their labels (S,S).

    >>> positions, found = random_square(torch.zeros(8, 8).long(), torch.Size([2, 2]), 3, torch.Generator())
    >>> int((found == VOID).sum())
    5
    """

    def axis(cells: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        free = cells - side
        start = int(torch.randint(min(free, 0), max(free, 0) + 1, (1,), generator=generator))
        chosen = torch.arange(start, start + side)
        centres = (chosen.clamp(0, cells - 1) + 0.5) / cells
        return centres * 2 - 1, (centres * length).long(), (chosen >= 0) & (chosen < cells)

    across, columns, in_width = axis(grid[1], labels.shape[1])
    down, rows, in_height = axis(grid[0], labels.shape[0])
    positions = torch.stack([across.expand(side, side), down[:, None].expand(side, side)], dim=-1)
    inside = in_height[:, None] & in_width
    return positions, torch.where(inside, labels[rows][:, columns], VOID)
