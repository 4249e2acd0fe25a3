"""Seen bias made visible and corrected: one-pass sweeps, and parameters chosen by holding out seen classes."""

from joem.calibration.choosing import LAMBDAS, Choice, Folds, candidates, decide
from joem.calibration.folds import fold_problems, train_in
from joem.calibration.pace import Pace, Paces, best_pace, score_of_trial
from joem.calibration.score_fit import ask_pixels, fit_score
from joem.calibration.sweep import Curve, Sweep, evaluate, new_sweeps, sweep, to_csv

__all__ = [
    "LAMBDAS",
    "Choice",
    "Curve",
    "Folds",
    "Pace",
    "Paces",
    "Sweep",
    "ask_pixels",
    "best_pace",
    "candidates",
    "decide",
    "evaluate",
    "fit_score",
    "fold_problems",
    "new_sweeps",
    "score_of_trial",
    "sweep",
    "to_csv",
    "train_in",
]
