"""The paper's tables and figures as named jobs: train what each needs, set the published values beside ours.

Every job is about the paper's own objective. Runs that are done are kept, so a job that was stopped goes on where it
was, and jobs with the same folder share what they have in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from PIL.Image import Image

from joem import calibration, decision, engine, jobs, parallel, protocols
from joem.calibration import Curve
from joem.decision import Decision
from joem.errors import BadUsage, Interrupted, JoemError, choose
from joem.io import write_json, write_text
from joem.jobs import Job
from joem.recipe import Recipe
from joem.report import plots
from joem.scores import Scores
from joem.seen_before import seen_before
from joem.studies import figures, tables
from joem.studies.comparison import Comparison, summary
from joem.studies.figures import Drawn, Findings, SettingsTable, score_row
from joem.studies.request import SCALES, Request, Training
from joem.studies.rows import Row, as_published

Key = TypeVar("Key")

_SPLITS = (2, 4, 6, 8, 10)


def reproduce(request: Request) -> list[dict[str, Any]]:
    """Run a job, write its table and figures into its folder, and give the rows of the table."""
    job, scale = _job(request), request.scale
    found, name = job.run(request), f"{request.job}-{scale}"

    def write() -> None:
        described = {"job": request.job, "scale": scale, "about": job.about, "rows": found.rows}
        write_json(request.out / f"{name}.json", described)
        if found.rows and "seen" not in found.rows[0]:  # a table without scores
            body = [list(row.values()) for row in found.rows]
            write_text(request.out / f"{name}.md", tables.markdown(list(found.rows[0]), body) + "\n")
        for figure_name, figure in found.figures.items():
            file = request.out / f"{name}-{figure_name}.png"
            figure.save(file) if isinstance(figure, Image) else plots.save(figure, file)

    parallel.from_first(write)
    if found.failures:
        raise JoemError("These could not be run, the others are kept:\n  " + "\n  ".join(found.failures))
    return found.rows


def trainings(request: Request) -> list[Training]:
    """Every training that a job needs, done or not, in the order in which they are run."""
    return list(_job(request).trainings(request))


def scales(job: "AnyJob") -> list[str]:
    """The scales that a job can be run at: all where there is a lite recipe of its data."""
    return [scale for scale in SCALES if scale != "lite" or scale in job.protocols]


def _job(request: Request) -> "AnyJob":
    job, scale = JOBS[choose("job", request.job, JOBS)], choose("scale", request.scale, SCALES)
    if scale not in scales(job):
        raise BadUsage(f"{request.job} needs data that have no lite recipe: run it with --scale paper or official.")
    if not isinstance(job, Table) and (request.methods or request.seeds):
        raise BadUsage(f"{request.job} has its own rows and trains each once: --methods and --seeds are for tables.")
    return job


@dataclass(frozen=True)
class Table:
    """A table of systems or objectives, made by `compare`: parameters are chosen on held-out seen classes.

    Args:
        about: what it shows.
        protocols: scale -> the protocols, each compared in its own folder.
        table: which table of `compare`.
        methods: some of its rows, by the names of their variants; all if None.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]
    table: str = "methods"
    methods: Sequence[str] | None = None

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
        what, before = f"{name}: {row.title}", compared.seen_before(row)
        found = score_row(what, _means(compared, row), before, row.published, compared.published_on)
        if row.published_per_class:
            runs = [run["per_class"] for run in compared.found(row)]
            found["per_class"] = {label: summary([run[label] for run in runs])["mean"] for label in runs[0]}
            found["published_per_class"] = list(row.published_per_class)
        return found


def _means(compared: Comparison, row: Row, rule: str | None = None) -> list[float | None]:
    return [each["mean"] for each in compared.summary(row, rule).values()]


