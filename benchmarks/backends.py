"""The model in the box by torch and by onnxruntime, in float32 and in int8: time of encoding, and labels on PASCAL VOC.

Run it as `python benchmarks/backends.py OUT --voc VOCdevkit`; OUT keeps the exported files for the next run. Pictures
for calibration are of VOC's train split, those that are scored of its val split; `--every 4` takes every fourth.
"""

import argparse
from functools import partial
from pathlib import Path

import torch

from _measure import measure_in_turns
from joem import Segmenter, data, onnx, progress, protocols, scores
from joem.data import Scenes
from joem.scores import confusion


def exported(out: Path, pictures: data.Dataset, count: int) -> dict[str, Segmenter]:
    """The model in the box as torch runs it and as files, which are written where they are not there."""
    box = Segmenter.load()
    some = [pictures[index].image for index in range(0, len(pictures), max(1, len(pictures) // count))][:count]
    files = {"onnx": ((), out / "box.onnx"), "onnx-int8": (some, out / f"box-int8-{count}.onnx")}
    out.mkdir(parents=True, exist_ok=True)
    for name, (calibration, file) in files.items():
        if not file.exists():
            different = onnx.to_onnx(box.model, file, calibration)
            print(f"{name}: wrote {file}, {file.stat().st_size / 1e6:.1f} MB, {different:.2%} of the labels differ")
    return {"torch": box} | {name: Segmenter.load(file) for name, (_, file) in files.items()}


def times(models: dict[str, Segmenter], rounds: int) -> None:
    """Encoding a 512x512 picture, and a whole prediction of 21 classes, calls in turns."""
    pixels, names = Scenes(1, 512)[0].image, list(protocols.get("voc-zs3-4").vocabulary.names)
    kinds = {"encoding": lambda model: model.encode(pixels), "21 classes, encoding too": lambda m: m(pixels, names)}
    for kind, work in kinds.items():
        turns = [partial(work, model) for model in models.values()]
        found = [each.seconds for each in measure_in_turns(turns, [1] * len(turns), rounds)]
        cells = (
            f"{name} {1e3 * each:.1f} ms ({each / found[0]:.2f})" for name, each in zip(models, found, strict=True)
        )
        print(f"  {kind:<26}{', '.join(cells)}", flush=True)


def labels(models: dict[str, Segmenter], pictures: data.Dataset, every: int) -> None:
    """Mean IoU of every model, and the share of its labels that differ from the first model's."""
    count = len(pictures.names)
    counted = {name: torch.zeros(count, count, dtype=torch.int64) for name in models}
    different, pixels = dict.fromkeys(models, 0), 0
    for index in progress.track(range(0, len(pictures), every), "pictures"):
        sample = pictures[index]
        found = {name: model(sample.image, list(pictures.names)).labels for name, model in models.items()}
        first = next(iter(found.values()))
        pixels += first.numel()
        for name, each in found.items():
            counted[name] += confusion(sample.labels, each, count)
            different[name] += int((each != first).sum())
    print(f"PASCAL VOC val, {len(range(0, len(pictures), every))} pictures")
    for name, matrix in counted.items():
        row = scores.scores(matrix, ())
        print(f"  {name:<12}mean IoU {row.miou:5.2f}, pixels right {row.pixel_accuracy:5.2f}, "
              f"{different[name] / pixels:.3%} of the labels differ", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--voc", required=True)
    parser.add_argument("--pictures", type=int, default=64, help="for calibration")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12, help="of the measurement of time; 0 leaves it out")
    parser.add_argument("--no-labels", action="store_true")
    given = parser.parse_args()
    models = exported(given.out, data.open("voc", given.voc, "train"), given.pictures)
    if given.rounds:
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, 512x512 pixels; in brackets: torch is 1")
        times(models, given.rounds)
    if not given.no_labels:
        labels(models, data.open("voc", given.voc, "val"), given.every)


if __name__ == "__main__":
    main()
