"""Downloads made in their true formats, only small."""

import numpy as np
from PIL import Image
from scipy.io import savemat

SIZE = (6, 5)  # width, height


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE).save(path)


def mask(path, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(labels(label)).save(path)


def labels(label, dtype=np.uint8):
    """Half background, half one label."""
    pixels = np.zeros(SIZE[::-1], dtype)
    pixels[:, :3] = label
    return pixels


def sbd(path, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    truth = {"Boundaries": np.zeros((20, 1)), "Segmentation": labels(label), "CategoriesPresent": np.array([[label]])}
    savemat(path, {"GTcls": truth})


def listing(path, *stems):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{stem}\n" for stem in stems))


def run(capsys, *words):
    from joem import cli

    code = cli.main(["data", "prepare", *map(str, words)])
    return code, *capsys.readouterr()


def states(preparation):
    return {piece.name: piece.state for piece in preparation.pieces}
