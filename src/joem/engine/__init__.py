"""The loop on Lightning Fabric, checkpoints, resume, stored maps and the one evaluation loop."""

from joem.engine.authors_files import import_checkpoint
from joem.engine.evaluation import Evaluation, Evaluator, PictureScores, Scoring, encoded, evaluate, run, validate
from joem.engine.fabric import launched, layout
from joem.engine.looks import trained_features
from joem.engine.memory import return_freed_memory, reuse_freed_memory
from joem.engine.new_class import add_class
from joem.engine.problem import Problem, open_problem
from joem.engine.starting import Forgetting, forgetting
from joem.engine.stored_maps import MapStore
from joem.engine.training import train
from joem.engine.verdict import verdict
from joem.errors import Interrupted
from joem.model import Model
from joem.model_folder import check_folder

__all__ = [
    "Evaluation",
    "Evaluator",
    "Forgetting",
    "Interrupted",
    "MapStore",
    "Model",
    "PictureScores",
    "Problem",
    "Scoring",
    "add_class",
    "check_folder",
    "encoded",
    "evaluate",
    "forgetting",
    "import_checkpoint",
    "launched",
    "layout",
    "open_problem",
    "return_freed_memory",
    "reuse_freed_memory",
    "run",
    "train",
    "trained_features",
    "validate",
    "verdict",
]
