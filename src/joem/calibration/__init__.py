"""Seen bias made visible and corrected: one-pass sweeps, and parameters chosen by holding out seen classes."""

from joem.calibration.curves import (
    PAPER_GAMMAS,
    PAPER_SIGMAS,
    PARAMETER,
    SIGMAS,
    Curve,
    Sweep,
    gamma_grid,
    join_processes,
    sweep,
    to_csv,
)
from joem.calibration.tuning import LAMBDAS, Choice, Tuning, cross_validate, fold_problems, tune

__all__ = [
    "LAMBDAS",
    "PAPER_GAMMAS",
    "PAPER_SIGMAS",
    "PARAMETER",
    "SIGMAS",
    "Choice",
    "Curve",
    "Sweep",
    "Tuning",
    "cross_validate",
    "fold_problems",
    "gamma_grid",
    "join_processes",
    "sweep",
    "to_csv",
    "tune",
]
