"""The paper's tables and figures as named jobs: train what each needs, set the published values beside ours.

Every job is about the paper's own objective. Runs that are done are kept, so a job that was stopped goes on where it
was, and jobs with the same folder share what they have in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from joem import calibration, decision, engine, jobs, parallel, protocols
from joem.calibration import Curve
from joem.decision import Decision
from joem.errors import BadUsage, Interrupted, JoemError, choose
from joem.io import write_json
from joem.jobs import Job
from joem.protocols import PublishedScores
from joem.recipe import Recipe
from joem.report import plots
from joem.studies import tables
from joem.studies.comparison import Comparison, summary
from joem.studies.request import SCALES, Request, Training
from joem.studies.rows import Row, as_published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = TypeVar("Key")

_SPLITS = (2, 4, 6, 8, 10)
_SYMBOLS = {"r": "r", "sc_weight": "λ"}


@dataclass
class Findings:
    """What a job gives: the rows of its table, its figures by name, and what could not be run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: "dict[str, Figure]" = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def reproduce(request: Request) -> list[dict[str, Any]]:
    """Run a job, write its table and figures into its folder, and give the rows of the table."""
    job, scale = _job(request), request.scale
    found, name = job.run(request), f"{request.job}-{scale}"

    def write() -> None:
        described = {"job": request.job, "scale": scale, "about": job.about, "rows": found.rows}
        write_json(request.out / f"{name}.json", described)
        for figure_name, figure in found.figures.items():
            plots.save(figure, request.out / f"{name}-{figure_name}.png")

    parallel.from_first(write)
    if found.failures:
        raise JoemError("These could not be run, the others are kept:\n  " + "\n  ".join(found.failures))
    return found.rows


def trainings(request: Request) -> list[Training]:
    """Every training that a job needs, done or not, in the order in which they are run."""
    return list(_job(request).trainings(request))


def _job(request: Request) -> "Table | TradeOff | Study":
    job, scale = JOBS[choose("job", request.job, JOBS)], choose("scale", request.scale, SCALES)
    if scale not in job.protocols:
        raise BadUsage(f"{request.job} needs data that have no lite recipe: run it with --scale paper.")
    if not isinstance(job, Table) and (request.methods or request.seeds):
        raise BadUsage(f"{request.job} trains JoEm once for every value: --methods and --seeds are for tables.")
    return job


