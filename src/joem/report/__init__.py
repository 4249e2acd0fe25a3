"""Tables, curves, overlays, and one self-contained HTML file that shows a run to a person."""

from joem.report import plots
from joem.report.page import Page
from joem.report.pictures import contact_sheet, named, overlay
from joem.report.plots import TITLES

__all__ = ["TITLES", "Page", "contact_sheet", "named", "overlay", "plots"]
