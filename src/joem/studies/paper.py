"""The paper's tables and figures as named jobs: train what each needs, set the published values beside ours.

Every job is about the paper's own objective. Runs that are done are kept, so a job that was stopped goes on where it
was, and jobs with the same folder share what they have in common.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from joem import calibration, compare, engine, protocols, recipe
from joem.calibration import Curve
from joem.compare import Comparison, Row
from joem.compare.runs import SCORES, summary
from joem.engine import Interrupted
from joem.io import read_json, write_json
from joem.errors import BadUsage, JoemError, choose
from joem.protocols import PublishedScores
from joem.recipe import Recipe
from joem.report import plots
from joem.scores import Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("paper", "lite")
"""The paper's own networks and data, or PASCAL VOC in minutes on a CPU."""

_SEEDS = {"paper": 5, "lite": 3}
_SPLITS = (2, 4, 6, 8, 10)
_SYMBOLS = {"r": "r", "sc_weight": "λ"}

Curves = dict[str, Curve]
"""The curve of every rule of a run."""


@dataclass(frozen=True)
class Workplace:
    """Where a job works and on what.

    Args:
        job: its name.
        out: its folder.
        scale: one of `SCALES`.
        root: where the data are, if not where the recipes say.
        vectors: the source of word vectors, if not the recipes' own.
        folds: on how many folds of held-out seen classes tables choose sigma and gamma.
    """

    job: str
    out: Path
    scale: str
    root: str | None = None
    vectors: str | None = None
    folds: int = 3

    @property
    def runs(self) -> Path:
        """The folder of the trainings, which jobs share."""
        return self.out / "runs" / self.scale

    def settings(self, name: str, /, **method: Any) -> Recipe:
        """A recipe in the box with the paper's objective, which lite recipes replace, and some settings of it."""
        settings = deepcopy(recipe.load(name))
        settings.data.root = self.root or settings.data.root
        settings.semantics.vectors = self.vectors or settings.semantics.vectors
        for key, value in {"name": "joem", "names": "none", **method}.items():
            setattr(settings.method, key, value)
        return settings

    def objective(self, name: str, /, **method: Any) -> Recipe:
        """The same with the training of the recipe that the paper's objective has beside it, if there is one."""
        own = compare.own_recipes(name).get("joem", name)
        return replace(self.settings(own, **method), data=self.settings(name).data)


