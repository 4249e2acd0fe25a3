"""The files of a sweep."""

import os
from collections.abc import Mapping
from pathlib import Path

from joem import calibration
from joem.calibration import Curve
from joem.engine.files import write_json, write_text
from joem.recipe import DecisionSettings
from joem.report import plots


def save(curves: Mapping[str, Curve], own: DecisionSettings, out: Path) -> bool:
    """Write curves.json, curves.csv and the plots; of several processes the first writes, and only it gives True.

    `own` holds the sigma and gamma that are marked on the plots.
    """
    if int(os.environ.get("RANK", "0")) > 0:
        return False
    chosen = {rule: float(getattr(own, curve.parameter)) for rule, curve in curves.items()}
    write_json(out / "curves.json", [curve.to_dict() for curve in curves.values()])
    write_text(out / "curves.csv", calibration.to_csv(curves.values()))
    plots.save(plots.trade_off(curves, chosen), out / "trade-off.png")
    plots.save(plots.errors(curves, chosen), out / "errors.png")
    for rule, curve in curves.items():
        plots.save(plots.by_value(curve, chosen[rule]), out / f"{rule}.png")
    return True
