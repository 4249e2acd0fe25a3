"""Tables, curves, pictures, and one self-contained HTML file that shows a run to a person."""

from joem.report import plots
from joem.report.page import Page
from joem.report.sheets import contact_sheet, named, picture_sheet, unseen_first

__all__ = ["Page", "contact_sheet", "named", "picture_sheet", "plots", "unseen_first"]
