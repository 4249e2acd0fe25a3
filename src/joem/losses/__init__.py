"""Pure functions, one per equation: of the paper (`objective`) and of the systems it compares with (`compared`)."""

from joem.losses.labels import labelled_fraction, resized
from joem.losses.objective import (
    VARIANTS,
    boundary_aware_regression,
    center_regression,
    relations,
    seen_cross_entropy,
    semantic_consistency,
)

__all__ = [
    "VARIANTS",
    "boundary_aware_regression",
    "center_regression",
    "labelled_fraction",
    "relations",
    "resized",
    "seen_cross_entropy",
    "semantic_consistency",
]
