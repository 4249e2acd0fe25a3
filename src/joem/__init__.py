"""Segment pictures into classes named by words, including classes nobody ever labelled."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage, JoemError, LeakageError
from joem.vocabulary import Vocabulary

if TYPE_CHECKING:
    from joem import (
        calibration,
        compare,
        data,
        decision,
        engine,
        export,
        losses,
        models,
        prediction,
        protocols,
        report,
        scores,
        semantics,
    )
    from joem.segmenter import Segmenter

__version__ = "0.1.0"

__all__ = [
    "BadUsage",
    "JoemError",
    "LeakageError",
    "Segmenter",
    "Vocabulary",
    "calibration",
    "compare",
    "data",
    "decision",
    "engine",
    "export",
    "losses",
    "models",
    "prediction",
    "protocols",
    "report",
    "scores",
    "semantics",
]


def __getattr__(name: str) -> Any:
    """Rooms load when used, so that importing joem does not import torch."""
    if name == "Segmenter":
        return import_module("joem.segmenter").Segmenter
    if name in __all__:
        return import_module(f"joem.{name}")
    raise AttributeError(f"module 'joem' has no attribute {name!r}")
