"""Where a model is: its two files, the folders they are looked for in, and the models in the box.

Nothing here imports torch, so that the command line can say at once that there is no model.
"""

import hashlib
from pathlib import Path

from joem import checksums
from joem.errors import BadUsage, JoemError

WEIGHTS, DESCRIPTION, EXAMPLES = "weights.safetensors", "model.json", "examples.safetensors"
"""The two files of a model's folder."""

DEFAULT_MODEL = "voc-names"
"""The model in the box that is used where none is named."""

BOX = Path(__file__).parent / "boxed"
"""The folder of the models in the box."""


def boxed() -> tuple[str, ...]:
    """Names of the models in the box."""
    return tuple(sorted(file.parent.name for file in BOX.glob(f"*/{DESCRIPTION}")))


def find_model(path: str | Path) -> Path:
    """The folder of a model: the path itself, its model/, its newest checkpoint, or the one in the box of that name."""
    given = Path(path)
    checkpoints = sorted((given / "checkpoints").glob("step-*"), reverse=True)
    for folder in (given, given / "model", *checkpoints, BOX / given):
        if (folder / DESCRIPTION).is_file():
            return folder
    raise JoemError(
        f"There is no model in {path}: expected a folder with {DESCRIPTION} and {WEIGHTS}, as joem train and joem "
        f"quickstart write it, or the name of a model in the box ({', '.join(boxed()) or 'this one has none'}). "
        "joem quickstart makes one in minutes."
    )


def fingerprint(path: str | Path) -> str:
    """SHA-256 of all files of a model, a folder's or those of an .onnx file: two that agree segment alike."""
    given = Path(path)
    if given.suffix == ".onnx":
        files = [given, given.with_suffix(".examples.safetensors")]
    else:
        files = [find_model(given) / name for name in (WEIGHTS, DESCRIPTION, EXAMPLES)]
    digests = [checksums.sha256(file) for file in files if file.is_file()]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def check_boxed(folder: Path) -> None:
    """Refuse a model in the box whose files are not those that were tested."""
    if folder.parent == BOX:
        checksums.check(folder, f"joem/boxed/{folder.name}", "Install joem again.")


def check_folder(path: str | Path) -> None:
    """Refuse to save a model where there is anything but another one: it would be lost."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise BadUsage(f"{folder} is a file, and a model is a folder: choose another place for it.")
    others = (
        sorted({file.name for file in folder.iterdir()} - {WEIGHTS, DESCRIPTION, EXAMPLES}) if folder.exists() else []
    )
    if others:
        raise BadUsage(
            f"{folder} holds {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}, which is no part of a "
            "model and would be lost: choose another folder, or move what is there."
        )
