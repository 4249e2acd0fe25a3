"""What jobs of the paper give, and those of them that draw what trained models do: pictures, spaces, boundaries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor

from joem import decision, engine, protocols
from joem.decision import Decision
from joem.engine import Model, Problem
from joem.methods.generative import GenerativeMethod
from joem.protocols import PublishedScores
from joem.report import embedding, plots
from joem.report.picture_grid import Column, picture_grid
from joem.report.sheets import spread_unseen
from joem.studies.request import Request, Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Column], Problem], Image]
"""One image of what models do on the data of a problem."""

_MADE = 200  # features of every class that a generator makes to show where it expects the class


@dataclass
class Findings:
    """What a job gives: the rows of its table, its figures by name, and what could not be run."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: "dict[str, Figure | Image]" = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def score_row(
    what: str,
    scores: Sequence[float | None],
    before: str,
    published: PublishedScores | None = None,
    published_on: str | None = None,
) -> dict[str, Any]:
    """One line of a job's table: what had been seen before, and `published_on`, the protocol of published scores."""
    keys = ("seen", "unseen", "hiou")
    known = published and dict(zip(keys, published.three, strict=True))
    return {
        "what": what,
        **dict(zip(keys, scores, strict=True)),
        "published": known,
        "published_on": published_on if known else None,
        "had_seen_before": before,
    }


@dataclass(frozen=True)
class Drawn:
    """One image of some rows of a table, each trained once; its rows are the scores of these very models.

    Runs and parameters are those of the jobs for tables, with the first seed.

    Args:
        about: what it shows.
        protocols: scale -> the one protocol.
        draw: makes the image.
        table: which table of `compare`.
        methods: some of its rows, by the names of their variants; all if None.
        rules: only rows that decide by one of these; all if None.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]
    draw: Draw
    table: str = "methods"
    methods: Sequence[str] | None = None
    rules: Sequence[str] | None = None

    def run(self, request: Request) -> Findings:
        """Train what is missing, and draw if all of it could be run."""
        (name,) = request.chosen(self.protocols)
        compared = request.compare(name, self.table, self.methods, seeds=1)
        folder, device = request.compared(name), engine.launched(compared.recipe.train).device
        columns, found = [], Findings(failures=[f"{name}: {failure}" for failure in compared.failures])
        for row in compared.rows:
            if self.rules is not None and row.rule not in self.rules:
                continue
            (result,) = compared.found(row)
            parameters = {key: result[key] for key in ("rule", *decision.parameters()) if key in result}
            model = Model.load(folder / row.variant.name / "seed-0" / "model")
            chosen, title = Decision.from_dict(parameters), row.title.removesuffix(f", {row.rule.upper()}")
            columns.append(Column(f"{title}\n{chosen}", model.to(device), chosen))
            scores = [each["mean"] for each in compared.summary(row).values()]
            what, before = f"{name}: {title}, {chosen}", compared.seen_before(row)
            found.rows.append(score_row(what, scores, before, row.published, compared.published_on))
        if not found.failures:
            found.figures[name] = self.draw(columns, compared.problem)
        return found

    def trainings(self, request: Request) -> Iterator[Training]:
        """What `run` trains."""
        (name,) = request.chosen(self.protocols)
        return request.trainings(name, self.table, self.methods, seeds=1)


def pictures(columns: Sequence[Column], problem: Problem) -> Image:
    """Six pictures that show unseen classes, chosen by `spread_unseen`, as every model labels them."""
    return picture_grid(columns, problem, spread_unseen(problem))


def masked_pictures(columns: Sequence[Column], problem: Problem) -> Image:
    """The same with the background masked by the truth."""
    return picture_grid(columns, problem, spread_unseen(problem), mask_background=True)


def two_spaces(columns: Sequence[Column], problem: Problem) -> Image:
    """The features of models (dots) and where each expects a class (stars), seen classes above unseen ones.

    A star is the class's prototype; for a generative model, the mean of the features that it makes of the word.
    """
    spaces = []
    for column in columns:
        features, labels = embedding.sample_features(column.model, problem)
        title = column.title.partition("\n")[0] + ": "
        spaces.append(embedding.space(column.model, features, labels, _made_centres(column.model), title))
    return plots.beside(list(zip(*spaces, strict=True)))


@torch.no_grad()
def _made_centres(model: Model) -> Tensor | None:
    """The means (K,C+1) of the features that a generator makes of every class; None for other models."""
    if not isinstance(model.method, GenerativeMethod):
        return None
    method, device = model.method.eval(), next(model.method.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(0)
        no_context = torch.zeros(1, 1, 1, dtype=torch.int64, device=device)
        made = method.make(range(len(model.vocabulary)), _MADE, no_context)
    return F.pad(made.mean(dim=0), (0, 1)).cpu()  # as `features` of a classifier are


def boundaries(columns: Sequence[Column], problem: Problem) -> Image:
    """What L_center and L_bar pull features at boundaries to, with the r of the model trained with L_bar."""
    r = max(cast(int, getattr(column.model.recipe.method, "r", 1)) for column in columns)
    titles = [column.title.partition("\n")[0] for column in columns]
    drawn = [
        embedding.boundary_pull(each.model, problem, r, title) for each, title in zip(columns, titles, strict=True)
    ]
    return plots.beside([drawn])


@dataclass(frozen=True)
class SettingsTable:
    """Supplement, table 1: what the settings of the benchmarks ask for, beside what the recipes have.

    Args:
        about: what it shows.
        protocols: scale -> the protocols whose recipes are shown.
    """

    about: str
    protocols: Mapping[str, Sequence[str]]

    def run(self, request: Request) -> Findings:
        """Two lines per setting; nothing is trained."""
        rows, known = [], {each["protocol"]: each for each in protocols.published_tables()["settings"]["rows"]}
        for name in request.chosen(self.protocols):
            published, recipe = known[name], request.settings(name)
            head = recipe.model.head.name if recipe.model.head else "experts"
            ours = {
                "architecture": f"{head} ({recipe.model.backbone})",
                "initialization": recipe.model.weights,
                "semantic features": recipe.semantics.vectors,
            }
            for whose, own in (("published", published), (request.base(name), ours)):
                rows.append(
                    {"setting": f"{published['title']}, {whose}", **_asked(name), **{key: own[key] for key in ours}}
                )
        return Findings(rows)

    def trainings(self, request: Request) -> Iterator[Training]:
        """None."""
        return iter(())


def _asked(name: str) -> dict[str, str]:
    """What a protocol asks for."""
    protocol = protocols.get(name)
    alike = [each for each in map(protocols.get, protocols.names()) if each.dataset == protocol.dataset]
    exclude = protocol.rule == "exclude"
    return {
        "splits": str(sum(each.rule == protocol.rule for each in alike)),
        "training": "exclude (unseen classes)" if exclude else "ignore (background & unseen classes)",
        "inference": "-" if exclude else "ignore (background)",
    }
