"""Many pictures at once: finding them, segmenting them, one folder of results for each."""

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage, JoemError
from joem.picture_files import SUFFIXES

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

    def check(self, segmenter: "Segmenter") -> None:
        """Refuse what cannot be done with any picture, without the visual encoder."""
        from joem.pictures import check_longest
        from joem.result import check_min_score

        segmenter.classes(self.names, self.background, self.strict_words)
        check_min_score(self.min_score, segmenter.model.recipe.decision.replace(self.rule, **self.values))
        check_longest(self.longest)

    def run(self, segmenter: "Segmenter", picture: Path) -> "Result":
        """Segment one picture."""
        scene = segmenter.encode(picture, self.longest)
        options: dict[str, Any] = {"background": self.background, "strict_words": self.strict_words, **self.values}
        points = self.points.get(picture.resolve())
        options |= {"points": points, "min_score": self.min_score, "refine": self.refine}
        return scene.segment(self.names, self.rule, **options)


@dataclass(frozen=True)
class Done:
    """A picture, the folder its results are in, and what was found (`Result.to_dict`) or why it failed."""

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
    segmenter: "Segmenter", pictures: Sequence[Path], request: Request, out: Path, jobs: int = 1
) -> Iterator[Done]:
    """Segment pictures and save each into a folder of its own below `out`; a picture that fails stops no other.

    Args:
        segmenter: the model.
        pictures: picture files.
        request: what to segment them into.
        out: folder for the results, one folder per picture, named after its file.
        jobs: how many pictures are worked on at the same time.
    """
    if jobs < 1:
        raise BadUsage(f"--jobs must be at least 1, got {jobs}.")
    from joem.exchange import WRITERS

    request.check(segmenter)  # one that cannot be met fails here, at once

    def work(picture: Path, folder: Path) -> Done:
        try:
            result = request.run(segmenter, picture)
            result.save(folder)
            for kind in request.save:
                WRITERS[kind](result, folder, picture.name)
        except JoemError as error:
            return Done(picture, folder, error=str(error))
        except (OSError, MemoryError, RuntimeError) as error:  # torch's lack of memory is a RuntimeError
            return Done(picture, folder, error=f"{picture}: {error}")
        return Done(picture, folder, result.to_dict())

    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(work, pictures, _folders(pictures, out))
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops listening waits for pictures under way only


def _folders(pictures: Iterable[Path], out: Path) -> list[Path]:
    """One folder per picture, numbered where names repeat.

    >>> [folder.name for folder in _folders([Path("a.jpg"), Path("x/a.png"), Path("a-2.png")], Path("out"))]
    ['a', 'a-2', 'a-2-2']
    """
    used: set[str] = set()
    folders = []
    for picture in pictures:
        name, number = picture.stem, 1
        while name.casefold() in used:  # some file systems do not tell A from a
            number += 1
            name = f"{picture.stem}-{number}"
        used.add(name.casefold())
        folders.append(out / name)
    return folders
