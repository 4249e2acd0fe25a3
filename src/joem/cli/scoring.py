"""Commands that look at how good a trained model is: evaluate, sweep, report, compare-pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem import decision, extras
from joem.cli import checks
from joem.cli.output import TITLES, table
from joem.cli.parser import Names, RuleGrids, RuleValues, Told
from joem.errors import BadUsage, choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from joem.engine import Model, Problem


def evaluate(
    model: Path,
    *,
    root: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    rule: str | None = None,
    values: RuleValues,
    folder: Path | None = None,
) -> Told:
    """Score a trained model: seen, unseen, hIoU, per class; or by words on a folder of other pictures.

    Example:
        joem evaluate runs/scenes
        joem evaluate voc-names --folder street-photos

    Args:
        model: a model, a checkpoint or the folder of a run.
        root: where the data are, if not where the recipe says.
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        workers: how many threads read pictures ahead; the recipe's data.workers if not given.
        rule: one rule; the usual ones and the model's own if not given.
        values: the model's if not given; for
        folder: pictures with masks (images/, masks/, classes.txt) whose classes are asked for by their words, whether
            or not the model knows them; scored per kind of word.
    """
    checks.values_of_rule(rule, values)
    if folder is not None:
        return (yield from _by_words(model, folder, device, workers, rule, values))
    checks.model_with_data(model, root)
    from joem import calibration
    from joem.seen_before import seen_before

    loaded, problem = load(model, device, root, workers)
    own = loaded.recipe.decision
    # The model's own rule comes last: its classes and confusions are told.
    others = [each.name for each in decision.RULES.values() if each.candidate and each.name != own.rule]
    rules = [rule] if rule else [*others, own.rule]
    decisions = [own.replace(name, **values) for name in rules]
    evaluations, area = calibration.evaluate(loaded, problem, decisions)
    before = seen_before(loaded.recipe)
    results = [{**found.to_dict(), "ausuc": area, "had_seen_before": before} for found in evaluations]
    yield from table("rule", ((row["rule"], row) for row in results), tuple(TITLES))
    last = results[-1]
    if area is not None:
        yield f"Area under the seen-unseen curve (AUSUC, by cs): {area:.1f}"
    yield f"Had seen before training: {before}"
    yield f"\nPer class with {last['rule']} (* unseen):"
    for name, value in zip(problem.vocabulary.starred, last["per_class"].values(), strict=True):
        yield f"  {name:28} " + ("   -" if value is None else f"{value:5.1f}")
    yield "\nConfusions that hurt most:"
    for pair in last["worst_confusions"]:
        yield f"  {pair['truth']} taken for {pair['predicted']}: {pair['percent']:.1f} % of its pixels"
    yield f"\n{last['images']} images, {last['images_per_second']:.1f} per second."
    return results


def _by_words(
    model: Path, folder: Path, device: str, workers: int | None, rule: str | None, values: "Mapping[str, float | None]"
) -> Told:
    """The free words of a folder of pictures, see `studies.free_words`."""
    from joem import Segmenter, data
    from joem.studies import free_words

    options: dict[str, Any] = {"rule": rule, "workers": workers or 0, **values}
    found = free_words.evaluate(Segmenter.load(model, device=device), data.Folder(folder), **options)
    result = found.to_dict()
    yield f"{'kind of word':34}{'classes':>8}{'mean IoU':>10}"
    for kind, title in {"all": "all words", **free_words.KINDS}.items():
        mean = result["mean_iou"][kind]
        if mean is not None:
            count = sum(
                each["kind"] == kind or (kind == "all" and bool(each["kind"])) for each in result["per_class"].values()
            )
            yield f"{title:34}{count:8}{mean:10.1f}"
    yield "\nPer class:"
    for name, each in sorted(result["per_class"].items(), key=lambda item: -item[1]["iou"]):
        yield f"  {name:28} {each['iou']:5.1f}  {free_words.KINDS.get(each['kind'], '')}"
    yield f"\n{found.images} images, {found.accuracy:.1f} % of the pixels right."
    return result


def sweep(
    run: Path,
    *,
    root: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
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
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        workers: how many threads read pictures ahead; the recipe's data.workers if not given.
        rules: which rules, separated by commas; all that have a parameter if not given.
        grids: values to try, separated by commas; from no correction to the strongest if not given; for
        out: folder for the curves; RUN/sweep if not given.
    """
    swept = list(rules or decision.calibrated())
    known = {parameter.name: parameter for parameter in map(decision.parameter_of, swept)}
    tried = {}
    for name, grid in grids.items():
        if grid:
            parameter = known[choose("parameter of the swept rules", name, known)]
            tried[name] = parameter.ordered([parameter.neutral, *map(parameter.check, grid)])
    checks.model_with_data(run, root)
    extras.require("train", "A sweep, which draws curves,", "matplotlib")
    from joem import calibration
    from joem.report import sweep_files

    loaded, problem = load(run, device, root, workers, need_unseen=True)
    curves = calibration.sweep(loaded, problem, swept, tried)
    folder = out or run / "sweep"
    sweep_files.save(curves, loaded.recipe.decision, folder)
    rows = [("nearest neighbour", next(iter(curves.values())).points()[0])]
    for rule, curve in curves.items():
        rows.append((f"{rule}, {curve.parameter} {curve.values[curve.best]:.3g}", curve.points()[curve.best]))
    yield from table("best with hindsight", rows)
    yield "\n" + "   ".join(f"area under {rule}: {curve.area:.1f}" for rule, curve in curves.items())
    yield f"Curves: {folder}/curves.csv, curves.json and *.png"
    return [curve.to_dict() for curve in curves.values()]


