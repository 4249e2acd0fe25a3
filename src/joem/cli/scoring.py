"""Commands that look at how good a trained model is: evaluate, sweep, report."""

from pathlib import Path
from typing import TYPE_CHECKING

from joem import decision
from joem.cli import checks
from joem.cli.output import table
from joem.cli.parser import Names, RuleGrids, RuleValues, Told
from joem.errors import BadUsage, choose

if TYPE_CHECKING:
    from joem.engine import Model, Problem


def evaluate(
    model: Path, *, root: str | None = None, device: str = "cpu", rule: str | None = None, values: RuleValues
) -> Told:
    """Score a trained model: seen, unseen, hIoU, per class.

    Example:
        joem evaluate runs/scenes

    Args:
        model: a model, a checkpoint or the folder of a run.
        root: where the data are, if not where the recipe says.
        device: where the networks run, such as cuda.
        rule: one rule; the usual ones and the model's own if not given.
        values: the model's if not given; for
    """
    checks.values_of_rule(rule, values)
    checks.model_with_data(model, root)
    from joem import engine, parallel

    parallel.join()
    loaded, problem = load(model, device, root)
    own = loaded.recipe.decision
    # The model's own rule comes last: its classes and confusions are told.
    others = [each.name for each in decision.RULES.values() if each.candidate and each.name != own.rule]
    rules = [rule] if rule else [*others, own.rule]
    decisions = [own.replace(name, **values) for name in rules]
    results = [found.to_dict() for found in engine.evaluate(loaded, problem, decisions)]
    rows = [(row["rule"], row) for row in results]
    yield from table("rule", ("miou_seen", "miou_unseen", "hiou", "pixel_accuracy"), rows)
    last = results[-1]
    yield f"\nPer class with {last['rule']} (* unseen):"
    for name, value in last["per_class"].items():
        marked = name + (" *" if name in last["unseen"] else "")
        yield f"  {marked:28} " + ("   -" if value is None else f"{value:5.1f}")
    yield "\nConfusions that hurt most:"
    for pair in last["worst_confusions"]:
        yield f"  {pair['truth']} taken for {pair['predicted']}: {pair['percent']:.1f} % of its pixels"
    yield f"\n{last['images']} images, {last['images_per_second']:.1f} per second."
    return results


def sweep(
    run: Path,
    *,
    root: str | None = None,
    device: str = "cpu",
    rules: Names | None = None,
    grids: RuleGrids,
    out: Path | None = None,
) -> Told:
    """The whole seen-unseen trade-off of every rule from one pass.

    Gives the scores of every value of each rule's parameter on the evaluation pictures, with curves as CSV, JSON and
    PNG. The best values found here are hindsight: choose with joem tune.

    Example:
        joem sweep runs/scenes --sigmas 1,0.9,0.8,0.7

    Args:
        run: a model, a checkpoint or the folder of a run.
        root: where the data are, if not where the recipe says.
        device: where the networks run, such as cuda.
        rules: which rules, separated by commas; all that have a parameter if not given.
        grids: values to try, separated by commas; from no correction to the strongest if not given; for
        out: folder for the curves; RUN/sweep if not given.
    """
    swept = [choose("rule to sweep", name, decision.calibrated()) for name in rules or decision.calibrated()]
    tried = {name: _with_neutral(name, grid) for name, grid in grids.items() if grid}
    for name in tried:
        choose("parameter of the swept rules", name, [each.name for each in map(_parameter, swept)])
    checks.model_with_data(run, root)
    from joem import calibration, parallel
    from joem.report import sweep_files

    parallel.join()
    loaded, problem = load(run, device, root)
    _need_unseen(problem)
    curves = calibration.sweep(loaded, problem, swept, tried)
    folder = out or run / "sweep"
    sweep_files.save(curves, loaded.recipe.decision, folder)
    rows = [("nearest neighbour", next(iter(curves.values())).points()[0])]
    for rule, curve in curves.items():
        rows.append((f"{rule}, {curve.parameter} {curve.values[curve.best]:.3g}", curve.points()[curve.best]))
    yield from table("best with hindsight", ("miou_seen", "miou_unseen", "hiou"), rows)
    yield "\n" + "   ".join(f"area under {rule}: {curve.area:.1f}" for rule, curve in curves.items())
    yield f"Curves: {folder}/curves.csv, curves.json and *.png"
    return [curve.to_dict() for curve in curves.values()]


def report(
    run: Path,
    *,
    root: str | None = None,
    device: str = "cpu",
    out: Path | None = None,
    figures: Path | None = None,
    pair: Names | None = None,
) -> Told:
    """One HTML file that shows a run: scores, curves, confusions, classes, pictures.

    It holds the best and the worst pictures, the embedding space, recipe and provenance too, and needs no other file.

    Example:
        joem report runs/scenes

    Args:
        run: a model, a checkpoint or the folder of a run.
        root: where the data are, if not where the recipe says.
        device: where the networks run, such as cuda.
        out: the file; RUN/report.html if not given.
        figures: also write the embedding space as PNG files into this folder.
        pair: SEEN,UNSEEN: the classes of the Apollonius figure; those that meet most often if not given.
    """
    if pair is not None and len(pair) != 2:
        raise BadUsage(f"--pair takes a seen and an unseen class with a comma between them, got {', '.join(pair)!r}.")
    checks.model_with_data(run, root)
    from joem.report import run_page

    loaded, problem = load(run, device, root)
    _need_unseen(problem)
    file = out or run / "report.html"
    found = run_page.write(loaded, problem, run, file, (pair[0], pair[1]) if pair else None, figures)
    yield f"{found.own.scores}\nReport: {file}"
    return found.own.to_dict()


def _need_unseen(problem: "Problem") -> None:
    """Refuse, before the pass, a model for which every class was trained: there is no trade-off to show."""
    if not problem.vocabulary.unseen:
        raise BadUsage(
            "This model has no unseen class, so there is no trade-off between seen and unseen ones to show: joem "
            "evaluate scores it; to hold classes out, train with --data.unseen."
        )


def _parameter(rule: str) -> decision.Parameter:
    found = decision.calibrated()[rule].parameter
    assert found is not None  # of those that can be swept
    return found


def _with_neutral(name: str, grid: list[float]) -> list[float]:
    """The values in the order of their correction, after the one that corrects nothing."""
    parameter = decision.parameters()[name]
    values = {parameter.neutral, *(parameter.check(value) for value in grid)}
    return sorted(values, reverse=not parameter.rises)


def load(path: Path, device: str, root: str | None) -> "tuple[Model, Problem]":
    """A model and the evaluation pictures it was made for, wherever they are now."""
    from joem import engine

    model = engine.Model.load(path).to(device)
    if root is not None:
        model.recipe = model.recipe.changed(data={"root": root})  # stored maps go by it too
    return model, engine.open_problem(model.recipe.data, needed=("val",))
