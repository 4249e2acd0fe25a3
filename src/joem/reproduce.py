"""The paper's tables and figures as named jobs: train what each needs, sweep it, set the published values beside ours.

A job is a list of runs, each a recipe with some settings changed. Runs that are done are kept, so a job that was
stopped goes on where it was.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem import calibration, engine, protocols, recipe
from joem.calibration import Curve
from joem.engine.files import read_json, write_json
from joem.errors import BadUsage, choose
from joem.recipe import Recipe
from joem.report import plots
from joem.scores import Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("paper", "lite")
"""The paper's own networks and data, or PASCAL VOC in minutes on a CPU."""

_RULES = ("cs", "ac")
_SPLITS = (2, 4, 6, 8, 10)
_FACTORS = (1, 2, 4)


@dataclass(frozen=True)
class Run:
    """One training of a job.

    Args:
        name: its folder.
        recipe: the recipe it starts from, in the box.
        method: settings of the method that differ from the recipe's.
    """

    name: str
    recipe: str
    method: Mapping[str, Any]


Curves = dict[str, Curve]
"""The curve of every rule of a run."""


@dataclass(frozen=True)
class Job:
    """A table or figure.

    Args:
        about: what it shows.
        runs: scale -> the runs it needs; a scale that is not there cannot be run.
        rows: what its table says, from the curves of every run.
        draw: its figures by name, from the same.
    """

    about: str
    runs: Mapping[str, list[Run]]
    rows: Callable[[Mapping[str, Curves]], list[dict[str, Any]]]
    draw: Callable[[Mapping[str, Curves]], "dict[str, Figure]"]


def reproduce(
    name: str, out: Path, scale: str = "paper", root: str | None = None, vectors: str | None = None
) -> list[dict[str, Any]]:
    """Run a job and write table.json and its figures into `out`.

    Args:
        name: one of `JOBS`.
        out: folder of the job; its runs go into out/runs.
        scale: one of `SCALES`.
        root: where the data are, if not where the recipes say.
        vectors: the source of word vectors, if not the recipes' own.

    Returns:
        the rows of the table.
    """
    job = JOBS[choose("job", name, JOBS)]
    if choose("scale", scale, SCALES) not in job.runs:
        raise BadUsage(f"{name} needs data that have no lite recipe: run it with --scale paper.")
    found = {run.name: _curves(run, out / "runs" / scale / run.name, root, vectors) for run in job.runs[scale]}
    rows = job.rows(found)
    write_json(out / f"{name}-{scale}.json", {"job": name, "scale": scale, "about": job.about, "rows": rows})
    for figure_name, figure in job.draw(found).items():
        plots.save(figure, out / f"{name}-{scale}-{figure_name}.png")
    return rows


def _curves(run: Run, folder: Path, root: str | None, vectors: str | None) -> Curves:
    """Train and sweep a run on the paper's grids, or read what an earlier call found."""
    results = folder / "curves.json"
    settings = _settings(run, root, vectors)
    if results.is_file():
        kept = read_json(results)
        if kept["recipe"] != settings.to_dict():
            raise BadUsage(f"{folder} holds a run of another recipe: choose another --out.")
        return {rule: Curve.from_dict(curve) for rule, curve in kept["curves"].items()}
    model = engine.train(settings, folder, resume=(folder / "checkpoints").is_dir())
    curves = calibration.sweep(
        model,
        engine.open_problem(settings.data),
        _RULES,
        # The paper's gammas fit its own scale of distances; any other needs its own range.
        gammas=calibration.PAPER_GAMMAS if run.recipe in _OF_THE_PAPER else None,
        sigmas=calibration.PAPER_SIGMAS,
    )
    described = {rule: curve.to_dict() for rule, curve in curves.items()}
    write_json(results, {"recipe": settings.to_dict(), "curves": described})
    return curves


def _settings(run: Run, root: str | None, vectors: str | None) -> Recipe:
    settings = deepcopy(recipe.load(run.recipe))
    settings.data.root = root or settings.data.root
    settings.semantics.vectors = vectors or settings.semantics.vectors
    for key, value in run.method.items():
        setattr(settings.method, key, value)
    return settings


def _row(what: str, found: Scores, published: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "what": what,
        "seen": found.miou_seen,
        "unseen": found.miou_unseen,
        "hiou": found.hiou,
        "published": published,
    }


def _trade_off_rows(found: Mapping[str, Curves]) -> list[dict[str, Any]]:
    (curves,) = found.values()
    return [
        _row(f"{rule}, {curve.parameter} {curve.values[curve.best]:g} (best with hindsight)", curve.scores[curve.best])
        for rule, curve in curves.items()
    ]


