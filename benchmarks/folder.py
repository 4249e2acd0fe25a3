"""What `joem train folder` comes to on a few pictures: a folder cut from PASCAL VOC, scored on pictures it never had.

    python benchmarks/folder.py --root DIR --classes person,dog,cat,horse,car,bicycle,sheep,cow,bus --unseen cow,bus

The folder has pictures of VOC's train split that show no class but these, taken in turns over the classes. It has no
lists: what is kept back is settled as for any folder. 120 pictures of VOC's val split, drawn the same way, score what
was trained too. `--classes all` takes all twenty.
"""

import argparse
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from joem import calibration, data, engine, recipe
from joem.data.counts import class_pixels
from joem.decision import Decision

LEAST = 0.02  # of a picture's pixels: what shows less of a class does not count as a picture of it


def cut(root: str, split: str, classes: list[str], count: int, seed: int, out: Path) -> None:
    """Write a folder of some pictures of a split, with these classes alone."""
    pictures = data.open("voc", root, split)
    pixels = class_pixels(pictures).double()
    shares = pixels / torch.tensor([[pictures.labels(index).numel()] for index in range(len(pictures))])
    kept = [pictures.names.index(name) for name in classes]
    others = [label for label in range(1, len(pictures.names)) if label not in kept]
    usable = [
        index
        for index in range(len(pictures))
        if shares[index, others].sum() == 0 and shares[index, kept].sum() > LEAST
    ]
    random.Random(seed).shuffle(usable)
    queues = [[index for index in usable if shares[index, label] > LEAST] for label in kept]
    chosen: list[int] = []
    while len(chosen) < count and any(queues):
        for queue in queues:
            while queue and queue[-1] in chosen:
                queue.pop()
            if queue and len(chosen) < count:
                chosen.append(queue.pop())
    table = np.full(256, 255, np.uint8)
    table[[0, *kept]] = range(len(kept) + 1)
    for name in ("images", "masks"):
        (out / name).mkdir(parents=True)
    for index in chosen:
        name = pictures.name(index)
        image = pictures[index].image.permute(1, 2, 0).numpy()
        Image.fromarray(image).save(out / "images" / f"{name}.png")
        Image.fromarray(table[pictures.labels(index).numpy()]).save(out / "masks" / f"{name}.png")
    (out / "classes.txt").write_text("\n".join(["background", *classes]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--classes", required=True, help="separated by commas, or all")
    parser.add_argument("--unseen", required=True, help="separated by commas")
    parser.add_argument("--pictures", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1, help="of the cut")
    given = parser.parse_args()
    names = data.open("voc", given.root, "val").names[1:]
    classes = list(names) if given.classes == "all" else given.classes.split(",")
    with tempfile.TemporaryDirectory() as folder:
        few, more = Path(folder) / "few", Path(folder) / "more"
        cut(given.root, "train", classes, given.pictures, given.seed, few)
        cut(given.root, "val", classes, 120, given.seed, more)
        changes = {"data": {"root": str(few), "unseen": given.unseen.split(",")}, "train": {"cache": f"{folder}/maps"}}
        own, started = recipe.load("folder", changes), time.process_time()
        own, why = calibration.decide(own, engine.open_problem(own.data, needed=("train",), cache=own.train.cache))
        model = engine.train(own)
        seconds = time.process_time() - started
        kept = engine.validate(model)
        print(f"{why}\nTrained in {seconds:.0f} s of CPU. Kept back: {kept and kept.scores}")
        elsewhere = replace(own, data=replace(own.data, root=str(more), val_split=None))
        problem = engine.open_problem(elsewhere.data, needed=("val",))
        scored = engine.evaluate(replace(model, recipe=elsewhere), problem, [own.decision, Decision("nn")])
        for each in scored:
            print(f"{each.images} others, {each.decision}: {each.scores}")


if __name__ == "__main__":
    main()
