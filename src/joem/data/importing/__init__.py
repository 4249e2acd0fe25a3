"""From the formats of labelling tools and benchmarks to a `Folder`: a reader per format, one that writes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from joem.data.importing.annotated import Rest, Source, Wanted
from joem.data.importing.class_choice import ClassChoice
from joem.data.importing.from_cityscapes import read as read_cityscapes
from joem.data.importing.from_coco import read as read_coco
from joem.data.importing.from_cvat import read as read_cvat
from joem.data.importing.from_huggingface import read as read_huggingface
from joem.data.importing.from_labelme import read as read_labelme
from joem.data.importing.from_mask_rgb import read as read_mask_rgb
from joem.data.importing.writing import Imported, write
from joem.errors import BadUsage, choose

__all__ = ["FORMATS", "Imported", "import_masks"]

FORMATS: dict[str, Callable[[str, Wanted], Source]] = {
    "coco": read_coco,
    "cityscapes": read_cityscapes,
    "labelme": read_labelme,
    "cvat": read_cvat,
    "huggingface": read_huggingface,
    "mask-rgb": read_mask_rgb,
}
"""The formats that can be imported."""


def import_masks(
    format: str,
    source: str | Path,
    out: str | Path,
    *,
    images: str | None = None,
    masks: str | None = None,
    names: str | None = None,
    classes: Sequence[str] | None = None,
    void: Sequence[str] = (),
    rest: Rest | None = None,
    split: str | None = None,
    val: float | None = None,
    link: bool = False,
    skip_broken: bool = False,
) -> Imported:
    """Write a dataset in another format as a `Folder`. All that is wrong with it is told in one error.

    Args:
        format: coco, cityscapes, labelme, cvat, huggingface or mask-rgb.
        source: its file or folder; for huggingface also the name of a dataset.
        out: a new or empty folder, which is written whole or not at all.
        images: where the pictures are, if not in the usual place: a folder, or a column of a Hugging Face dataset.
        masks: where the masks are, in the same way.
        names: the classes, for formats that do not hold them: a file, or names with commas between them.
        classes: take only these classes, in this order; others count as if nobody had labelled them.
        void: classes whose pixels are void.
        rest: what pixels of no class are, "background" or "void"; what is usual for the format if None.
        split: take only this split of the source.
        val: put this share of the pictures in the list val and the others in train, always the same ones.
        link: link to the pictures instead of copying them.
        skip_broken: leave out the pictures that have faults instead of writing nothing at all.
    """
    read = FORMATS[choose("format", format, FORMATS)]
    if val is not None and not 0 < val < 1:
        raise BadUsage(f"--val is the share of pictures to validate on, above 0 and below 1, got {val}.")
    found = read(str(source), Wanted(images, masks, names))
    own = sorted({entry.split for entry in found.entries if entry.split})
    if split is not None:
        choose("split of the source", split, own)
        found = replace(found, entries=[entry for entry in found.entries if entry.split == split])
    elif val is not None and len(own) > 1:
        raise BadUsage(
            f"The source has its own splits ({', '.join(own)}): leave --val out, or take one of them with --split."
        )
    choice = ClassChoice.make(found, classes, void, rest)
    return write(found, choice, Path(out), val=val, link=link, skip_broken=skip_broken)