def _trade_off_figures(found: Mapping[str, Curves]) -> "dict[str, Figure]":
    (curves,) = found.values()
    return {"trade-off": plots.trade_off(curves, {}), "errors": plots.errors(curves, {})}


def _ablation_rows(found: Mapping[str, Curves]) -> list[dict[str, Any]]:
    rows = []
    for published in protocols.published_tables()["ablation"]["rows"]:
        losses, rule = published.pop("losses"), published.pop("rule")
        curve = found["+".join(losses)]["ac" if rule == "nn" else rule]
        place = 0 if rule == "nn" else curve.best
        rows.append(_row(f"ce+{'+'.join(losses)}, {rule}", curve.scores[place], published))
    return rows


def _parameter_rows(found: Mapping[str, Curves], protocol: Callable[[str], str]) -> list[dict[str, Any]]:
    """NN and the best sigma of every run; the published value is that of the paper's own parameters."""
    rows = []
    for name, curves in found.items():
        curve, published = curves["ac"], vars(protocols.get(protocol(name)).published["joem"])
        rows.append(_row(f"{name}, nn", curve.scores[0]))
        rows.append(_row(f"{name}, best sigma {curve.values[curve.best]:g}", curve.scores[curve.best], published))
    return rows


def _parameter_figures(found: Mapping[str, Curves]) -> "dict[str, Figure]":
    """Scores over sigma, one figure per run."""
    return {name: plots.by_value(curves["ac"]) for name, curves in found.items()}


def _nothing(found: Mapping[str, Curves]) -> "dict[str, Figure]":
    return {}


def _of_splits(setting: str, suffix: str, method: Mapping[str, Any]) -> list[Run]:
    """One run per split and lambda."""
    return [
        Run(f"unseen-{split}-lambda-{value:g}", f"{setting}-{split}{suffix}", {**method, "sc_weight": value})
        for split in _SPLITS
        for value in calibration.LAMBDAS
    ]


def _of_factors(name: str, method: Mapping[str, Any]) -> list[Run]:
    """One run per r."""
    return [Run(f"{name}-r-{r}", name, {**method, "r": r}) for r in _FACTORS]


def _of_losses(name: str, method: Mapping[str, Any]) -> list[Run]:
    """The four objectives of the ablation."""
    center, alone = {"r": 1}, {"sc_weight": 0.0}
    return [
        Run("center", name, {**method, **center, **alone}),
        Run("bar", name, {**method, **alone}),
        Run("center+sc", name, {**method, **center}),
        Run("bar+sc", name, {**method}),
    ]


_PLAIN = {"name": "joem"}  # lite recipes use another objective, without lambda and r
_OF_THE_PAPER = {f"{setting}-{split}" for setting in ("voc-zs3", "context-zs3") for split in _SPLITS} | {"voc-spnet"}

JOBS: dict[str, Job] = {
    "table2": Job(
        "Losses and rules on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": _of_losses("context-zs3-4", {}), "lite": _of_losses("voc-zs3-4-lite", _PLAIN)},
        _ablation_rows,
        _nothing,
    ),
    "fig5": Job(
        "CS and AC over gamma and sigma on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {
            "paper": [Run("context-zs3-4", "context-zs3-4", {})],
            "lite": [Run("voc-zs3-4-lite", "voc-zs3-4-lite", {})],
        },
        _trade_off_rows,
        _trade_off_figures,
    ),
    "supp-fig2": Job(
        "hIoU over r on unseen-4.",
        {
            "paper": _of_factors("voc-zs3-4", {}) + _of_factors("context-zs3-4", {}),
            "lite": _of_factors("voc-zs3-4-lite", _PLAIN),
        },
        partial(_parameter_rows, protocol=lambda name: name.split("-r-")[0].removesuffix("-lite")),
        _parameter_figures,
    ),
    "supp-fig3": Job(
        "Scores over lambda and sigma on every split of PASCAL VOC.",
        {"paper": _of_splits("voc-zs3", "", {}), "lite": _of_splits("voc-zs3", "-lite", _PLAIN)},
        partial(_parameter_rows, protocol=lambda name: f"voc-zs3-{name.split('-')[1]}"),
        _parameter_figures,
    ),
    "supp-fig4": Job(
        "Scores over lambda and sigma on every split of PASCAL Context.",
        {"paper": _of_splits("context-zs3", "", {})},
        partial(_parameter_rows, protocol=lambda name: f"context-zs3-{name.split('-')[1]}"),
        _parameter_figures,
    ),
    "supp-fig6": Job(
        "Scores over r and sigma in the SPNet setting.",
        {"paper": _of_factors("voc-spnet", {})},
        partial(_parameter_rows, protocol=lambda name: "voc-spnet"),
        _parameter_figures,
    ),
}
"""The tables and figures that need no system but JoEm."""
