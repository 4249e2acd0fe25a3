"""Whole studies: every system on the same pictures and words, the paper's tables and figures, the quickstart."""

from joem.studies.comparison import Comparison, compare
from joem.studies.costs import Plan, plan
from joem.studies.generators import Quality, generators, quality_table
from joem.studies.paper import JOBS, reproduce, scales, trainings
from joem.studies.request import SCALES, Request
from joem.studies.rows import TABLES, Row, Variant, load_own, own_recipes, rows
from joem.studies.tables import class_table, latex, markdown, rule_table, scale, score_table, write

__all__ = [
    "JOBS",
    "SCALES",
    "TABLES",
    "Comparison",
    "Plan",
    "Quality",
    "Request",
    "Row",
    "Variant",
    "class_table",
    "compare",
    "generators",
    "latex",
    "load_own",
    "markdown",
    "own_recipes",
    "plan",
    "quality_table",
    "reproduce",
    "rows",
    "rule_table",
    "scale",
    "scales",
    "score_table",
    "trainings",
    "write",
]
