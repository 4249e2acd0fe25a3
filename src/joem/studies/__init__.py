"""Every system on the same pictures, words, encoder and metric: runs what is missing, writes the paper's tables."""

from joem.compare.quality import Quality, generator_quality, generators, quality_table
from joem.compare.rows import TABLES, Row, Variant, rows
from joem.compare.runs import Comparison, own_recipes, run
from joem.compare.tables import class_table, latex, markdown, rule_table, scale, score_table, write

__all__ = [
    "TABLES",
    "Comparison",
    "Quality",
    "Row",
    "Variant",
    "class_table",
    "generator_quality",
    "generators",
    "latex",
    "markdown",
    "own_recipes",
    "quality_table",
    "rows",
    "rule_table",
    "run",
    "scale",
    "score_table",
    "write",
]
