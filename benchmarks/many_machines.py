"""What very many pictures cost: pictures per second of one process, bytes per result, and the plan that follows.

Run it as `python benchmarks/many_machines.py`, on a machine of the kind that will be used, with nothing else on it. It
segments parts of the page's sample photos, 512 x 512, as `joem predict` does with --format parquet and folders.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from joem import Segmenter, prediction, web
from joem.saving import Saving

PHOTOS = Path(web.__file__).parent / "photos"
DAY = 86_400


def cut_out(photo: Path, seed: int) -> Image.Image:
    """A part of a photo, another for every seed: equal pictures would be compressed to nothing."""
    chance = random.Random(seed)
    with Image.open(photo) as opened:
        picture = opened.convert("RGB")
    side = int(min(picture.size) * chance.uniform(0.6, 1))
    left, top = (chance.randint(0, length - side) for length in picture.size)
    return picture.crop((left, top, left + side, top + side)).resize((512, 512))


def rate(model: Segmenter, pictures: list[Path], out: Path, saving: Saving) -> tuple[float, float]:
    """Pictures per second, and bytes of results per picture."""
    request = prediction.Request("person, cat, cup, table, camera")
    list(prediction.predict(model, pictures[:4], request, out / "first", saving=saving))
    start = time.perf_counter()
    done = list(prediction.predict(model, pictures, request, out / "found", saving=saving))
    seconds = time.perf_counter() - start
    assert all(each.found for each in done)
    size = sum(file.stat().st_size for file in (out / "found").rglob("*") if file.is_file())
    return len(pictures) / seconds, size / len(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of one thread each on a machine")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = Segmenter.load(device=given.device)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        photos = sorted(PHOTOS.glob("*.jpg"))
        pictures = [Path(folder) / f"{number:06}.jpg" for number in range(given.pictures)]
        for number, picture in enumerate(pictures):
            cut_out(photos[number % len(photos)], number).save(picture, quality=90)
        print(
            f"{given.pictures} photos of 512 x 512, five words, one thread; {load:.1f} other processes wanted the cores"
        )
        forms = {"parquet": Saving("parquet", rows=100), "folders": Saving()}
        for name, saving in forms.items():
            speed, size = rate(model, pictures, Path(folder) / name, saving)
            print(f"{name}: {speed:.2f} pictures/s per process, {size / 1000:.1f} kB per picture")
            for count, title in ((10**6, "1 M"), (10**9, "1 B")):
                days = count / (speed * given.processes) / DAY
                print(f"  {title}: {days:,.1f} machine-days, {count * size / 1e9:,.0f} GB")


if __name__ == "__main__":
    main()
