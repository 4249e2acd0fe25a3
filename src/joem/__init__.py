"""Segment pictures into classes named by words, including classes nobody ever labelled."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage, JoemError, LeakageError
from joem.vocabulary import Vocabulary

if TYPE_CHECKING:
    from joem import (
        calibration,
        data,
        decision,
        engine,
        losses,
        methods,
        models,
        onnx,
        prediction,
        protocols,
        recipe,
        report,
        scores,
        semantics,
        studies,
    )
    from joem.result import Result
    from joem.scene import Scene
    from joem.segmenter import Segmenter

__version__ = "0.1.0"

__all__ = [
    "BadUsage",
    "JoemError",
    "LeakageError",
    "Result",
    "Scene",
    "Segmenter",
    "Vocabulary",
    "calibration",
    "data",
    "decision",
    "engine",
    "losses",
    "methods",
    "models",
    "onnx",
    "prediction",
    "protocols",
    "recipe",
    "report",
    "scores",
    "semantics",
    "studies",
]

_DEFINED_IN = {"Result": "joem.result", "Scene": "joem.scene", "Segmenter": "joem.segmenter"}


def __getattr__(name: str) -> Any:
    """Modules load when used, so that importing joem does not import torch."""
    if name in _DEFINED_IN:
        return getattr(import_module(_DEFINED_IN[name]), name)
    if name in __all__:
        return import_module(f"joem.{name}")
    raise AttributeError(f"module 'joem' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})
