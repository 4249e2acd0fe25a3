"""Seen bias made visible and corrected: one-pass sweeps, and parameters chosen by holding out seen classes."""

from joem.calibration.choosing import LAMBDAS, Choice, candidates, choose, fold_jobs, tune
from joem.calibration.folds import fold_problems, train_in
from joem.calibration.sweep import Curve, Sweep, new_sweeps, sweep, to_csv

__all__ = [
    "LAMBDAS",
    "Choice",
    "Curve",
    "Sweep",
    "candidates",
    "choose",
    "fold_jobs",
    "fold_problems",
    "new_sweeps",
    "sweep",
    "to_csv",
    "train_in",
    "tune",
]
