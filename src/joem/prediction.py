"""Many pictures at once: finding them, segmenting them, a folder of results for each or rows for many."""

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem import parquet_files, progress
from joem.errors import BadUsage, JoemError
from joem.parquet_files import Row
from joem.picture_files import SUFFIXES
from joem.saving import Saving, claimed, pending, save_folder

if TYPE_CHECKING:  # torch is not needed to find pictures
    from joem.asking import Asked
    from joem.examples import Points
    from joem.result import Result
    from joem.segmenter import Segmenter


@dataclass(frozen=True)
class Request:
    """What to segment pictures into; see `Scene.segment` and `Segmenter.encode`.

    Args:
        names: class names; the model's own if None.
        rule: one of `decision.RULES`; the model's own if None.
        values: parameters of rules by name; the model's own where there is none.
        longest: encode a copy whose longer side has this many pixels.
        background: add the model's background class where the names have none.
        strict_words: refuse words that are in no dictionary at hand, instead of noting them.
        min_score: pixels whose score is below it become "other".
        points: examples on some of the pictures, by their resolved paths.
        refine: let outlines follow the picture's own edges.
        save: what to write beside the three files of every result, see `exchange.WRITERS`.
    """

    names: "Asked" = None
    rule: str | None = None
    values: Mapping[str, float | None] = field(default_factory=dict)
    longest: int | None = None
    background: bool = True
    strict_words: bool = False
    min_score: float | None = None
    save: Sequence[str] = ()
    points: "Mapping[Path, Points]" = field(default_factory=dict)
    refine: bool = False

    def identity(self) -> dict[str, Any]:
        """What makes a result what it is besides the model, in a form that JSON can hold."""
        names = self.names if self.names is None or isinstance(self.names, str) else list(self.names)
        points = {
            str(path): {name: list(map(list, at)) for name, at in each.items()} for path, each in self.points.items()
        }
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "names": names,
            "points": points,
            "values": dict(self.values),
            "save": list(self.save),
        }

    def check(self, segmenter: "Segmenter") -> None:
        """Refuse what cannot be done with any picture, without the visual encoder."""
        from joem.pictures import check_longest
        from joem.result import check_min_score

        segmenter.classes(self.names, self.background, self.strict_words)
        check_min_score(self.min_score, segmenter.model.recipe.decision.replace(self.rule, **self.values))
        check_longest(self.longest)

    def run(self, segmenter: "Segmenter", picture: Path, content: bytes | None = None) -> "Result":
        """Segment one picture; `content` is that of its file, where somebody has read it."""
        scene = segmenter.encode(picture if content is None else content, self.longest)
        options: dict[str, Any] = {"background": self.background, "strict_words": self.strict_words, **self.values}
        points = self.points.get(picture.resolve())
        options |= {"points": points, "min_score": self.min_score, "refine": self.refine}
        return scene.segment(self.names, self.rule, **options)


@dataclass(frozen=True)
class Done:
    """A picture, the folder or Parquet file of its results, and what was found (`Result.to_dict`) or why it failed."""

    picture: Path
    folder: Path
    found: dict[str, Any] | None = None
    error: str | None = None


def find_pictures(sources: Iterable[str], listed: Iterable[str] = (), results: Path | None = None) -> list[Path]:
    """Picture files in the order they are named, each once.

    Args:
        sources: files, folders (searched with their subfolders), patterns such as "photos/**/*.jpg", or "-".
        listed: the lines that "-" stands for, a source on each.
        results: a folder of results, whose files are not found in folders and by patterns.
    """
    found: dict[Path, None] = {}
    for source in sources:
        if source == "-":
            lines = [line.strip() for line in listed]
            found |= dict.fromkeys(find_pictures([line for line in lines if line not in {"", "-"}], results=results))
        else:
            found |= dict.fromkeys(_pictures_of(source, results))
    return list(found)


def _pictures_of(source: str, results: Path | None) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        found, expected = path.rglob("*"), f"files that end in {', '.join(sorted(SUFFIXES))}"
        pictures = [file for file in found if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")]
    elif not path.exists() and glob.has_magic(source):
        pictures, expected = [Path(match) for match in glob.glob(source, recursive=True)], "files that match"
    else:
        return [path]  # if there is no such file, reading it will say so
    own = results.resolve() if results else None
    pictures = sorted(file for file in pictures if file.is_file() and own not in file.resolve().parents)
    if not pictures:
        raise BadUsage(f"There are no pictures in {source}: expected {expected}.")
    return pictures


def predict(
    segmenter: "Segmenter",
    pictures: Sequence[Path],
    request: Request,
    out: Path,
    jobs: int = 1,
    saving: Saving | None = None,
) -> Iterator[Done]:
    """Segment pictures and save each below `out`; a picture that fails stops no other.

    Args:
        segmenter: the model.
        pictures: picture files.
        request: what to segment them into.
        out: folder for the results: one folder per picture, named after its file, or Parquet files.
        jobs: how many pictures are worked on at the same time.
        saving: how results are kept, and which pictures are left out; a folder for every picture if None.
    """
    if jobs < 1:
        raise BadUsage(f"--jobs must be at least 1, got {jobs}.")
    saving = saving or Saving()
    request.check(segmenter)  # one that cannot be met fails here, at once
    with claimed(out, saving) if saving.in_parquet else nullcontext():
        work = partial(_predict_one, segmenter, request, saving)
        found = progress.in_threads(work, pending(pictures, out, saving), "segmenting", jobs)
        yield from _in_parts(found, out, saving) if saving.in_parquet else (done for done, _ in found)


def _predict_one(
    segmenter: "Segmenter", request: Request, saving: Saving, where: tuple[Path, Path]
) -> tuple[Done, Row | None]:
    """Segment a picture and fill its folder; give what was found, and its row."""
    from joem.exchange import WRITERS

    picture, folder = where

    def write(draft: Path) -> None:
        result.save(draft)
        for kind in request.save:
            WRITERS[kind](result, draft, picture.name)

    try:
        result = request.run(segmenter, picture)
        if saving.in_folders:
            save_folder(folder, saving, picture, write)
        row = parquet_files.row(result, str(picture)) if saving.in_parquet else None
    except JoemError as error:
        return Done(picture, folder, error=str(error)), None
    except (OSError, MemoryError, RuntimeError) as error:  # torch's lack of memory is a RuntimeError
        return Done(picture, folder, error=f"{picture}: {error}"), None
    return Done(picture, folder, result.to_dict()), row


def _in_parts(found: Iterable[tuple[Done, Row | None]], out: Path, saving: Saving) -> Iterator[Done]:
    """Write rows into files as there are enough of them; a picture is given when its row is written."""
    waiting: list[tuple[Done, Row]] = []

    def write() -> list[Done]:
        rows = [row for _, row in waiting]
        name = parquet_files.file_name([row["picture"] for row in rows], saving.shard)
        file = parquet_files.write(out / name, rows, saving.identity)
        written = [replace(done, folder=file) for done, _ in waiting]
        waiting.clear()
        return written

    try:
        for done, row in found:
            if row is None:
                yield done
                continue
            waiting.append((done, row))
            if len(waiting) >= saving.rows:
                yield from write()
    except BaseException:
        if waiting:  # whoever stops keeps what is done
            write()
        raise
    if waiting:
        yield from write()
