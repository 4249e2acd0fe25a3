"""The files of a sweep."""

from collections.abc import Mapping
from pathlib import Path

from joem import calibration, parallel
from joem.calibration import Curve
from joem.decision import Decision
from joem.io import write_json, write_text
from joem.report import plots


def save(curves: Mapping[str, Curve], decision: Decision, out: Path) -> None:
    """Write curves.json, curves.csv and the plots; of several processes the first writes.

    `decision` holds the values that are marked on the plots.
    """
    if not parallel.is_first():
        return
    write_json(out / "curves.json", [curve.to_dict() for curve in curves.values()])
    write_text(out / "curves.csv", calibration.to_csv(curves.values()))
    plots.save(plots.trade_off(curves, decision), out / "trade-off.png")
    plots.save(plots.errors(curves, decision), out / "errors.png")
    for rule, curve in curves.items():
        plots.save(plots.by_value(curve, decision), out / f"{rule}.png")