@dataclass
class Findings:
    """What a job gives: the rows of its table, its figures by name, and what could not be run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: "dict[str, Figure]" = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def reproduce(
    name: str, out: Path, scale: str = "paper", root: str | None = None, vectors: str | None = None, folds: int = 3
) -> list[dict[str, Any]]:
    """Run a job and write its table and figures into `out`.

    Args:
        name: one of `JOBS`.
        out: folder of the job; its runs go into out/runs.
        scale: one of `SCALES`.
        root: where the data are, if not where the recipes say.
        vectors: the source of word vectors, if not the recipes' own.
        folds: on how many folds of held-out seen classes tables choose sigma and gamma; lambda is the recipes' own.

    Returns:
        the rows of the table.
    """
    job = JOBS[choose("job", name, JOBS)]
    if choose("scale", scale, SCALES) not in job.recipes:
        raise BadUsage(f"{name} needs data that have no lite recipe: run it with --scale paper.")
    found = job.run(Workplace(name, out, scale, root, vectors, folds))
    engine.from_first(lambda: _write(found, job.about, out, name, scale))
    if found.failures:
        raise JoemError("These could not be run, the others are kept:\n  " + "\n  ".join(found.failures))
    return found.rows


def _write(found: "Findings", about: str, out: Path, name: str, scale: str) -> None:
    write_json(out / f"{name}-{scale}.json", {"job": name, "scale": scale, "about": about, "rows": found.rows})
    for figure_name, figure in found.figures.items():
        plots.save(figure, out / f"{name}-{scale}-{figure_name}.png")


@dataclass(frozen=True)
class Table:
    """A table of systems or objectives, made by `joem.compare`: sigma and gamma are chosen on held-out seen classes.

    Args:
        about: what it shows.
        recipes: scale -> the recipes, each compared in its own folder.
        table: which table of `joem.compare`.
        methods: the methods of the table "methods".
        per_class: whether every row also has the IoU of every class.
    """

    about: str
    recipes: Mapping[str, Sequence[str]]
    table: str = "methods"
    methods: Sequence[str] | None = None
    per_class: bool = False

    def run(self, place: Workplace) -> Findings:
        """One comparison per recipe; the folder JOB-SCALE has their tables with every rule and class."""
        found = Findings()
        for name in self.recipes[place.scale]:
            folder = place.runs / "compared" / name
            settings, seeds = place.settings(name), _SEEDS[place.scale]
            own = {
                method: replace(place.settings(each, name=method), data=settings.data)
                for method, each in compare.own_recipes(name).items()
            }
            try:
                compared = compare.run(
                    settings, folder, self.table, self.methods, seeds=seeds, folds=place.folds, own=own
                )
            except Interrupted:
                raise
            except JoemError as error:
                found.failures.append(f"{name}: {error}")
                continue
            tables = place.out / f"{place.job}-{place.scale}" / name
            if engine.place()[0] == 0:
                compare.write(compared, tables, f"joem reproduce {place.job} --scale {place.scale} --out {place.out}")
            for row in compared.rows:
                found.rows.append(self._row(name, row, compared))
            found.rows += _without_circle(name, compared)
            found.failures += [f"{name}: {failure}" for failure in compared.failures]
        return found

    def _row(self, name: str, row: Row, compared: Comparison) -> dict[str, Any]:
        means = [summary([each[key] for each in compared.scores(row)])["mean"] for key in SCORES]
        what = f"{name}: {row.title}"
        if not self.per_class:
            return _row(what, means, row.published, compared.published_on)
        table = protocols.published_tables()["per_class"]
        (known,) = [each for each in table["rows"] if each["method"] == row.variant.method]
        runs = [result["rules"][row.rule]["per_class"] for result in compared.results[row.variant.name]]
        return {
            **_row(what, means, _as_published(known), table["protocol"]),
            "per_class": {label: summary([run[label] for run in runs])["mean"] for label in runs[0]},
            "published_per_class": known["per_class"],
        }


def _without_circle(name: str, compared: Comparison) -> list[dict[str, Any]]:
    """JoEm by nearest neighbour, where the paper has a row for it."""
    published = protocols.get(name.removesuffix("-lite")).published.get("joem-nn")
    rows = [row for row in compared.rows if published and row.variant.name == "joem"]
    means = [[summary([each[key] for each in compared.scores(row, "nn")])["mean"] for key in SCORES] for row in rows]
    return [_row(f"{name}: JoEm without AC", each, published, compared.published_on) for each in means]


@dataclass(frozen=True)
class TradeOff:
    """Figure 5: both rules over their whole grids. Its rows are the best with hindsight."""

    about: str
    recipes: Mapping[str, Sequence[str]]

    def run(self, place: Workplace) -> Findings:
        """Train and sweep the one recipe."""
        (name,) = self.recipes[place.scale]
        curves, ablation = _curves(name, place), protocols.published_tables()["ablation"]
        published = {row["rule"]: row for row in ablation["rows"] if row["losses"] == ["bar", "sc"]}
        rows = []
        for rule, curve in curves.items():
            what = f"{rule}, {curve.parameter} {curve.values[curve.best]:g} (best with hindsight)"
            known = _as_published(published[rule])
            rows.append(_row(what, _three(curve.scores[curve.best]), known, ablation["protocol"]))
        return Findings(rows, {"trade-off": plots.trade_off(curves, {}), "errors": plots.errors(curves, {})})


@dataclass(frozen=True)
class Study:
    """Scores over a setting of the objective, one training for each value, and over sigma.

    Args:
        about: what it shows.
        recipes: scale -> the recipes, each with a figure over the setting and one over sigma.
        setting: r or sc_weight (lambda); the other settings, sigma too, are the recipe's own.
        values: what is tried; the recipe's own value must be among them.
    """

    about: str
    recipes: Mapping[str, Sequence[str]]
    setting: Literal["r", "sc_weight"]
    values: tuple[float, ...]

    def run(self, place: Workplace) -> Findings:
        """Train and sweep every value with every recipe."""
        found, symbol = Findings(), _SYMBOLS[self.setting]
        for name in self.recipes[place.scale]:
            settings, protocol = place.objective(name), name.removesuffix("-lite")
            own, sigma = getattr(settings.method, self.setting), settings.decision.sigma
            curves = {value: _curves(name, place, self.setting, value)["ac"] for value in self.values}
            scores = {value: curve.scores[curve.values.index(sigma)] for value, curve in curves.items()}
            for value, each in scores.items():
                published = protocols.get(protocol).published["joem"] if value == own else None
                found.rows.append(_row(f"{name}: {symbol} {value:g}", _three(each), published, protocol))
            found.figures[f"{name}-{self.setting}"] = plots.by_setting(scores, symbol, own)
            found.figures[f"{name}-sigma"] = plots.by_value(curves[own], sigma)
        return found


def _curves(name: str, place: Workplace, setting: str | None = None, value: float | None = None) -> Curves:
    """Train a recipe and sweep it on the paper's grids, or read what an earlier call found."""
    folder = place.runs / (name if setting is None else f"{name}-{setting}-{value:g}")
    settings = place.objective(name, **({setting: value} if setting else {}))
    results = folder / "curves.json"
    kept = engine.from_first(lambda: read_json(results) if results.is_file() else None)
    if kept is not None:
        if kept["recipe"] != settings.to_dict():
            raise BadUsage(f"{folder} holds a run of another recipe: choose another --out.")
        return {rule: Curve.from_dict(curve) for rule, curve in kept["curves"].items()}
    resume = engine.from_first(lambda: any(folder.glob("checkpoints/step-*")))
    model = engine.train(settings, folder, resume=resume)
    problem = engine.open_problem(settings.data, needed=("val",))
    curves = calibration.sweep(
        model,
        problem,
        ("cs", "ac"),
        # The paper's gammas fit its own scale of distances; any other needs its own range.
        gammas=calibration.PAPER_GAMMAS if place.scale == "paper" else None,
        sigmas=sorted({*calibration.PAPER_SIGMAS, settings.decision.sigma}, reverse=True),
    )
    described = {rule: curve.to_dict() for rule, curve in curves.items()}
    engine.from_first(lambda: write_json(results, {"recipe": settings.to_dict(), "curves": described}))
    return curves