def _without_circle(name: str, compared: Comparison) -> list[dict[str, Any]]:
    """JoEm by nearest neighbour, where the paper has a row for it."""
    published = protocols.get(name).published.get("joem-nn")
    rows = [row for row in compared.rows if published and row.variant.name == "joem"]
    nearest, what = Decision().rule, f"{name}: JoEm without AC"
    return [
        score_row(what, _means(compared, row, nearest), compared.seen_before(row), published, compared.published_on)
        for row in rows
    ]


@dataclass(frozen=True)
class TradeOff:
    """Figure 5: both rules over their whole grids. Its rows are the best with hindsight."""

    about: str
    protocols: Mapping[str, Sequence[str]]

    def run(self, request: Request) -> Findings:
        """Train and sweep on the one protocol."""
        wanted = self._wanted(request)
        (curves,), ((_, settings),) = _swept(request, wanted).values(), wanted.values()
        ablation = protocols.published_tables()["ablation"]
        published = {row["rule"]: as_published(row) for row in ablation["rows"] if row["losses"] == ["bar", "sc"]}
        rows = []
        for rule, curve in curves.items():
            what = f"{rule}, {curve.parameter} {curve.values[curve.best]:g} (best with hindsight)"
            scores, theirs = curve.scores[curve.best].three, published.get(rule)
            rows.append(score_row(what, scores, seen_before(settings), theirs, ablation["protocol"]))
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
        setting: r or sc_weight (lambda); the other settings are the recipe's own.
        values: what is tried beside the recipe's own value.
        sigma: of AC, by which the scores over the setting are shown, as in the supplement; they are shown by the
            recipe's own rule and value too, or by them alone if None.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]
    setting: Literal["r", "sc_weight"]
    values: tuple[float, ...]
    sigma: float | None = None

    def run(self, request: Request) -> Findings:
        """Train and sweep every value on every protocol."""
        found, swept = Findings(), _swept(request, self._wanted(request))
        for name in request.chosen(self.protocols):
            settings = request.settings(name)
            chosen, own = settings.decision, getattr(settings.method, self.setting)
            shown: dict[str, Decision] = {self.setting: chosen}
            if self.sigma is not None:
                shown = {self.setting: chosen.replace("ac", sigma=self.sigma), f"{self.setting}-own-sigma": chosen}
            for title, rule in shown.items():
                curves = {value: curve[rule.rule] for (where, value), curve in swept.items() if where == name}
                scores = {value: curve.scores[curve.values.index(rule.value)] for value, curve in curves.items()}
                found.rows += self._rows(name, scores, rule, seen_before(settings), own if rule == chosen else None)
                found.figures[f"{name}-{title}"] = plots.by_setting(scores, f"{self._symbol}, by {rule}", own)
            curve = swept[name, own][chosen.rule]
            found.figures[f"{name}-{curve.parameter}"] = plots.by_value(curve, chosen)
        return found

    def trainings(self, request: Request) -> Iterator[Training]:
        """What `run` trains."""
        return _planned(request, self._wanted(request))

    def _wanted(self, request: Request) -> dict[tuple[str, float], tuple[str, Recipe]]:
        """Every training: (protocol, value) -> its folder and its recipe."""
        return {
            (name, value): (f"{name}-{self.setting}-{value:g}", request.settings(name, **{self.setting: value}))
            for name in request.chosen(self.protocols)
            for value in sorted({*self.values, getattr(request.settings(name).method, self.setting)})
        }

    @property
    def _symbol(self) -> str:
        return {"r": "r", "sc_weight": "λ"}[self.setting]

    def _rows(
        self, name: str, scores: Mapping[float, Scores], rule: Decision, before: str, own: float | None
    ) -> Iterator[dict[str, Any]]:
        """One row for every value; the published scores are beside the recipe's own, where one is given."""
        for value, each in scores.items():
            published = protocols.get(name).published["joem"] if value == own else None
            yield score_row(f"{name}: {self._symbol} {value:g}, {rule}", each.three, before, published, name)


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
        if request.scale != "lite" or parameter.largest < float("inf"):
            own = settings.decision.replace(rule.name).value
            grids[parameter.name] = parameter.ordered({*rule.paper_grid, own})

    def work() -> dict[str, Any]:
        model = calibration.train_in(folder, settings)
        problem = engine.open_problem(settings.data, needed=("val",))
        curves = calibration.sweep(model, problem, [rule.name for rule in rules], grids)
        return {rule: curve.to_dict() for rule, curve in curves.items()}

    identity = {"recipe": settings.identity(), "grids": grids}
    return Job(folder / "curves.json", identity, work, leftovers=(folder / "checkpoints",))


