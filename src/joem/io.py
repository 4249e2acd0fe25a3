"""Files and folders that are either whole or not there, so that whatever was interrupted can simply be run again."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem.errors import JoemError

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A draft to write to, which takes the place of `path` only when it has been written without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when everything in it has been written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield draft
        for file in draft.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        draft.chmod(0o755)  # mkdtemp makes it private
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
            path.replace(old / path.name)
            draft.replace(path)
            shutil.rmtree(old)
        else:
            draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a small file in one go."""
    with atomic_file(path) as draft:
        draft.write_text(text)


def write_json(path: Path, value: Any) -> None:
    """Write JSON in one go."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is an error that names it."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise JoemError(f"{path} cannot be read ({error}).") from error


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
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise JoemError(f"{path} cannot be read ({error}).") from error


def read_notes(path: Path) -> dict[str, str] | None:
    """The notes in a safetensors file; None where there is no such file or it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}
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
