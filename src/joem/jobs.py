"""Run what is missing, keep what is done, go on after a stop: folds, seeds, rows of tables, the paper's figures.

A job is work whose result is one JSON file; the file also says what made it, so that nobody takes it for something
else. Any number of processes and machines that share the folder may run the same jobs at once: whoever works on one
holds a lock on a file beside it, which the system frees when the process ends, however it ends. Processes that work
together (torchrun) do each job together; the first of them reads, locks and writes for all.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from joem import parallel, progress
from joem.errors import BadUsage, Interrupted, JoemError
from joem.io import read_json, write_json, writing
from joem.locking import FileLock

Key = TypeVar("Key")
Result = dict[str, Any]

_PAUSE = 1.0  # seconds between two looks at what others are working on
_TOLD = 3  # differences between two identities that an error lists


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Args:
        file: where its result is kept; None keeps nothing.
        identity: everything that makes the result what it is, in a form that JSON can hold.
        work: gives the result, in a form that JSON can hold.
        leftovers: folders that only unfinished work needs; they are removed when the result is there.
    """

    file: Path | None
    identity: Mapping[str, Any]
    work: Callable[[], Result]
    leftovers: tuple[Path, ...] = ()


def run_all(
    jobs: Mapping[Key, Job], title: str = "jobs", failures: dict[Key, JoemError] | None = None
) -> dict[Key, Result]:
    """The results of many jobs, once all of them are done, here or by other processes that share the folder.

    Args:
        jobs: any key -> job, in the order in which to work.
        title: what the progress display calls them.
        failures: where to note the errors of jobs while the others go on; without it the first one is raised. A
            stop by the user is always raised.

    Returns:
        key -> result of those that did not fail.
    """
    results: dict[Key, Result] = {}
    left, step = dict(jobs), _kept  # a file of another identity is told before any work begins
    with progress.show(title, len(jobs)) as advance:
        while left:
            before = len(left)
            for key, job in list(left.items()):
                try:
                    found = step(job)
                except Interrupted:
                    raise
                except JoemError as error:
                    if failures is None:
                        raise
                    failures[key] = error
                    progress.say(f"joem: one of {len(jobs)} {title} failed, the others go on: {error}")
                else:
                    if found is None:
                        continue
                    results[key] = found
                del left[key]
                advance()
            if step is _attempt and len(left) == before:
                time.sleep(_PAUSE)  # others work on all that is left
            step = _attempt
    return {key: results[key] for key in jobs if key in results}


def _attempt(job: Job) -> Result | None:
    """The result, worked for if nobody has done so; None while somebody else works for it."""
    with _claimed(job.file) as mine:
        if not mine:
            return None
        found = _kept(job)  # by somebody who had the lock before
        return _write(job, job.work()) if found is None else found


def _kept(job: Job) -> Result | None:
    """The result in the job's file, if it is there."""
    return parallel.from_first(lambda: _read(job))


def _read(job: Job) -> Result | None:
    # A listing asks a network file system anew, where `exists` may answer from memory.
    if job.file is None or not job.file.parent.is_dir() or job.file.name not in os.listdir(job.file.parent):
        return None
    kept = read_json(job.file)
    old, new = kept.get("identity") if isinstance(kept, dict) else None, json.loads(json.dumps(job.identity))
    if old != new or "result" not in kept:
        told = "; ".join(list(differences(old, new))[:_TOLD])
        raise BadUsage(
            f"{job.file} holds the result of another recipe ({told}): give another --out, or remove {job.file.parent}."
        )
    _tidy(job.file, job.leftovers)
    result: Result = kept["result"]
    return result


def _write(job: Job, found: Result) -> Result:
    """Keep a result; what is given back is the same as what will be read."""

    def write() -> Result:
        kept = {"identity": job.identity, "result": found}
        if job.file is not None:
            with writing(job.file):
                write_json(job.file, kept)
            _tidy(job.file, job.leftovers)
        result: Result = json.loads(json.dumps(found))
        return result

    return parallel.from_first(write)


def _tidy(file: Path, leftovers: tuple[Path, ...]) -> None:
    """Remove what is of no use beside a result; whoever opened the lock before that gets it and finds the result."""
    _lock_file(file).unlink(missing_ok=True)
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _claimed(file: Path | None) -> Iterator[bool]:
    """Whether the job of a file is ours, and nobody else's until the end of the block."""
    if file is None:
        yield True
        return
    lock = FileLock(_lock_file(file))

    def take() -> bool:
        with writing(lock.path):
            return lock.take()

    try:
        yield parallel.from_first(take)
    finally:
        lock.release()


def _lock_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.lock")


def differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """The settings in which two identities differ.

    >>> list(differences({"train": {"seed": 0, "epochs": 2}}, {"train": {"seed": 1, "epochs": 2}}))
    ['train.seed was 0, now 1']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}" if name else str(key))
    elif old != new:
        yield f"{name or 'identity'} was {old!r}, now {new!r}"
