"""Seen bias made visible and corrected: one-pass sweeps, and parameters chosen by holding out seen classes."""

from joem.calibration.choosing import LAMBDAS, Choice, Folds, candidates, decide
from joem.calibration.folds import fold_problems, train_in
from joem.calibration.score_fit import ask_pixels, fit_score
from joem.calibration.sweep import Curve, Sweep, evaluate, new_sweeps, sweep, to_csv

__all__ = [
    "LAMBDAS",
    "Choice",
    "Curve",
    "Folds",
    "Sweep",
    "ask_pixels",
    "candidates",
    "decide",
    "evaluate",
    "fit_score",
    "fold_problems",
    "new_sweeps",
    "sweep",
    "to_csv",
    "train_in",
]
