"""The loop on Lightning Fabric, checkpoints, resume and evaluation."""

from joem.engine.evaluation import Evaluation, evaluate, rank_dataset, rank_stored
from joem.engine.hypercolumns import MapStore
from joem.engine.memory import reuse_freed_memory
from joem.engine.model import Model, check_place
from joem.engine.problem import Problem, open_problem
from joem.engine.processes import from_first, gathered, place, share
from joem.engine.training import Interrupted, add_class, launched, layout, train

__all__ = [
    "Evaluation",
    "Interrupted",
    "MapStore",
    "Model",
    "Problem",
    "add_class",
    "check_place",
    "evaluate",
    "from_first",
    "gathered",
    "launched",
    "layout",
    "open_problem",
    "place",
    "rank_dataset",
    "rank_stored",
    "reuse_freed_memory",
    "share",
    "train",
]
