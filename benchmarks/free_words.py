"""How well words find things and surroundings on pictures that no model here learned from, per kind of word.

    python benchmarks/free_words.py prepare CAMVID CLOTHES OUT     lay them out, half for choices, half to report
    python benchmarks/free_words.py score OUT MODEL [MODEL ...]    the halves to report; --half choose for the others

CAMVID is the folder CamVid of GeorgeSeif/Semantic-Segmentation-Suite (701 street scenes, 31 classes), CLOTHES a copy of
bearpaw/clothing-co-parsing (1,004 photos, 54 kinds of clothes, which needs `pip install "joem[prepare]"`). With --voc
DIR the evaluation pictures of PASCAL VOC are asked for by other names than those of their classes, too.
"""

import argparse
import csv
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from joem import Segmenter, data
from joem.studies import free_words
from joem.vocabulary import VOID

# CamVid's names as people would ask for them; those not listed are words already.
STREETS = {
    "Bicyclist": "cyclist", "CartLuggagePram": "cart", "Column_Pole": "pole", "LaneMkgsDriv": "lane marking",
    "LaneMkgsNonDriv": "road marking", "Misc_Text": "text", "MotorcycleScooter": "motorcycle", "OtherMoving": "vehicle",
    "ParkingBlock": "parking block", "RoadShoulder": "road shoulder", "SignSymbol": "traffic sign",
    "SUVPickupTruck": "pickup truck", "TrafficCone": "traffic cone", "TrafficLight": "traffic light",
    "Truck_Bus": "bus", "VegetationMisc": "vegetation",
}  # fmt: skip
OTHER_NAMES = {
    "aeroplane": "jet", "bicycle": "pushbike", "bird": "fowl", "boat": "ship", "bottle": "flask", "bus": "coach",
    "car": "automobile", "cat": "kitten", "chair": "seat", "cow": "bull", "diningtable": "desk", "dog": "puppy",
    "horse": "pony", "motorbike": "scooter", "person": "man", "pottedplant": "houseplant", "sheep": "lamb",
    "sofa": "settee", "train": "locomotive", "tvmonitor": "computer screen",
}  # fmt: skip


def write(folder: Path, picture: Path, mask: NDArray[np.uint8]) -> None:
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    shutil.copy(picture, folder / "images" / picture.name)
    Image.fromarray(mask).save(folder / "masks" / f"{picture.stem}.png")


def prepare_streets(source: Path, out: Path) -> None:
    """Neighbouring frames look alike, so the first half of every film is for choices and the second to report."""
    with (source / "class_dict.csv").open() as lines:
        rows = [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(lines)]
    known = [row for row in rows if row["name"] != "Void"]
    names = [STREETS.get(row["name"], row["name"].lower()) for row in known]
    table = np.full(1 << 24, VOID, np.uint8)
    for label, row in enumerate(known):
        table[_code(np.array([int(row[channel]) for channel in "rgb"]))] = label
    films: dict[str, list[Path]] = {}
    for picture in sorted(source.glob("t*/*.png")) + sorted(source.glob("val/*.png")):
        if not picture.parent.name.endswith("_labels"):
            films.setdefault(picture.name.split("_")[0], []).append(picture)
    for film in films.values():
        film.sort(key=lambda picture: picture.name)
        for number, picture in enumerate(film):
            file = picture.parent.with_name(f"{picture.parent.name}_labels") / f"{picture.stem}_L.png"
            half = "choose" if number < len(film) // 2 else "report"
            write(out / f"streets-{half}", picture, table[_code(np.asarray(Image.open(file).convert("RGB")))])
    finish(out, "streets", names)


def _code(colours: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Colours (...,3) as one number each."""
    return colours.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])


def prepare_clothes(source: Path, out: Path) -> None:
    from scipy.io import loadmat

    names = [str(name.item()) for name in loadmat(source / "label_list.mat")["label_list"][0]]
    for number, file in enumerate(sorted((source / "annotations/pixel-level").glob("*.mat"))):
        labels = loadmat(file)["groundtruth"].astype(np.uint8)
        write(out / f"clothes-{('choose', 'report')[number % 2]}", source / f"photos/{file.stem}.jpg", labels)
    finish(out, "clothes", ["background" if name == "null" else name for name in names])


def finish(out: Path, kind: str, names: Iterable[str]) -> None:
    for half in ("choose", "report"):
        (out / f"{kind}-{half}" / "classes.txt").write_text("\n".join(names) + "\n")


def score(out: Path, models: list[str], half: str, most: int | None, voc: str | None, values: dict[str, float]) -> None:
    sets = {path.name: (data.Folder(path), None) for path in sorted(out.glob(f"*-{half}"))}
    if voc is not None:
        pictures = data.open("voc", voc, "val")
        chosen = list(range(half == "report", len(pictures), 2))
        for title, names in (("voc", None), ("voc by other names", OTHER_NAMES)):
            words = None if names is None else [names.get(name, name) for name in pictures.names]
            sets[f"{title}, {half}"] = (data.View(pictures, chosen), words)
    print(
        f"{'pictures':28}{'model':28}{'n':>5}{'accuracy':>9}"
        + "".join(f"{kind:>14}" for kind in ("all", *free_words.KINDS))
    )
    last = Segmenter.load(models[-1])  # kinds of words are those of the last model, so that rows can be compared
    for title, (pictures, words) in sets.items():
        count = len(pictures) if most is None else min(most, len(pictures))
        some = data.View(pictures, [index * len(pictures) // count for index in range(count)])
        for model in models:
            found = free_words.evaluate(Segmenter.load(model), some, words, **values)
            found = replace(
                found,
                kinds=tuple(
                    kind and free_words.kind(last, name) for name, kind in zip(found.names, found.kinds, strict=True)
                ),
            )
            means = [found.mean(), *map(found.mean, free_words.KINDS)]
            own = [len(found.ious), *(list(found.kinds).count(kind) for kind in free_words.KINDS)]
            cells = (
                "-" if mean is None else f"{mean:.1f}" + (f" ({number})" if kind else "")
                for kind, (mean, number) in enumerate(zip(means, own, strict=True))
            )
            print(
                f"{title:28}{Path(model).name:28}{count:5}{found.accuracy:9.1f}"
                + "".join(f"{cell:>14}" for cell in cells),
                flush=True,
            )
            best = sorted(found.ious.items(), key=lambda item: -item[1])
            print("    " + ", ".join(f"{name} {value:.0f}" for name, value in best), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    for name in ("camvid", "clothes", "out"):
        preparing.add_argument(name, type=Path)
    scoring = commands.add_parser("score")
    scoring.add_argument("out", type=Path)
    scoring.add_argument("models", nargs="+")
    scoring.add_argument("--half", choices=["choose", "report"], default="report")
    scoring.add_argument("--most", type=int, help="that many pictures of each set, evenly spread; all if not given")
    scoring.add_argument("--voc", help="VOCdevkit, for its classes by other names")
    scoring.add_argument("--gamma", type=float, help="of calibrated stacking; the model's own if not given")
    given = parser.parse_args()
    if given.command == "prepare":
        prepare_streets(given.camvid, given.out)
        prepare_clothes(given.clothes, given.out)
        return
    torch.set_num_threads(1)
    values = {} if given.gamma is None else {"gamma": given.gamma}
    score(given.out, given.models, given.half, given.most, given.voc, values)


if __name__ == "__main__":
    main()
