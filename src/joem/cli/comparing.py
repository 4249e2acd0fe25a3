"""Commands that set results beside published ones: compare, reproduce."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from joem import extras
from joem.cli import checks
from joem.cli.output import Incomplete
from joem.cli.parser import Changes, CommandLine, Names, Numbers, Told

if TYPE_CHECKING:
    from joem.studies import Plan

PaperJob = Literal[
    "table1", "table2", "table3", "fig1", "fig2b", "fig5", "supp-table1", "supp-table2", "supp-table3",
    "supp-fig2", "supp-fig3", "supp-fig4", "supp-fig5", "supp-fig6", "supp-fig7", "supp-fig8", "supp-fig9",
]  # fmt: skip
"""The names of `studies.JOBS`, known here without importing torch."""


def compare(
    *,
    recipe: str = "scenes",
    methods: Names | None = None,
    table: Literal["methods", "ablation", "embedding-space", "per-class", "names", "generators"] = "methods",
    seeds: int = 3,
    folds: int = 1,
    lambdas: Numbers | None = None,
    rates: Numbers | None = None,
    lengths: Numbers | None = None,
    time_new_class: bool = False,
    out: Path = Path("compare"),
    changes: Changes,
    command: CommandLine,
) -> Told:
    """Train and score every system of the field side by side, beside the published numbers.

    All have the same pictures, words and encoder; the split is --data.protocol. Runs that are done are not repeated:
    the same command goes on after an interruption.

    Example:
        joem compare --recipe scenes --methods joem,spnet,zs3net --seeds 3 --out compare

    Args:
        recipe: what all share, a YAML file or the name of one in the box: joem data --recipes lists them.
        methods: names separated by commas, of methods or of a table's rows, as their folders are called; all if not
            given.
        table: which rows; for generators, --seeds and --folds do not count.
        seeds: runs per row.
        folds: folds of held-out seen classes to choose the parameters of the rules on; 0 takes the recipe's own.
        lambdas: values of lambda to try on the folds, for rows that have one; the recipe's own if not given.
        rates: multiples of every row's learning rates to try on the folds, such as 0.3,1,3; only the recipe's own if
            not given.
        lengths: multiples of every row's epochs to try on the folds, the first of them with every rate, the others with
            the best one; only the recipe's own if not given.
        time_new_class: also time how long every system takes to know one more class; some train for it.
        out: folder of the runs and the tables.
        changes: settings of the recipe to replace.
        command: what was called.
    """
    checks.recipe_files(recipe, changes)
    extras.require("train", "Training")
    from joem import calibration, parallel, studies
    from joem import recipe as recipes

    names = None if methods in (None, ["all"]) else methods
    shared, own = recipes.load(recipe, changes), studies.load_own(recipe, changes)
    if table == "generators":
        qualities = studies.generators(shared, out, names, own=own)
        yield studies.markdown(*studies.quality_table(qualities))
        return {name: [vars(row) for row in rows] for name, rows in qualities.items()}
    paces = calibration.Paces(rates or (1.0,), lengths or (1.0,)) if rates or lengths else None
    found = studies.compare(shared, out, table, names, seeds, folds, own, lambdas, time_new_class, paces)
    files = parallel.from_first(lambda: studies.write(found, out, command))
    yield studies.markdown(*studies.score_table(found))
    yield f"\n{studies.scale(found)}\n\nWith every rule and class: {', '.join(map(str, files))}"
    told = "\n  ".join(found.failures)
    again = f"{len(found.failures)} could not be run; the same command runs only these again:\n  {told}"
    return Incomplete(found.to_dict(), again if found.failures else None)


def reproduce(
    name: PaperJob | None = None,
    *,
    scale: Literal["paper", "official", "lite"] = "paper",
    root: str | None = None,
    vectors: list[str] | None = None,
    splits: Names | None = None,
    methods: Names | None = None,
    seeds: int | None = None,
    folds: int = 3,
    lambdas: Numbers | None = None,
    time_new_class: bool = False,
    dry_run: bool = False,
    step_seconds: float | None = None,
    out: Path | None = None,
    changes: Changes,
    command: CommandLine,
) -> Told:
    """A table or figure of the paper, with the published values beside ours.

    Trains what it needs and writes a table, and figures where the paper has them. Runs that are done are kept. Every
    setting of the recipes can be replaced, for all rows alike.

    Example:
        joem reproduce fig5 --scale lite --root VOCdevkit
        joem reproduce table1 --root DATA --splits 4 --model.weights FILE --train.devices 4 --dry-run

    Args:
        name: which table or figure; without one, all are listed.
        scale: paper (its networks and data, by its equations), official (as the authors' code trains) or lite (VOC on a
            CPU).
        root: where the data are, if not where the recipes say.
        vectors: source of word vectors, if not the recipes' own; of some data only as context=SOURCE or
            voc-spnet=SOURCE, given several times.
        splits: some of its splits, separated by commas, by the number of unseen classes (4) or by name (voc-zs3-4).
        methods: some rows of a table, separated by commas.
        seeds: runs per row of a table; 5, or 3 at lite scale, if not given.
        folds: folds of held-out seen classes that tables choose lambda and the parameters of the rules on; 0 takes the
            recipes' own.
        lambdas: values of lambda to try on the folds, separated by commas; the paper's grid and the
            recipes' own at paper scale, the recipes' own at the others if not given.
        time_new_class: also time how long every system of a table takes to know one more class; some train for it.
        dry_run: train nothing: list every training with its steps and an estimate of its hours.
        step_seconds: seconds of one step where it will run, for --dry-run; if not given, one is measured here.
        out: folder of the job; runs/reproduce/NAME if not given.
        changes: settings of all recipes to replace.
        command: what was called.
    """
    if root is not None:
        checks.data_root("voc", root)
    words = checks.vectors_by_data(vectors or ())
    checks.weights_file(str(changes.get("model", {}).get("weights", "none")))
    from joem import studies

    if name is None:
        for each, job in studies.JOBS.items():
            yield f"  {each:12} {job.about} ({' or '.join(studies.scales(job))})"
        return {each: {"about": job.about, "scales": studies.scales(job)} for each, job in studies.JOBS.items()}
    extras.require("train", "Training")
    folder = out or Path("runs") / "reproduce" / name
    request = studies.Request(
        name, folder, scale, root, words, folds, changes, splits, methods, seeds, lambdas, time_new_class, command
    )
    if dry_run:
        return (yield from _plan(studies.plan(studies.trainings(request), step_seconds), step_seconds))
    rows = studies.reproduce(request)
    if "seen" in rows[0]:
        yield from _score_lines(rows)
    else:
        yield studies.markdown(list(rows[0]), [list(row.values()) for row in rows])
    yield f"\nTable and figures: {folder}"
    return rows


def _score_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'':56}{'seen / unseen / hIoU':>24}{'published':>24}  {'on':14}had seen before"
    for row in rows:
        ours, theirs = _three(row), _three(row["published"])
        on = row["published_on"] or ""
        yield f"{row['what']:56}{ours:>24}{theirs:>24}  {on:14}{row['had_seen_before']}"


def _plan(found: "Plan", step_seconds: float | None) -> Told:
    """What would be trained, and how long it would take."""
    yield f"{'':56}{'steps':>10}{'hours':>12}"
    for cost in found.costs:
        yield f"{cost.what:56}{cost.steps:>10,}{'done' if cost.done else f'{cost.hours:.2f}':>12}"
    done = sum(cost.done for cost in found.costs)
    yield f"\n{len(found.costs)} trainings, {done} of them done: {found.hours:,.1f} hours one after the other."
    if step_seconds is not None:
        yield f"A step was taken to last the {step_seconds:g} s of --step-seconds."
    for each in found.measured:
        told = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in each.seconds.items())
        yield f"A step of {each.method} was measured on {each.device} with a batch of {each.batch}: {told}."
    if found.measured:
        yield "Hours are scaled from that linearly to the batch of the recipe, shared by its devices: on other devices"
        yield "measure again there, or give --step-seconds. Reading pictures and scoring are not counted."
    yield from found.notes
    return found.to_dict()


def _three(scores: Any) -> str:
    values = [scores[key] for key in ("seen", "unseen", "hiou")] if scores else []
    return " / ".join("-" if value is None else f"{value:.1f}" for value in values)