@dataclass(frozen=True)
class Table:
    """A table of systems or objectives, made by `compare`: parameters are chosen on held-out seen classes.

    Args:
        about: what it shows.
        protocols: scale -> the protocols, each compared in its own folder.
        table: which table of `compare`.
        methods: the methods of the table "methods".
        per_class: whether every row also has the IoU of every class.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]
    table: str = "methods"
    methods: Sequence[str] | None = None
    per_class: bool = False

    def run(self, request: Request) -> Findings:
        """One comparison per protocol; the folder JOB-SCALE has their tables with every rule and class."""
        found = Findings()
        for name in request.chosen(self.protocols):
            try:
                compared = request.compare(name, self.table, self.methods)
            except Interrupted:
                raise
            except JoemError as error:
                found.failures.append(f"{name}: {error}")
                continue
            if parallel.is_first():
                tables.write(compared, request.out / f"{request.job}-{request.scale}" / name, request.command)
            found.rows += [self._row(name, row, compared) for row in compared.rows]
            found.rows += _without_circle(name, compared)
            found.failures += [f"{name}: {failure}" for failure in compared.failures]
        return found

    def trainings(self, request: Request) -> Iterator[Training]:
        """What `run` trains."""
        for name in request.chosen(self.protocols):
            yield from request.trainings(name, self.table, self.methods)

    def _row(self, name: str, row: Row, compared: Comparison) -> dict[str, Any]:
        what, means = f"{name}: {row.title}", _means(compared, row)
        if not self.per_class:
            return _row(what, means, row.published, compared.published_on)
        table = protocols.published_tables()["per_class"]
        (known,) = [each for each in table["rows"] if each["method"] == row.variant.method]
        runs = [found["per_class"] for found in compared.found(row)]
        return {
            **_row(what, means, as_published(known), table["protocol"]),
            "per_class": {label: summary([run[label] for run in runs])["mean"] for label in runs[0]},
            "published_per_class": known["per_class"],
        }


def _means(compared: Comparison, row: Row, rule: str | None = None) -> list[float | None]:
    return [each["mean"] for each in compared.summary(row, rule).values()]


def _without_circle(name: str, compared: Comparison) -> list[dict[str, Any]]:
    """JoEm by nearest neighbour, where the paper has a row for it."""
    published = protocols.get(name).published.get("joem-nn")
    rows = [row for row in compared.rows if published and row.variant.name == "joem"]
    nearest, what = Decision().rule, f"{name}: JoEm without AC"
    return [_row(what, _means(compared, row, nearest), published, compared.published_on) for row in rows]


@dataclass(frozen=True)
class TradeOff:
    """Figure 5: both rules over their whole grids. Its rows are the best with hindsight."""

    about: str
    protocols: Mapping[str, Sequence[str]]

    def run(self, request: Request) -> Findings:
        """Train and sweep on the one protocol."""
        (curves,) = _swept(request, self._wanted(request)).values()
        ablation = protocols.published_tables()["ablation"]
        published = {row["rule"]: as_published(row) for row in ablation["rows"] if row["losses"] == ["bar", "sc"]}
        rows = []
        for rule, curve in curves.items():
            what = f"{rule}, {curve.parameter} {curve.values[curve.best]:g} (best with hindsight)"
            rows.append(_row(what, curve.scores[curve.best].three, published.get(rule), ablation["protocol"]))
        return Findings(rows, {"trade-off": plots.trade_off(curves), "errors": plots.errors(curves)})

    def trainings(self, request: Request) -> Iterator[Training]:
        """What `run` trains."""
        return _planned(request, self._wanted(request))

    def _wanted(self, request: Request) -> dict[str, tuple[str, Recipe]]:
        (name,) = request.chosen(self.protocols)
        return {name: (name, request.settings(name))}


@dataclass(frozen=True)
class Study:
    """Scores over a setting of the objective, one training for each value, and over the rule's parameter.

    Args:
        about: what it shows.
        protocols: scale -> the protocols, each with a figure over the setting and one over the parameter.
        setting: r or sc_weight (lambda); the other settings, the parameter too, are the recipe's own.
        values: what is tried; the recipe's own value must be among them.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]
    setting: Literal["r", "sc_weight"]
    values: tuple[float, ...]

    def run(self, request: Request) -> Findings:
        """Train and sweep every value on every protocol."""
        found, symbol = Findings(), _SYMBOLS[self.setting]
        swept = _swept(request, self._wanted(request))
        for name in request.chosen(self.protocols):
            settings = request.settings(name)
            own, chosen = getattr(settings.method, self.setting), settings.decision
            curves = {value: swept[name, value][chosen.rule] for value in self.values}
            scores = {value: curve.scores[curve.values.index(chosen.value)] for value, curve in curves.items()}
            for value, each in scores.items():
                published = protocols.get(name).published["joem"] if value == own else None
                found.rows.append(_row(f"{name}: {symbol} {value:g}", each.three, published, name))
            found.figures[f"{name}-{self.setting}"] = plots.by_setting(scores, symbol, own)
            found.figures[f"{name}-{curves[own].parameter}"] = plots.by_value(curves[own], chosen)
        return found

    def trainings(self, request: Request) -> Iterator[Training]:
        """What `run` trains."""
        return _planned(request, self._wanted(request))

    def _wanted(self, request: Request) -> dict[tuple[str, float], tuple[str, Recipe]]:
        """Every training: (protocol, value) -> its folder and its recipe."""
        return {
            (name, value): (f"{name}-{self.setting}-{value:g}", request.settings(name, **{self.setting: value}))
            for name in request.chosen(self.protocols)
            for value in self.values
        }


def _planned(request: Request, wanted: Mapping[Any, tuple[str, Recipe]]) -> Iterator[Training]:
    """The trainings of `_swept`."""
    for name, settings in wanted.values():
        yield Training(name, settings, request.runs / name / "curves.json")


