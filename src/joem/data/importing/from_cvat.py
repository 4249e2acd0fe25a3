"""CVAT's "CVAT for images 1.1": annotations.xml with the pictures in images/."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from joem.data.faults import Faults, FileFault
from joem.data.importing.annotated import (
    NO_AREA,
    Entry,
    Labels,
    PictureFiles,
    Source,
    Wanted,
    all_drawn,
    broken_told,
    existing,
    split_of_folder,
    without_suffix,
)
from joem.data.importing.drawing import Region, Size, box, ellipse, paint, polygon, run_lengths
from joem.errors import JoemError

_AREAS = {"polygon", "box", "ellipse", "mask"}
_NO_AREA = {"polyline", "points", "cuboid", "skeleton", "tag"}
_OWN = {"default", ""}  # what CVAT calls the subset of pictures that nobody put in one


class _PlainTree(ElementTree.TreeBuilder):
    """Refuses definitions of the document's own: entities could be made to grow without bounds, or to read files."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Stop before any of it is read."""
        raise ValueError("it defines entities or a document type, which CVAT does not")


def read(source: str, wanted: Wanted) -> Source:
    """annotations.xml, or the folder that holds it; shapes lie over each other as in CVAT."""
    root = existing(source)
    path = root / "annotations.xml" if root.is_dir() else root
    top = _parse(path)
    folder = path.parent
    pictures = PictureFiles(Path(wanted.images) if wanted.images else folder)
    names = [(label.findtext("name") or "").strip() for label in top.iterfind("./meta//labels/label")]
    names = list(dict.fromkeys(name for name in names if name))
    faults, notes, entries = Faults(), Faults(), []
    for image in top.iterfind("image"):
        name = image.get("name", "?")
        for shape in image:
            if shape.tag in _NO_AREA:
                notes.add(FileFault.of(NO_AREA, f"{shape.tag} in {name}"))
            elif (label := shape.get("label")) and label not in names:
                names.append(label)
        try:
            with broken_told(name):
                entries.append(_entry(image, name, pictures, names))
        except FileFault as fault:
            faults.add(fault)
    return Source(names, entries, "background", faults=faults, notes=notes)


def _parse(path: Path) -> Element:
    try:
        top = ElementTree.parse(path, ElementTree.XMLParser(target=_PlainTree())).getroot()
    except (OSError, LookupError, ElementTree.ParseError, ValueError) as error:
        raise JoemError(f"{path} cannot be read as XML: {error}.") from None
    if top is None or top.tag != "annotations" or top.find("track") is not None:
        raise JoemError(f"{path} is not in the format 'CVAT for images 1.1': export the task or project as that.")
    return top


def _entry(image: Element, name: str, pictures: PictureFiles, names: Sequence[str]) -> Entry:
    size = (int(image.attrib["height"]), int(image.attrib["width"]))
    shapes = [shape for shape in image if shape.tag not in _NO_AREA]
    subset = image.get("subset", "")
    split = split_of_folder(Path(name).parent) if subset.lower() in _OWN else split_of_folder(subset) or subset
    draw = partial(_draw, shapes=shapes, names=names, name=name)
    return Entry(without_suffix(name), pictures.find(name), draw, size, split)


def _draw(size: Size, *, shapes: Sequence[Element], names: Sequence[str], name: str) -> Labels:
    numbered = enumerate(shapes, 1)
    drawn = all_drawn((f"{name}, shape {number}", partial(_shape, shape, names, size)) for number, shape in numbered)
    return paint(size, [(label, regions) for _, label, regions in sorted(drawn, key=lambda each: each[0])])


def _shape(shape: Element, names: Sequence[str], size: Size) -> tuple[int, int, list[Region]]:
    """Its level, its label and its pixels."""
    return int(shape.get("z_order", "0")), names.index(shape.attrib["label"]), [_region(shape, size)]


def _region(shape: Element, size: Size) -> Region:
    given: Mapping[str, str] = shape.attrib
    degrees = float(given.get("rotation", "0"))
    if shape.tag == "polygon":
        corners = [[float(number) for number in corner.split(",")] for corner in given["points"].split(";")]
        return polygon(corners, size)
    if shape.tag == "box":
        left, top, right, bottom = (float(given[side]) for side in ("xtl", "ytl", "xbr", "ybr"))
        return box(left, top, right, bottom, degrees, size)
    if shape.tag == "ellipse":
        x, y, across, down = (float(given[number]) for number in ("cx", "cy", "rx", "ry"))
        return ellipse(x, y, across, down, degrees, size)
    if shape.tag == "mask":
        left, top, width, height = (int(given[number]) for number in ("left", "top", "width", "height"))
        if min(left, top, width, height) < 0 or top + height > size[0] or left + width > size[1]:
            raise ValueError("its mask is outside of the picture")
        counts = [int(number) for number in given["rle"].split(",")]
        return Region(top, left, run_lengths(counts, (height, width), "rows"))
    raise ValueError(f"shapes of the kind {shape.tag!r} are not known")
