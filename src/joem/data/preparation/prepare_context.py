"""PASCAL Context: masks of 59 classes and background from those of 459 labels."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joem.data.context import LISTS, MASKS, VOCABULARY
from joem.data.files import by_stem, read_list
from joem.data.preparation.conversion import Conversion, Piece, Preparation, convert
from joem.data.voc import find_year, read_stems
from joem.errors import JoemError

LISTED, LABELS = 10_103, 459
"""Pictures in VOC 2010's train and val; labels in the MATLAB files."""

OTHER_NAMES = {"diningtable": "table", "clothes": "cloth", "bedcloth": "bedclothes"}
"""The classes whose name in the list of 459 labels differs from the one in the list of 59."""


def prepare(root: Path) -> Preparation:
    """Check the download and convert the MATLAB masks of 459 labels to PNG masks of 60 classes."""
    folder = find_year(root, 2010)
    annotations = _find_annotations(root, folder)
    lists = [folder / LISTS / f"{split}.txt" for split in ("train", "val")]
    stems = {stem for path in lists if path.is_file() for stem in read_stems(path)}
    pictures, done = by_stem(folder / "JPEGImages", ".jpg"), by_stem(folder / MASKS, ".png")
    matlab = by_stem(annotations / "trainval", ".mat")
    voc = f"Fetch VOCtrainval_03-May-2010.tar (host.robots.ox.ac.uk/pascal/VOC/voc2010) and unpack it in {root}."
    context = (
        f"Fetch trainval.tar.gz of PASCAL Context (cs.stanford.edu/~roozbeh/pascal-context) and unpack it in {root}."
    )
    pieces = [
        Piece("lists", folder / LISTS, len(stems), LISTED, voc),
        Piece("pictures", folder / "JPEGImages", len(pictures.keys() & (stems or pictures)), LISTED, voc),
        Piece(
            "masks",
            annotations / "trainval" if matlab else folder / MASKS,
            len((matlab | done).keys() & (stems or matlab)),
            LISTED,
            context,
        ),
    ]
    label_file = annotations / "labels.txt"
    names = read_labels(label_file) if label_file.is_file() else {}
    if not stems or stems - done.keys():
        pieces.append(Piece("label names", label_file, len(names), LABELS, context))
    conversion = Conversion(kept=len(done))
    if names:
        conversion = _convert({stem: matlab[stem] for stem in matlab.keys() & stems & pictures.keys()}, names, folder)
    return Preparation(folder, tuple(pieces), ("train", "val"), conversion)


def _convert(sources: dict[str, Path], names: dict[str, int], folder: Path) -> Conversion:
    table = translation(names)

    def classes(mat: dict[str, Any]) -> NDArray[np.uint8]:
        labels: NDArray[Any] = mat["LabelMap"]
        return table[labels.astype(np.int64)]

    return convert(sources, classes, folder / "JPEGImages", folder / MASKS, VOCABULARY)


def read_labels(path: Path) -> dict[str, int]:
    """The number of every label, from lines such as "2: aeroplane"; blanks inside names do not count."""
    labels = {}
    for line in read_list(path):
        number, colon, name = line.partition(":")
        if not colon or not number.strip().isdigit():
            raise JoemError(f"Expected lines such as '2: aeroplane' in {path}, got {line!r}: fetch the file again.")
        labels["".join(name.split())] = int(number)
    return labels


def translation(labels: dict[str, int]) -> NDArray[np.uint8]:
    """The class of every label number, found by name; whatever is not one of the 59 classes is background.

    >>> import numpy as np
    >>> others = [name for name in VOCABULARY.names if name not in OTHER_NAMES and name != "background"]
    >>> names = ["accordion", *others, *OTHER_NAMES.values()]
    >>> table = translation({name: number for number, name in enumerate(names, start=1)})
    >>> [VOCABULARY.names[table[number]] for number in (1, 2, len(names))]
    ['background', 'aeroplane', 'bedcloth']
    """
    table = np.zeros(max(labels.values()) + 1, np.uint8)
    for index, name in enumerate(VOCABULARY.names):
        if name == VOCABULARY.background:
            continue
        known = [spelling for spelling in (OTHER_NAMES.get(name), name) if spelling in labels]
        if not known:
            raise JoemError(f"labels.txt does not name {name!r}: fetch the list of 459 labels again.")
        table[labels[known[0]]] = index
    return table


def _find_annotations(root: Path, folder: Path) -> Path:
    parents = (root, folder, folder.parent, folder.parent.parent)
    return next((parent for parent in parents if (parent / "trainval").is_dir()), root)