AnyJob = Table | TradeOff | Study | Drawn | SettingsTable
_VOC, _CONTEXT = ([f"{setting}-zs3-{split}" for split in _SPLITS] for setting in ("voc", "context"))

JOBS: dict[str, AnyJob] = {
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
    "fig1": Drawn(
        "The features of ZS3Net and of JoEm, and where each expects every class, on unseen-4 of PASCAL VOC.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        figures.two_spaces,
        methods=("zs3net", "joem"),
    ),
    "fig2b": Drawn(
        "What L_center and L_bar pull features at boundaries to, on unseen-4 of PASCAL VOC.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        figures.boundaries,
        table="ablation",
        methods=("joem-center", "joem-bar"),
    ),
    "fig5": TradeOff(
        "CS and AC over gamma and sigma on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4"]},
    ),
    "supp-table1": SettingsTable(
        "The settings of ZS3Net and SPNet on PASCAL VOC, as published and as in these recipes; trains nothing.",
        {"paper": ["voc-zs3-4", "voc-spnet"], "lite": ["voc-zs3-4", "voc-spnet"]},
    ),
    "supp-table2": Table(
        "Every class on unseen-4 of PASCAL VOC: ZS3Net with two weights, ZS3Net on JoEm's encoder, JoEm.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        table="per-class",
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
        "Scores over lambda, at the paper's sigma of 0.5, and over sigma on every split of PASCAL VOC.",
        {"paper": _VOC, "lite": _VOC},
        "sc_weight",
        calibration.LAMBDAS,
        sigma=0.5,
    ),
    "supp-fig4": Study(
        "Scores over lambda, at the paper's sigma of 0.5, and over sigma on every split of PASCAL Context.",
        {"paper": _CONTEXT},
        "sc_weight",
        calibration.LAMBDAS,
        sigma=0.5,
    ),
    "supp-fig5": Drawn(
        "Pictures loss by loss on unseen-4: PASCAL Context at the paper's scale, PASCAL VOC at lite scale.",
        {"paper": ["context-zs3-4"], "lite": ["voc-zs3-4"]},
        figures.pictures,
        table="ablation",
        rules=("nn", "ac"),
    ),
    "supp-fig6": Study(
        "Scores over r and over sigma in the SPNet setting.",
        {"paper": ["voc-spnet"], "lite": ["voc-spnet"]},
        "r",
        (1, 2, 4),
    ),
    "supp-fig7": Drawn(
        "Pictures by ZS3Net and by JoEm on unseen-4 of PASCAL VOC.",
        {"paper": ["voc-zs3-4"], "lite": ["voc-zs3-4"]},
        figures.pictures,
        methods=("zs3net", "joem"),
    ),
    "supp-fig8": Drawn(
        "Pictures by ZS3Net and by JoEm on unseen-4 of PASCAL Context.",
        {"paper": ["context-zs3-4"]},
        figures.pictures,
        methods=("zs3net", "joem"),
    ),
    "supp-fig9": Drawn(
        "Pictures by CaGNet and by JoEm in the SPNet setting, background masked by the truth.",
        {"paper": ["voc-spnet"], "lite": ["voc-spnet"]},
        figures.masked_pictures,
        methods=("cagnet", "joem"),
    ),
}
"""The tables and figures of the paper and of its supplement."""