def report(
    run: Path,
    *,
    root: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
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
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        workers: how many threads read pictures ahead; the recipe's data.workers if not given.
        out: the file; RUN/report.html if not given.
        figures: also write the embedding space as PNG files into this folder.
        pair: SEEN,UNSEEN: the classes of the Apollonius figure; those that meet most often if not given.
    """
    if pair is not None and len(pair) != 2:
        raise BadUsage(f"--pair takes a seen and an unseen class with a comma between them, got {', '.join(pair)!r}.")
    checks.model_with_data(run, root)
    extras.require("train", "A report", "matplotlib")
    from joem.report import run_page

    loaded, problem = load(run, device, root, workers, need_unseen=True)
    file = out or run / "report.html"
    found = run_page.write(loaded, problem, run, file, (pair[0], pair[1]) if pair else None, figures)
    for name, count, which in run_page.taken_out(loaded):
        yield f"{count} names of ImageNet taken out for {name}: {which}"
    yield f"{found.own.scores}\nReport: {file}"
    return {**found.own.to_dict(), "names_taken_out": loaded.method.names_taken_out}


def compare_pictures(
    runs: list[str],
    *,
    pictures: Names | None = None,
    mask_background: bool = False,
    root: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    out: Path = Path("pictures.png"),
) -> Told:
    """The same pictures as several runs label them, in one image.

    A row has the picture, the truth and the labels of every run by its own rule; below, what the colours mean, with a
    star after unseen classes.

    Example:
        joem compare-pictures runs/zs3net runs/joem --root VOCdevkit --pictures 2007_000464,2007_000799

    Args:
        runs: models or folders of runs with the same classes; the pictures are the evaluation pictures of the first.
        pictures: names separated by commas; if not given, six that masks alone choose: of those in which an unseen
            class has at least 5 % of the labelled pixels, ordered by that class, evenly spread ones.
        mask_background: leave bare what the truth takes for background or void, as the SPNet setting scores.
        root: where the data are, if not where the recipe says.
        device: where the networks run: cpu, cuda, mps, or auto for what there is.
        workers: how many threads read pictures ahead; the recipe's data.workers if not given.
        out: the PNG file.
    """
    if out.suffix.lower() != ".png":
        raise BadUsage(f"The pictures are written as PNG: give --out a file that ends with .png, got {out}.")
    folders = [Path(run) for run in runs]
    for folder in folders:
        checks.model_with_data(folder, root)
    from joem import parallel
    from joem.io import atomic_file, writing
    from joem.report.picture_grid import Column, picture_grid

    models, (problem, *others) = zip(*(load(folder, device, root, workers) for folder in folders), strict=True)
    for run, other in zip(runs[1:], others, strict=True):
        if other.vocabulary != problem.vocabulary:
            raise BadUsage(f"{run} has other classes, or others unseen, than {runs[0]}: compare runs of one split.")
    columns = [
        Column(f"{folder.resolve().name}\n{model.recipe.decision}", model, model.recipe.decision)
        for folder, model in zip(folders, models, strict=True)
    ]
    indices = _chosen_pictures(problem, pictures)
    image = picture_grid(columns, problem, indices, mask_background)

    def write() -> None:
        with writing(out), atomic_file(out) as draft:
            image.save(draft, "PNG")

    parallel.from_first(write)
    shown = [problem.val.name(index) for index in indices]
    yield f"{', '.join(shown)}: {out}"
    return {"file": str(out), "pictures": shown}


def _chosen_pictures(problem: "Problem", names: "Sequence[str] | None") -> list[int]:
    """The evaluation pictures of these names, or those that their masks choose."""
    from joem.report.sheets import spread_unseen

    if not names:
        return spread_unseen(problem)
    known = {problem.val.name(index): index for index in range(len(problem.val))}
    unknown = [name for name in names if name not in known]
    if unknown:
        example = next(iter(known))
        raise BadUsage(f"No evaluation picture is called {', '.join(unknown)}: there are {len(known)}, as {example}.")
    return [known[name] for name in names]


def load(
    path: Path, device: str, root: str | None, workers: int | None = None, need_unseen: bool = False
) -> "tuple[Model, Problem]":
    """A model and the evaluation pictures it was made for, wherever they are now, for the processes that share them."""
    from joem import engine, parallel

    parallel.join()
    model = engine.Model.load(path).to(device)
    given = {"root": root, "workers": workers}  # stored maps go by the root too
    model.recipe = model.recipe.changed(data={key: value for key, value in given.items() if value is not None})
    problem = engine.open_problem(model.recipe.data, needed=("val",))
    if need_unseen and not problem.vocabulary.unseen:
        raise BadUsage(
            "This model has no unseen class, so there is no trade-off between seen and unseen ones to show: joem "
            "evaluate scores it; to hold classes out, train with --data.unseen."
        )
    return model, problem
