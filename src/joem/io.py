"""Files and folders that are either whole or not there, so that whatever was interrupted can simply be run again."""

import csv
import hashlib
import io
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage, JoemError

if TYPE_CHECKING:
    from torch import Tensor


_NO_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")  # in torch's words
_DRAFT, _OLD = ".draft-", ".old-"  # what stands between a name and what makes it unique


@contextmanager
def atomic_file(path: Path, lasting: bool = True) -> Iterator[Path]:
    """A draft to write to, which takes the place of `path` only when it has been written without an error.

    Args:
        path: the file to write.
        lasting: wait until it is on the disk, where it outlives a power cut; for what is quickly made again, False.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}{_DRAFT}{os.getpid()}-{threading.get_ident()}")
    try:
        yield draft
        if lasting:
            _flush(draft)
        draft.replace(path)
        if lasting:
            _flush(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when everything in it has been written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}{_DRAFT}", dir=path.parent))
    try:
        yield draft
        for each in (*draft.rglob("*"), draft):
            _flush(each)
        draft.chmod(0o755)  # mkdtemp makes it private
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}{_OLD}", dir=path.parent))
            path.replace(old / path.name)
            draft.replace(path)
            shutil.rmtree(old)
        else:
            draft.replace(path)
        _flush(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def whole_folder(path: Path, mark: str) -> Iterator[Path]:
    """A draft of a folder, whose files take the place of others of their names and leave the rest as it is.

    A folder that is not there appears whole. In one that is there `mark`, a file of the draft, goes first and comes
    last: what is under it is whole, whoever was killed. After a power cut it may not be: waiting for the disk with
    every folder would take longer than all the rest. One process at a time may write the folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same name every time, so that what a killed writer left is found without a look at all of the folder.
    draft = path.with_name(f"{_DRAFT}{hashlib.sha256(path.name.encode(errors='surrogateescape')).hexdigest()[:16]}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        if not path.exists():
            draft.replace(path)
        else:
            (path / mark).unlink(missing_ok=True)
            for each in sorted(draft.iterdir(), key=lambda file: file.name == mark):
                if (path / each.name).is_dir():
                    shutil.rmtree(path / each.name)
                each.replace(path / each.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def remove_drafts(folder: Path) -> None:
    """Remove what writers that were killed left in a folder, where no other process writes now."""
    for draft in folder.glob(f".*{_DRAFT}*"):
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
    for old in folder.glob(f".*{_OLD}*"):
        for kept in old.iterdir():
            if not (folder / kept.name).exists():  # killed after the old one was moved, before the new one was
                kept.replace(folder / kept.name)
        shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    """Wait until a file, or the list of what is in a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """What the disk refuses, as an error that processes can tell each other."""
    try:
        yield
    except OSError as error:
        raise JoemError(
            f"{path} cannot be written to ({error}): make room there, or choose another --out. The same command goes "
            "on where it stopped; joem train needs --resume for that."
        ) from error


def write_text(path: Path, text: str, lasting: bool = True) -> None:
    """Write a small file in one go; `lasting` as in `atomic_file`."""
    with atomic_file(path, lasting) as draft:
        draft.write_text(text, encoding="utf-8")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    r"""Rows as the text of a CSV file.

    >>> csv_text([["name", "value"], ["a, b", None]])
    'name,value\r\n"a, b",\r\n'
    """
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def write_json(path: Path, value: Any, lasting: bool = True) -> None:
    """Write JSON in one go; `lasting` as in `atomic_file`."""
    write_text(path, json.dumps(value, indent=2) + "\n", lasting)


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is an error that names it."""
    with damage_told(path):
        return json.loads(path.read_bytes())  # any of the encodings that JSON has, with or without a byte order mark


@contextmanager
def damage_told(name: Path | str, advice: str = "") -> Iterator[None]:
    """Whatever reading a file raises, as an error that names it; errors that say what to do already pass.

    Args:
        name: what to call the file.
        advice: what to do about it, a sentence.
    """
    try:
        yield
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        if isinstance(error, JoemError) and not isinstance(error, BadUsage):
            raise
        reason = str(error).rstrip(".") or type(error).__name__
        if is_lack_of_memory(error):
            told = f"There is not enough memory for {name}"
        elif isinstance(error, OSError) and error.errno is not None:
            told = f"{name} cannot be read"
        else:
            told = f"{name} is damaged"
        raise JoemError(f"{told}: {reason}. {advice}".rstrip()) from None


def is_lack_of_memory(error: Exception) -> bool:
    """Whether an error is Python's or torch's word for too little memory."""
    return isinstance(error, MemoryError) or any(each in str(error) for each in _NO_MEMORY)


def require(found: Any, names: Iterable[str], path: Path) -> None:
    """Refuse what was read from a file where names that it should hold are missing."""
    wanted = list(names)
    missing = wanted if not isinstance(found, dict) else [name for name in wanted if name not in found]
    if missing:
        raise JoemError(
            f"{path} does not hold {', '.join(missing)}, which joem writes into it: take a whole copy of the model, or "
            "train it again."
        )


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read a safetensors file; a damaged file is an error that names it."""
    from safetensors.torch import load_file

    with damage_told(path):
        return load_file(path)


def read_notes(path: Path) -> dict[str, str] | None:
    """The notes in a safetensors file; None where there is no such file or it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError):
        return None


def read_noted(path: Path, notes: dict[str, str]) -> "dict[str, Tensor] | None":
    """The tensors of a safetensors file with these notes; None where there is none, or it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()} if file.metadata() == notes else None  # noqa: SIM118
    except (OSError, SafetensorError):
        return None


def write_tensors(path: Path, tensors: "dict[str, Tensor]", notes: dict[str, str] | None = None) -> None:
    """Write a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, path, notes)
    except SafetensorError as error:  # a full disk, for instance
        raise OSError(f"{path}: {error}") from error
    path.chmod(0o644)  # safetensors makes it private