def _as_published(row: Mapping[str, Any]) -> PublishedScores:
    return PublishedScores(row["seen"], row["unseen"], row["hiou"])


def _three(found: Scores) -> tuple[float, float, float]:
    return found.miou_seen, found.miou_unseen, found.hiou


def _row(
    what: str,
    scores: Sequence[float | None],
    published: PublishedScores | None = None,
    published_on: str | None = None,
) -> dict[str, Any]:
    """One line of a job's table; `published_on` is the protocol of the published scores."""
    known = published and {"seen": published.seen, "unseen": published.unseen, "hiou": published.hiou}
    keys = ("seen", "unseen", "hiou")
    return {
        "what": what,
        **dict(zip(keys, scores, strict=True)),
        "published": known,
        "published_on": published_on if known else None,
    }


Job = Table | TradeOff | Study

_VOC, _CONTEXT = ([f"{setting}-zs3-{split}" for split in _SPLITS] for setting in ("voc", "context"))
_LITE = [f"{name}-lite" for name in _VOC]

JOBS: dict[str, Job] = {
    "table1": Table(
        "The systems of the field on every split of PASCAL VOC and, at the paper's scale, Context.",
        {"paper": [*_VOC, *_CONTEXT], "lite": _LITE},
        methods=("devise", "spnet", "zs3net", "csrl", "joem"),
    ),
    "table2": Table(
        "Losses and rules on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4-lite"]},
        table="ablation",
    ),
    "table3": Table(
        "Two-stage training and generators against the joint space on unseen-4 of PASCAL VOC.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4-lite"]},
        table="embedding-space",
    ),
    "fig5": TradeOff(
        "CS and AC over gamma and sigma on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4-lite"]},
    ),
    "supp-table2": Table(
        "Every class on unseen-4 of PASCAL VOC: ZS3Net, ZS3Net on JoEm's encoder, JoEm.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4-lite"]},
        methods=("zs3net", "zs3net_joem", "joem"),
        per_class=True,
    ),
    "supp-table3": Table(
        "The systems of the field in the SPNet setting.",
        {"paper": ["voc-spnet"], "lite": ["voc-spnet-lite"]},
        methods=("spnet", "zs3net", "cagnet", "joem"),
    ),
    "supp-fig2": Study(
        "Scores over r on unseen-4 of PASCAL VOC and, at the paper's scale, Context.",
        {"paper": ["voc-zs3-4", "context-zs3-4"], "lite": ["voc-zs3-4-lite"]},
        "r",
        (1, 2, 4),
    ),
    "supp-fig3": Study(
        "Scores over lambda and over sigma on every split of PASCAL VOC.",
        {"paper": _VOC, "lite": _LITE},
        "sc_weight",
        calibration.LAMBDAS,
    ),
    "supp-fig4": Study(
        "Scores over lambda and over sigma on every split of PASCAL Context.",
        {"paper": _CONTEXT},
        "sc_weight",
        calibration.LAMBDAS,
    ),
    "supp-fig6": Study(
        "Scores over r and over sigma in the SPNet setting.",
        {"paper": ["voc-spnet"], "lite": ["voc-spnet-lite"]},
        "r",
        (1, 2, 4),
    ),
}
"""The tables and figures of the paper and of its supplement."""