def _swept(request: Request, wanted: Mapping[Key, tuple[str, Recipe]]) -> dict[Key, dict[str, Curve]]:
    """Train recipes, each in the folder named with it, and sweep the paper's rules on its grids."""
    settings = [each for _, each in wanted.values()]
    engine.launched(settings[0].train)
    found = jobs.run_all({key: _sweep_job(each, request, name) for key, (name, each) in wanted.items()}, "trainings")
    return {key: {rule: Curve.from_dict(curve) for rule, curve in result.items()} for key, result in found.items()}


def _sweep_job(settings: Recipe, request: Request, name: str) -> Job:
    rules, folder = [rule for rule in decision.calibrated().values() if rule.paper_grid], request.runs / name
    grids = {}
    for rule in rules:
        parameter = decision.parameter_of(rule.name)
        # The paper's values without a bound fit its own scale of distances; any other needs its own range.
        if request.scale == "paper" or parameter.largest < float("inf"):
            own = settings.decision.replace(rule.name).value
            grids[parameter.name] = parameter.ordered({*rule.paper_grid, own})

    def work() -> dict[str, Any]:
        model = calibration.train_in(folder, settings)
        problem = engine.open_problem(settings.data, needed=("val",))
        curves = calibration.sweep(model, problem, [rule.name for rule in rules], grids)
        return {rule: curve.to_dict() for rule, curve in curves.items()}

    identity = {"recipe": settings.identity(), "grids": grids}
    return Job(folder / "curves.json", identity, work, leftovers=(folder / "checkpoints",))


def _row(
    what: str,
    scores: Sequence[float | None],
    published: PublishedScores | None = None,
    published_on: str | None = None,
) -> dict[str, Any]:
    """One line of a job's table; `published_on` is the protocol of the published scores."""
    keys = ("seen", "unseen", "hiou")
    known = published and dict(zip(keys, published.three, strict=True))
    return {
        "what": what,
        **dict(zip(keys, scores, strict=True)),
        "published": known,
        "published_on": published_on if known else None,
    }


_VOC, _CONTEXT = ([f"{setting}-zs3-{split}" for split in _SPLITS] for setting in ("voc", "context"))

JOBS: dict[str, Table | TradeOff | Study] = {
    "table1": Table(
        "The systems of the field on every split of PASCAL VOC and, at the paper's scale, Context.",
        {"paper": [*_VOC, *_CONTEXT], "lite": _VOC},
        methods=("devise", "spnet", "zs3net", "csrl", "joem"),
    ),
    "table2": Table(
        "Losses and rules on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4"]},
        table="ablation",
    ),
    "table3": Table(
        "Two-stage training and generators against the joint space on unseen-4 of PASCAL VOC.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        table="embedding-space",
    ),
    "fig5": TradeOff(
        "CS and AC over gamma and sigma on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4"]},
    ),
    "supp-table2": Table(
        "Every class on unseen-4 of PASCAL VOC: ZS3Net, ZS3Net on JoEm's encoder, JoEm.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        methods=("zs3net", "zs3net_joem", "joem"),
        per_class=True,
    ),
    "supp-table3": Table(
        "The systems of the field in the SPNet setting.",
        {"paper": ["voc-spnet"], "lite": ["voc-spnet"]},
        methods=("spnet", "zs3net", "cagnet", "joem"),
    ),
    "supp-fig2": Study(
        "Scores over r on unseen-4 of PASCAL VOC and, at the paper's scale, Context.",
        {"paper": ["voc-zs3-4", "context-zs3-4"], "lite": ["voc-zs3-4"]},
        "r",
        (1, 2, 4),
    ),
    "supp-fig3": Study(
        "Scores over lambda and over sigma on every split of PASCAL VOC.",
        {"paper": _VOC, "lite": _VOC},
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
        {"paper": ["voc-spnet"], "lite": ["voc-spnet"]},
        "r",
        (1, 2, 4),
    ),
}
"""The tables and figures of the paper and of its supplement."""
