"""One epoch over very many pictures with stored maps: memory, and whether training waits for reading (Linux).

Run it as `python benchmarks/many_pictures.py` (100,000 generated pictures of 64 x 64, about 2 GB in --folder, which are
kept for the next run) or with `--pictures 2000` for a quick look. Maps are noise: what is in them does not matter here.
First some batches are profiled in one process, to see whether arithmetic, the disk or Python limits a pass.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from joem import data, progress, recipe
from joem.data.scenes import Scenes
from joem.engine import MapStore, Model, reuse_freed_memory, stored_maps
from joem.engine.loading import epoch_batches
from joem.engine.stored_maps import PixelSet
from joem.io import atomic_file, write_tensors
from joem.models import Hypercolumns
from joem.models.heads import hypercolumn

SHAPES = 64  # different label maps: making 100,000 of them would take longer than all that is measured


class Many:
    """So many pictures, of which only labels and names are ever asked for."""

    def __init__(self, count: int, side: int) -> None:
        few = Scenes(SHAPES, side)
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


def write_maps(store: MapStore, pictures: Many, side: int) -> None:
    with torch.no_grad():
        shapes = [each.shape for each in store.trunk(torch.zeros(1, 3, side, side)).maps[-hypercolumn.LEVELS :]]
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


class Training:
    """The head, batch and pixels of the recipe lite, on stored maps."""

    def __init__(self, count: int, side: int, folder: str) -> None:
        head = {"name": "hypercolumn", "channels": 384, "hidden": 768}
        made = recipe.load("scenes", {"data": {"size": side}, "model": {"head": head}, "train": {"cache": folder}})
        torch.manual_seed(0)
        self.pictures, self.vocabulary = Many(count, side), data.scenes.vocabulary()
        self.method = Model.create(made, self.vocabulary).method
        self.store = MapStore.open(made, self.method.trunk.eval())
        self.optimiser = torch.optim.AdamW(self.method.parameters(), lr=1e-4)
        write_maps(self.store, self.pictures, side)

    def pixels(self) -> PixelSet:
        """The pictures, none of them in memory yet."""
        return PixelSet(self.pictures, self.vocabulary, "ignore", self.store, pixels=64, side=4, seed=0)

    def step(self, columns: Tensor, labels: Tensor) -> None:
        """One step of the optimiser, as `joem train` makes it."""
        data.guard(labels, self.vocabulary)
        self.optimiser.zero_grad()
        torch.stack(list(self.method(Hypercolumns(columns), labels).terms.values())).sum().backward()
        self.optimiser.step()

    def shares(self, batches: int) -> str:
        """Where the time of some batches goes, read in this process."""

        def read(*given: object) -> object:
            with record_function("reading"):
                return whole(*given)

        pixels, whole = self.pixels(), stored_maps.read_noted
        sampler = data.EpochSampler(len(pixels), 32, seed=1)
        every = epoch_batches(pixels, sampler, workers=0, pin_memory=False)
        for columns, labels in islice(every, 2):
            self.step(columns, labels)
        with patch.object(stored_maps, "read_noted", read), profile(activities=[ProfilerActivity.CPU]) as found:
            start = time.perf_counter()
            for columns, labels in islice(every, batches):
                self.step(columns, labels)
            total = 1e6 * (time.perf_counter() - start)
        events = found.key_averages()
        reading = sum(each.cpu_time_total for each in events if each.key == "reading")
        arithmetic = sum(each.self_cpu_time_total for each in events if each.key.startswith("aten::"))
        return (
            f"{arithmetic / total:.0%} arithmetic, {reading / total:.0%} reading maps, "
            f"{1 - (arithmetic + reading) / total:.0%} Python and the rest"
        )

    def epoch(self, workers: int) -> str:
        """One pass: speed, the share of waiting, and the most memory in every quarter."""
        pixels, seconds = self.pixels(), list[float]()
        sampler = data.EpochSampler(len(pixels), 32, seed=0)
        memory, start = [0] * 4, time.perf_counter()
        batches = waited(epoch_batches(pixels, sampler, workers, pin_memory=False), seconds)
        for number, (columns, labels) in enumerate(progress.track(batches, f"{workers} workers", len(sampler))):
            self.step(columns, labels)
            if number % 10 == 0:
                quarter = 4 * number // len(sampler)
                memory[quarter] = max(memory[quarter], resident_mb())
        total = time.perf_counter() - start
        return (
            f"{len(pixels) / total:.0f} pictures/s, {sum(seconds) / total:.1%} of the time waiting for pictures; "
            f"most MB in every quarter: {', '.join(map(str, memory))}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=64, help="of a picture, in pixels")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--profiled", type=int, default=40, help="batches to profile")
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "joem-many-pictures"))
    given = parser.parse_args()
    reuse_freed_memory()
    training = Training(given.pictures, given.side, given.folder)
    start = time.perf_counter()
    pixels = training.pixels()
    counted = time.perf_counter()
    training.store.fill(pixels.samples)
    checked = time.perf_counter()
    print(f"{len(pixels)} pictures of {given.side} x {given.side}, {torch.get_num_threads()} threads")
    print(f"labels counted in {counted - start:.1f} s, maps checked in {checked - counted:.1f} s, {resident_mb()} MB")
    print(f"{given.profiled} batches: {training.shares(given.profiled)}", flush=True)
    for workers in given.workers:
        print(f"--data.workers {workers}: {training.epoch(workers)}", flush=True)


if __name__ == "__main__":
    main()
