"""Datasets of Hugging Face, by name, from a folder or from a Parquet file, with columns of pictures and of masks."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from joem.data.faults import UNREADABLE, FileFault
from joem.data.importing.annotated import Entry, Labels, Source, Wanted, read_content, split_of_folder, without_suffix
from joem.data.importing.class_table import ClassTable, read_table
from joem.data.importing.drawing import Size
from joem.errors import BadUsage, JoemError
from joem.picture_files import upright

_IMAGES = ("image", "img", "picture", "pixel_values")
_MASKS = ("mask", "label", "labels", "annotation", "annotations", "segmentation", "segmentation_mask", "semantic_mask")


def read(source: str, wanted: Wanted) -> Source:
    """A dataset; the classes come from its features, from id2label.json in its folder, or as wanted."""
    datasets = _load(source)
    features = next(iter(datasets.values())).features
    image = _column(features, wanted.images, _IMAGES, "pictures", "--images")
    mask = _column(features, wanted.masks, _MASKS, "masks", "--masks")
    table = _classes(source, features, wanted.names)
    entries: list[Entry] = []
    lock = Lock()
    for key, dataset in datasets.items():
        rows = _undecoded(dataset, image, mask)
        split = (split_of_folder(key) or key) if len(datasets) > 1 else None
        for index, file in enumerate(_file_names(rows, image)):
            name = without_suffix(file.replace("\\", "/").rpartition("/")[2]) if file else f"{key}-{index:06d}"
            draw = partial(_draw, table=table, take=partial(_take, rows, index, mask, lock), name=name)
            entries.append(Entry(name, partial(_take, rows, index, image, lock), draw, split=split))
    return Source(table.names, entries, "void")


def _load(source: str) -> Mapping[str, Any]:
    """The splits of a dataset by name."""
    try:
        import datasets
    except ImportError:
        raise JoemError('Reading this needs the package datasets: run pip install "joem[huggingface]".') from None
    path = Path(source)
    try:
        if path.is_file():
            found = datasets.load_dataset(path.suffix.removeprefix("."), data_files=str(path))
        elif any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(str(path))
        else:
            name, _, configuration = (source, "", "") if path.is_dir() else source.partition(":")
            found = datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the package raises errors of many kinds
        raise JoemError(f"The dataset {source!r} cannot be loaded: {str(error).rstrip('.')}.") from None
    return found if isinstance(found, dict) else {"train": found}


def _column(features: Mapping[str, Any], given: str | None, usual: tuple[str, ...], what: str, option: str) -> str:
    """The column of pictures or masks: the one that is given, or the first usual name that is a column of pictures."""
    from datasets import Image

    pictures = [name for name, feature in features.items() if isinstance(feature, Image)]
    found = next((name for name in ([given] if given else usual) if name in pictures), None)
    if found is None:
        expected = f"no column {given!r}" if given else f"none of the columns {', '.join(usual)}"
        raise BadUsage(
            f"The dataset has {expected} for the {what}; its columns of pictures are: {', '.join(pictures) or 'none'}. "
            f"Say which one with {option} COLUMN."
        )
    return found


def _classes(source: str, features: Mapping[str, Any], given: str | None) -> ClassTable:
    """The classes: as given, in id2label.json, or of a column with lists of class labels."""
    beside = Path(source) / "id2label.json"
    if given is not None or beside.is_file():
        return read_table(given if given is not None else str(beside))
    names = next(_class_labels(dict(features)), None)
    if names is None:
        raise BadUsage(
            "The dataset does not say what its labels mean: give --names a file, such as the id2label.json that many "
            "datasets come with, or a text file with a class in each line, or the names with commas between them."
        )
    return ClassTable.of_names(names)


def _class_labels(feature: Any, in_list: bool = False) -> Iterator[list[str]]:
    """The names of the class labels in lists; one that is not in a list is of the whole picture."""
    if isinstance(feature, Mapping):
        for part in feature.values():
            yield from _class_labels(part, in_list)
    elif isinstance(feature, list):
        yield from _class_labels(feature[0], in_list=True)
    elif hasattr(feature, "feature"):
        yield from _class_labels(feature.feature, in_list=True)
    elif in_list and hasattr(feature, "int2str"):
        yield list(feature.names)


def _undecoded(dataset: Any, *columns: str) -> Any:
    """The dataset with the files of pictures and masks as they are."""
    from datasets import Image

    for column in columns:
        dataset = dataset.cast_column(column, Image(decode=False))
    return dataset.select_columns(list(dict.fromkeys(columns)))


def _file_names(rows: Any, column: str) -> Iterator[str | None]:
    """The names of all picture files, None where one has none, without reading the pictures."""
    for batch in rows.with_format("arrow").iter(batch_size=1000):
        for chunk in batch.column(column).chunks:
            yield from chunk.field("path").to_pylist()


def _take(rows: Any, index: int, column: str, lock: Lock) -> bytes:
    """The content of a picture file."""
    with lock:
        found = rows[index][column]
    if not found:
        raise FileFault.of(UNREADABLE, f"row {index} (it has nothing in the column {column!r})")
    content: bytes | None = found["bytes"]
    return content if content is not None else Path(found["path"]).read_bytes()


def _draw(size: Size, *, table: ClassTable, take: Callable[[], bytes], name: str) -> Labels:
    title = f"mask of {name}"
    return table.read_mask(upright(read_content(take(), title)), title, by_colour=False)
