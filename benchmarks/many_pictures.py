"""One epoch over very many pictures with stored maps: memory, and whether training waits for reading (Linux).

Run it as `python benchmarks/many_pictures.py` (100,000 generated pictures of 64 x 64, about 2 GB in --folder, which are
kept for the next run) or with `--pictures 2000` for a quick look. Maps are noise: what is in them does not matter here.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from joem import data, progress, recipe
from joem.data.scenes import Scenes
from joem.engine import MapStore, Model
from joem.engine.loading import epoch_batches
from joem.engine.stored_maps import PixelSet
from joem.io import atomic_file, write_tensors
from joem.models import Hypercolumns
from joem.models.heads import hypercolumn

SHAPES = 64  # different label maps: making 100,000 of them would take longer than all that is measured


class Many:
    """So many pictures, of which only labels and names are ever asked for."""

    def __init__(self, count: int) -> None:
        few = Scenes(SHAPES, 64)
        self.names, self.background, self._count = few.names, few.background, count
        self._labels = [few[index].labels for index in range(SHAPES)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> data.Sample:
        raise AssertionError("the maps of every picture are stored")

    def labels(self, index: int) -> Tensor:
        """One of a few label maps."""
        return self._labels[index % SHAPES]

    def name(self, index: int) -> str:
        """A number."""
        return f"{index:08}"

    def version(self, index: int) -> str:
        """Always the same."""
        return "1"


def write_maps(store: MapStore, pictures: Many) -> None:
    with torch.no_grad():
        shapes = [each.shape for each in store.trunk(torch.zeros(1, 3, 64, 64)).maps[-hypercolumn.LEVELS :]]
    store.folder.mkdir(parents=True, exist_ok=True)
    for index in progress.track(range(len(pictures)), "writing maps"):
        file = store.folder / f"{pictures.name(index)}.safetensors"
        if not file.exists():
            tensors = {str(level): torch.randn(shape).half() for level, shape in enumerate(shapes)}
            with atomic_file(file, lasting=False) as draft:
                write_tensors(draft, tensors, {"picture": pictures.version(index)})


def resident_mb() -> int:
    """Memory of this process and of those that read for it; what they share counts for each."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    mine = [Path("/proc") / pid for pid in ("self", *children)]
    lines = (line for each in mine for line in (each / "status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) // 1024


def waited(batches: Iterable[tuple[Tensor, Tensor]], seconds: list[float]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches, with how long each was waited for."""
    rest = iter(batches)
    while True:
        start = time.perf_counter()
        batch = next(rest, None)
        seconds.append(time.perf_counter() - start)
        if batch is None:
            return
        yield batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "joem-many-pictures"))
    given = parser.parse_args()
    head = {"name": "hypercolumn", "channels": 384, "hidden": 768}  # as in the recipe lite, with its batch and pixels
    made = recipe.load("scenes", {"model": {"head": head}, "train": {"cache": given.folder}})
    torch.manual_seed(0)
    pictures, vocabulary = Many(given.pictures), data.scenes.vocabulary()
    model = Model.create(made, vocabulary)
    store = MapStore.open(made, model.method.trunk.eval())
    write_maps(store, pictures)
    start = time.perf_counter()
    pixels = PixelSet(pictures, vocabulary, "ignore", store, pixels=64, side=4, seed=0)
    counted = time.perf_counter()
    store.fill(pixels.samples)
    print(f"{len(pixels)} pictures: labels counted in {counted - start:.1f} s, maps checked in "
          f"{time.perf_counter() - counted:.1f} s; memory {resident_mb()} MB")  # fmt: skip
    optimiser = torch.optim.AdamW(model.method.parameters(), lr=1e-4)
    for workers in given.workers:
        pixels = PixelSet(pictures, vocabulary, "ignore", store, pixels=64, side=4, seed=0)
        sampler = data.EpochSampler(len(pixels), 32, seed=0)
        seconds: list[float] = []
        tenth, start = max(1, len(sampler) // 10), time.perf_counter()
        memory = []
        batches = waited(epoch_batches(pixels, sampler, workers, pin_memory=False), seconds)
        for number, (columns, labels) in enumerate(progress.track(batches, f"{workers} workers", len(sampler)), 1):
            optimiser.zero_grad()
            torch.stack(list(model.method(Hypercolumns(columns), labels).terms.values())).sum().backward()
            optimiser.step()
            if number % tenth == 0:
                memory.append(resident_mb())
        total = time.perf_counter() - start
        print(f"--data.workers {workers}: {len(pixels) / total:.0f} pictures/s, {sum(seconds) / total:.0%} of the time "
              f"waiting for pictures; MB after every tenth: {', '.join(map(str, memory))}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
