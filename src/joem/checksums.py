"""SHA-256 of files: those of the user's, to know them again, and those of packages, which must be what was tested.

`sha256sums.txt` lists the files of weights and word vectors that joem takes from packages, its own among them, in the
form of the program sha256sum: in the folder of the installed packages, `sha256sum --check joem/sha256sums.txt` checks
them all.
"""

import hashlib
from functools import cache, lru_cache
from pathlib import Path

from joem.errors import JoemError

LIST = Path(__file__).with_name("sha256sums.txt")
"""The list of known files."""


def sha256(path: Path) -> str:
    """SHA-256 of a file, computed once as long as the file does not change."""
    status = path.stat()
    return _sha256(path.resolve(), status.st_size, status.st_mtime_ns)


@lru_cache
def _sha256(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def known() -> dict[str, str]:
    """File -> SHA-256, files as package/path."""
    pairs = (line.split(maxsplit=1) for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: digest for digest, name in pairs}


def check(root: Path, package: str, advice: str = "") -> None:
    """Refuse a package whose files are not those that are listed of it.

    Args:
        root: the folder of the package.
        package: its name, as it is imported; a folder of it may follow after a slash.
        advice: what to do about it, a sentence; to install the package again if empty.
    """
    advice = advice or f"Install it again: pip install --force-reinstall --no-deps {package}"
    for name, expected in known().items():
        if not name.startswith(f"{package}/"):
            continue
        path = root / name.removeprefix(f"{package}/")
        if not path.is_file():
            raise JoemError(f"{path} is missing. {advice}")
        if sha256(path) != expected:
            raise JoemError(
                f"{path} is not the file that joem was tested with: its SHA-256 is {sha256(path)}, expected "
                f"{expected}. {advice}"
            )
