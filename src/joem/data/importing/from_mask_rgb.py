"""Pictures with coloured masks and a table of the colours, such as CVAT's "Segmentation mask" and CamVid."""

from functools import partial
from pathlib import Path

from joem.data.faults import Faults, FileFault
from joem.data.files import open_image
from joem.data.folder import MASKS
from joem.data.importing.annotated import (
    NO_MASK,
    Entry,
    Labels,
    PictureFiles,
    Source,
    Wanted,
    existing,
    files_in,
    split_of_folder,
    without_suffix,
)
from joem.data.importing.class_table import ClassTable, read_table
from joem.data.importing.drawing import Size
from joem.errors import BadUsage, JoemError

_IMAGES = ("images", "JPEGImages", "img")
_MASKS = ("masks", "SegmentationClass", "labels", "annotations")
_TABLES = ("labelmap.txt", "label_colors.txt", "class_dict.csv", "colours.txt", "colors.txt", "classes.txt")
_ENDINGS = ("", "_L", "_mask", "-mask", "_label", "_labels", "_seg", "_color")
"""What may stand behind the name of a picture in the name of its mask."""


def read(source: str, wanted: Wanted) -> Source:
    """A folder with the pictures, the masks and the table: `images/`, `masks/` and `labelmap.txt`, or as wanted."""
    root = existing(source)
    pictures = PictureFiles(_folder(root, wanted.images, _IMAGES, "pictures", "--images"))
    folder = _folder(root, wanted.masks, _MASKS, "masks", "--masks")
    table = _table(root, wanted.names)
    masks = {without_suffix(path.relative_to(folder).as_posix()): path for path in files_in(folder, MASKS)}
    faults, entries = Faults(), []
    for path, file in pictures.names.items():
        name = without_suffix(file)
        mask = next((masks[name + ending] for ending in _ENDINGS if name + ending in masks), None)
        if mask is None or mask == path:
            faults.add(FileFault.of(NO_MASK, file))
        else:
            draw = partial(_draw, table=table, mask=mask)
            entries.append(Entry(name, path, draw, split=split_of_folder(Path(file).parent)))
    return Source(table.names, entries, "void", faults=faults)


def _draw(size: Size, *, table: ClassTable, mask: Path) -> Labels:
    return table.read_mask(open_image(mask), mask.name, by_colour=True)


def _folder(root: Path, given: str | None, usual: tuple[str, ...], what: str, option: str) -> Path:
    found = [Path(given)] if given else [root / name for name in usual if (root / name).is_dir()]
    if not found or not found[0].is_dir():
        expected = given or " or ".join(str(root / name) for name in usual)
        raise BadUsage(f"There is no folder {expected}: say with {option} DIR where the {what} are.")
    return found[0]


def _table(root: Path, given: str | None) -> ClassTable:
    found = [given] if given else [str(root / name) for name in _TABLES if (root / name).is_file()]
    if not found:
        raise BadUsage(
            f"There is no table of colours ({', '.join(_TABLES)}) in {root}: give one with --names FILE, a class in "
            "each line, such as '64 128 0 cow'."
        )
    table = read_table(found[0])
    if not table.colours:
        raise JoemError(f"{found[0]} gives no colours: write a class in each line, such as '64 128 0 cow'.")
    return table
