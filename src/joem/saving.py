"""How the results of many pictures are kept, and which of them are there already, whole, whatever was killed before."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from joem import parquet_files
from joem.errors import BadUsage, JoemError
from joem.io import read_json, whole_folder, write_json
from joem.locking import FileLock
from joem.shards import Shard

Format = Literal["folders", "parquet", "both"]

MARK = ".done.json"
"""What is written last into the folder of a picture: its result is whole."""


@dataclass(frozen=True)
class Saving:
    """How to keep results.

    Args:
        format: a folder for every picture, Parquet files of many pictures, or both.
        rows: pictures in a Parquet file.
        shard: which of the pictures are ours.
        skip_done: leave out the pictures whose results are there; they are known by their paths and by `identity`.
        identity: everything that makes a result what it is, in a form that JSON can hold.
    """

    format: Format = "folders"
    rows: int = 1000
    shard: Shard = field(default_factory=Shard)
    skip_done: bool = False
    identity: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise BadUsage(f"--rows must be at least 1, got {self.rows}.")

    @property
    def in_folders(self) -> bool:
        """Whether every picture has a folder."""
        return self.format != "parquet"

    @property
    def in_parquet(self) -> bool:
        """Whether rows are written."""
        return self.format != "folders"


def pending(pictures: Sequence[Path], out: Path, saving: Saving) -> list[tuple[Path, Path]]:
    """The pictures of our shard that are left to do, each with its folder."""
    todo = [each for each in zip(pictures, folders(pictures, out), strict=True) if saving.shard.has(str(each[0]))]
    if saving.in_parquet:
        done = finished(out, saving)  # with folders as well, a row is written after its folder
        return [each for each in todo if str(each[0]) not in done]
    if not saving.skip_done:
        return todo
    return [(picture, folder) for picture, folder in todo if not _is_done(picture, folder, saving)]


def finished(out: Path, saving: Saving) -> set[str]:
    """The pictures that Parquet files in a folder have; it is an error if they are not to be skipped."""
    files = sorted(out.glob("*.parquet"))
    chosen = relevant([file.name for file in files], saving)
    found = (parquet_files.pictures(file, saving.identity, str(file)) for file in files if file.name in chosen)
    return {picture for pictures in found for picture in pictures}


def relevant(names: Iterable[str], saving: Saving) -> set[str]:
    """Which Parquet files may have pictures of our shard: its own, and all others if some are of another division."""
    every = set(names)
    own = {name for name in every if name.startswith(f"{saving.shard}-")}
    others = {name for name in every if name[5:14] != str(saving.shard)[5:14]}  # -of-00008
    if (own or others) and not saving.skip_done:
        raise BadUsage(
            "There are Parquet files of an earlier run already: add --skip-done to go on, or give another --out."
        )
    return every if others else own


def save_folder(folder: Path, saving: Saving, picture: Path, write: Any) -> None:
    """Let `write` fill the folder of a picture; it is whole where it has its mark."""
    with whole_folder(folder, MARK) as draft:
        write(draft)
        write_json(draft / MARK, {"picture": str(picture), "identity": saving.identity}, lasting=False)


def _is_done(picture: Path, folder: Path, saving: Saving) -> bool:
    if not (folder / MARK).is_file():
        return False
    return bool(read_json(folder / MARK) == {"picture": str(picture), "identity": dict(saving.identity)})


@contextmanager
def claimed(out: Path, saving: Saving) -> Iterator[None]:
    """Refuse to work on a shard that another process works on, whose rows would be written twice."""
    lock = FileLock(out / f".{saving.shard}.lock")
    if not lock.take():
        raise JoemError(f"Shard {saving.shard} of {out} is being worked on by {lock.holder()}: wait, or give --shard.")
    try:
        yield
    finally:
        lock.release()


def folders(pictures: Iterable[Path], out: Path) -> list[Path]:
    """One folder per picture, numbered where names repeat.

    >>> [folder.name for folder in folders([Path("a.jpg"), Path("x/a.png"), Path("a-2.png")], Path("out"))]
    ['a', 'a-2', 'a-2-2']
    """
    used: dict[str, int] = {}
    found = []
    for picture in pictures:
        name, number = picture.stem, used.get(picture.stem.casefold(), 0)
        while name.casefold() in used:  # some file systems do not tell A from a
            number += 1
            name = f"{picture.stem}-{number}"
        used[name.casefold()] = 1
        used[picture.stem.casefold()] = max(number, 1)
        found.append(out / name)
    return found
