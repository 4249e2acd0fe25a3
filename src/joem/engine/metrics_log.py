"""What a run writes down of its steps: metrics.csv, and TensorBoard's events if asked."""

import csv
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem.errors import JoemError
from joem.io import write_text

if TYPE_CHECKING:
    from joem.engine.training import Run


class MetricsLog:
    """metrics.csv, or metrics-STAGE.csv for each of several stages, one line per logged step; TensorBoard if asked."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.started = time.monotonic()
        self.folder = run.out if run.fabric.is_global_zero else None
        self.board = _tensorboard(run) if self.folder and run.recipe.train.tensorboard else None
        if self.folder:
            write_text(self.folder / "recipe.yaml", run.recipe_text)
            for path in run.metrics:
                if path.exists():
                    _keep_lines_until(path, run.step)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self.board:
            self.board.close()

    def write(self, terms: dict[str, float]) -> None:
        """One more line."""
        run = self.run
        if self.board:
            for name, value in terms.items():
                self.board.add_scalar(f"loss/{name}", value, run.step)
        if self.folder is None:
            return
        path = run.metrics[run.stage]
        row: dict[str, Any] = {"step": run.step, "epoch": round(run.step / run.steps_per_epoch, 4)}
        row |= {f"lr_{name}": optimiser.param_groups[0]["lr"] for name, optimiser in run.optimisers.items()}
        row |= {**terms, "total": math.fsum(terms.values())}
        row["seconds"] = round(time.monotonic() - self.started, 3)
        new = not path.exists()
        with path.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


def _keep_lines_until(path: Path, step: int) -> None:
    """A run repeats the steps after its checkpoint, or all: drop their lines, and a file that has no other."""
    header, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) or [""]
    whole = [line for line in lines if line.endswith("\n") and line.count(",") == header.count(",")]
    kept = [line for line in whole if (number := line.split(",")[0]).isdigit() and int(number) <= step]
    if kept:
        write_text(path, header + "".join(kept))
    else:
        path.unlink()


def has_rows(path: Path) -> bool:
    """Whether a file of metrics has any line below its header."""
    return path.exists() and len(path.read_bytes().splitlines()) > 1


def _tensorboard(run: "Run") -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise JoemError('TensorBoard is not installed: run pip install "joem[tensorboard]".') from None
    return SummaryWriter(str(run.out), purge_step=run.step + 1)  # steps that come again replace those of before
