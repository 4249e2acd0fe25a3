"""Commands that train: quickstart, train, tune."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem import extras
from joem.cli import checks
from joem.cli.output import table
from joem.cli.parser import Changes, Numbers, Told
from joem.errors import BadUsage

if TYPE_CHECKING:
    from joem.model import Model
    from joem.recipe import Recipe


def quickstart(*, out: Path = Path("quickstart"), recipe: str = "scenes", seed: int = 0) -> Told:
    """The whole job on generated pictures, in minutes, with a report to look at.

    Segments the photos in the package by words, with the model in the box. Then trains on generated pictures, chooses
    the decision on held-out seen classes, evaluates, compares with shuffled words, adds a word.

    Example:
        joem quickstart

    Args:
        out: folder for the model and the report.
        recipe: the recipe to run, with data.kind scenes.
        seed: seed of the pictures and the training.
    """
    changes = {"train": {"seed": seed}, "data": {"seed": seed}}
    checks.recipe_files(recipe, changes)
    extras.require("train", "Training")
    from joem import recipe as recipes
    from joem.studies import quickstart as study

    settings, started = recipes.load(recipe, changes), time.monotonic()
    shown = study.photos()
    out.mkdir(parents=True, exist_ok=True)
    shown.save(out / "photos.png")
    yield f"Photos segmented by words: {out / 'photos.png'}   ({time.monotonic() - started:.0f} s)"
    numbers = study.run(settings, out, shown)
    rows = [(rule.upper(), row) for rule, row in numbers["results"].items()]
    rows += [(f"{rule.upper()}, shuffled words", row) for rule, row in numbers["shuffled_control"].items()]
    yield from table("rule", rows)
    new = numbers["new_class"]
    yield f"\nA word that was not in training, {new['name']!r}: IoU {new['iou']:.1f}, added without training."
    yield f"Report: {out / 'report.html'}   model: {out / 'model'}   ({numbers['seconds']:.0f} s)"
    return numbers


def train(
    recipe: str,
    *,
    out: Path | None = None,
    from_: str | None = None,
    from_data: str | None = None,
    resume: bool = False,
    no_validation: bool = False,
    changes: Changes,
) -> Told:
    """Train a recipe on the classes you have masks for.

    Every setting of the recipe can be given as --SECTION.KEY VALUE; with the recipe before --help, its own values and
    the settings of its method are shown.

    Example:
        joem train scenes --train.epochs 5 --out runs/a

    Args:
        recipe: a YAML file, or the name of one in the box: joem data --recipes lists them.
        out: folder of the run; runs/RECIPE if not given.
        from_: start from a model that exists: its folder, a run's, or the name of one in the box (voc-names). Its words
            and prototypes stay, and what it forgets is told at the end.
        from_data: where the data of that model are, so that old and new are scored on them.
        resume: go on from the newest checkpoint of the folder.
        no_validation: do not look at evaluation pictures at the end.
        changes: settings of the recipe to replace.
    """
    if from_data is not None and from_ is None:
        raise BadUsage("--from-data says where the data of the model of --from are: add --from MODEL.")
    if from_ is not None:
        changes = _started(changes, from_)
    checks.recipe_files(recipe, changes)
    extras.require("train", "Training")
    from joem import engine
    from joem import recipe as recipes

    folder = out or Path("runs") / Path(recipe).stem
    settings = recipes.load(recipe, changes)
    with _all_faults(settings):
        settings = yield from _with_rule(settings, folder, resume)
        model = engine.train(settings, folder, resume=resume)
    yield f"Trained. Model: {folder / 'model'}   metrics: {folder / 'metrics*.csv'}"
    told: dict[str, Any] = {
        "model": str(folder / "model"),
        "metrics": sorted(str(path) for path in folder.glob("metrics*.csv")),
    }
    if no_validation:
        return {**told, "validation": None}
    told |= yield from _validated(model)
    if from_ is not None:
        forgot = engine.forgetting(model, from_data)
        yield from forgot.lines()
        told["forgetting"] = forgot.to_dict()
    return told


def _validated(model: "Model") -> Generator[str, None, dict[str, Any]]:
    """What a model comes to on pictures kept back; told in a few lines."""
    from joem import engine

    try:
        found = engine.validate(model)
    except BadUsage as error:
        reason = f"No picture was kept back, so nothing can be said of the model. {error}"
        yield reason
        return {"validation": None, "reason": reason}
    verdict = engine.verdict(found, model.recipe)
    yield f"On {found.images} pictures kept back, by {found.decision}:"
    yield from table("", [("", found.to_dict())])
    yield verdict
    return {"validation": {**found.to_dict(), "verdict": verdict}}


@contextmanager
def _all_faults(settings: "Recipe") -> Iterator[None]:
    """Where something is wrong with the files of a folder, tell all that is, not only what was met first."""
    from joem.data.faults import FaultsFound, FileFault
    from joem.data.folder import check_lists

    try:
        yield
    except (FileFault, FaultsFound):
        if settings.data.kind == "folder":
            check_lists(settings.data.root or "", settings.data.splits())
        raise


def _started(changes: Changes, start: str) -> Changes:
    """The changes with a model to start from, which has networks and words of its own."""
    for section in ("model", "method", "semantics"):
        if section in changes:
            raise BadUsage(f"--from {start} takes the networks and words of that model: leave out --{section}.*.")
    checks.model(start)
    return {**changes, "train": {**changes.get("train", {}), "start": start}}


def _with_rule(settings: "Recipe", folder: Path, resume: bool) -> Generator[str, None, "Recipe"]:
    """The recipe with the rule that held-out classes choose, if it asks for that; told in a line."""
    from joem import calibration, engine
    from joem import recipe as recipes

    written = folder / "recipe.yaml"
    if resume and written.is_file():
        return replace(settings, decision=recipes.load(str(written)).decision)
    taken = any((folder / name).exists() for name in ("model", "checkpoints"))  # the training will refuse it
    if not settings.train.folds or taken:
        return settings
    settings, reason = calibration.decide(
        settings, engine.open_problem(settings.data, needed=("train",), cache=settings.train.cache)
    )
    yield reason
    return settings


def tune(
    recipe: str,
    *,
    out: Path | None = None,
    lambdas: Numbers | None = None,
    folds: int | None = None,
    used: int | None = None,
    changes: Changes,
) -> Told:
    """Choose lambda, the rule and its parameter on seen classes held out as if unseen.

    No unseen class and no evaluation picture takes part. The same command goes on where it stopped; started several
    times, on one machine or many that share the folder, it shares the work. Writes OUT/recipe.yaml for joem train and
    OUT/tuned.json, which says why.

    Example:
        joem tune scenes --folds 3 --lambdas 0.01,0.1,1 --out runs/tuned

    Args:
        recipe: a YAML file, or the name of one in the box: joem data --recipes lists them.
        out: folder of the results; runs/RECIPE-tuned if not given.
        lambdas: values of lambda to try; for methods that have one the paper's 0.001 to 10 if not given.
        folds: parts the seen classes are cut into; by default the held-out share is the unseen share.
        used: how many of the folds to train; all if not given.
        changes: settings of the recipe to replace.
    """
    checks.recipe_files(recipe, changes)
    extras.require("train", "Training")
    from joem import calibration, engine
    from joem import recipe as recipes

    settings = recipes.load(recipe, changes)
    folder = out or Path("runs") / f"{Path(recipe).stem}-tuned"
    with _all_faults(settings):
        problem = engine.open_problem(settings.data, needed=("train",), cache=settings.train.cache)
        found = calibration.Folds(settings, problem, folder, lambdas, folds, used).tune()
    columns = [name for name in found.table[0] if name not in {"hiou", "folds"}]
    yield "".join(f"{column:>10}" for column in columns) + f"{'hIoU on held-out seen classes':>32}"
    for row in found.table:
        shown = (row[column] if isinstance(row[column], str) else f"{row[column]:.3g}" for column in columns)
        yield "".join(f"{value:>10}" for value in shown) + f"{row['hiou']:32.1f}"
    yield f"\n{found.reason}\nNext: joem train {folder / 'recipe.yaml'}"
    return found.to_dict()
