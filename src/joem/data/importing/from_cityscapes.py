"""Cityscapes: leftImg8bit/SPLIT/CITY/*_leftImg8bit.png with gtFine/SPLIT/CITY/*_gtFine_labelIds.png."""

from functools import partial
from pathlib import Path

from joem.data.faults import Fault, Faults, FileFault
from joem.data.files import open_image
from joem.data.importing.annotated import MISSING, NO_MASK, Entry, Labels, Source, Wanted, existing
from joem.data.importing.class_table import ClassTable
from joem.data.importing.drawing import Size
from joem.errors import BadUsage

NAMES = (
    *("unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground", "road"),
    *("sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge", "tunnel", "pole"),
    *("polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky", "person", "rider", "car"),
    *("truck", "bus", "caravan", "trailer", "train", "motorcycle", "bicycle"),
)
"""The names of the official ids 0 to 33."""

EVALUATED = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)
"""The 19 classes of the benchmark, in its order."""

NO_MASKS_AT_ALL = Fault(
    "split has pictures and no masks", "splits have pictures and no masks", "Their pictures were left out."
)

_PICTURE, _MASK = "_leftImg8bit.png", "_gtFine_labelIds.png"


def read(source: str, wanted: Wanted) -> Source:
    """The folder that holds both archives; the 19 evaluated classes are taken, the others are void."""
    root = existing(source)
    pictures = _by_name(Path(wanted.images) if wanted.images else root / "leftImg8bit", _PICTURE, "--images")
    masks = _by_name(Path(wanted.masks) if wanted.masks else root / "gtFine", _MASK, "--masks")
    table = ClassTable.of_names(NAMES)
    faults, notes, entries = Faults(), Faults(), []
    labelled = {split for split, _, _ in masks}
    for split in sorted({split for split, _, _ in pictures} - labelled):
        notes.add(FileFault.of(NO_MASKS_AT_ALL, split))
    for key in sorted(pictures.keys() | masks.keys()):
        split, city, name = key
        if key not in pictures:
            faults.add(FileFault.of(MISSING, f"{split}/{city}/{name}{_PICTURE}"))
        elif key in masks:
            entries.append(Entry(name, pictures[key], partial(_draw, table=table, mask=masks[key]), split=split))
        elif split in labelled:
            faults.add(FileFault.of(NO_MASK, f"{split}/{city}/{name}{_PICTURE}"))
    return Source(NAMES, entries, "void", usual=EVALUATED, faults=faults, notes=notes)


def _draw(size: Size, *, table: ClassTable, mask: Path) -> Labels:
    return table.read_mask(open_image(mask), mask.name, by_colour=False)


def _by_name(folder: Path, ending: str, option: str) -> dict[tuple[str, str, str], Path]:
    """The files of a folder by split, city and name."""
    found = {
        (path.parts[-3], path.parts[-2], path.name.removesuffix(ending)): path
        for path in sorted(folder.glob(f"*/*/*{ending}"))
    }
    if not found:
        raise BadUsage(f"There is no SPLIT/CITY/NAME{ending} in {folder}: say with {option} DIR where they are.")
    return found
