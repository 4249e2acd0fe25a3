"""Whether a generator makes better features of classes it never met than a Gaussian would."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from joem import calibration, data, engine, jobs, methods
from joem.engine import Model, Problem
from joem.errors import BadUsage, choose
from joem.jobs import Job
from joem.losses import resized
from joem.losses.compared import KERNELS, fitted_kernels, moment_matching
from joem.methods.cagnet import CaGNet
from joem.methods.generative import GenerativeMethod, by_class
from joem.recipe import Recipe
from joem.studies.rows import Own, Variant
from joem.studies.tables import Table

_PICTURES, _PER_PICTURE, _FEWEST = 60, 40, 20


@dataclass(frozen=True)
class Quality:
    """sqrt(MMD²) to real features of one held-out class, the smaller the better.

    Attributes:
        name: the class.
        real: of other real features of the class, the best there can be.
        generator: of features made from the class's word.
        gaussian: of a Gaussian with the class's mean and variances, measured on its real features: it knows what no
            zero-shot generator can know.
        seen_gaussian: of a Gaussian with the mean and variances of all seen pixels: it knows nothing of the class.
    """

    name: str
    real: float
    generator: float
    gaussian: float
    seen_gaussian: float


def generators(
    recipe: Recipe, out: Path, names: Sequence[str] | None = None, own: Own | None = None, folds: int = 4
) -> dict[str, list[Quality]]:
    """The quality of the generator of several methods, all that have one if None; what is in `out` is not repeated.

    Each is trained with a part of the SEEN classes held out, and asked for features of these; the unseen classes and
    the evaluation pictures are not touched.

    Args:
        recipe: the data, the words, the encoders and the training that all methods share.
        out: folder of the runs.
        names: methods with a generator.
        own: the recipes of methods that have their own, by name.
        folds: into how many parts the seen classes are cut; the first one is held out.
    """
    engine.launched(recipe.train)
    known = [name for name, method in methods.METHODS.items() if issubclass(method, GenerativeMethod | CaGNet)]
    wanted = known if names is None else [choose("method with a generator", name, known) for name in names]
    problem = engine.open_problem(recipe.data)
    recipes = {name: Variant(name, name).recipe(recipe, own or {}, recipe.train.seed) for name in wanted}
    made = {name: _job(each, problem, out / "generators" / name, folds) for name, each in recipes.items()}
    found = jobs.run_all(made, "generators")
    return {name: [Quality(**row) for row in result["classes"]] for name, result in found.items()}


def _job(recipe: Recipe, problem: Problem, folder: Path, folds: int) -> Job:
    def work() -> dict[str, Any]:
        fold = calibration.fold_problems(problem, folds, recipe.train.seed)[0]
        model = calibration.train_in(folder, recipe, fold)
        return {"classes": [asdict(quality) for quality in held_out_quality(model, fold)]}

    identity = {"recipe": recipe.identity(), "folds": folds}
    return Job(folder / "quality.json", identity, work, leftovers=(folder / "checkpoints", folder / "model"))


def quality_table(found: Mapping[str, Sequence[Quality]]) -> Table:
    """Means over the held-out classes, and on how many of them the generator beats the Gaussians."""
    head = ["sqrt(MMD²) to real", "other real", "generator", "its Gaussian", "seen Gaussian", "beats its", "beats seen"]
    body = []
    for name, rows in found.items():
        means = [fmean(getattr(row, key) for row in rows) for key in ("real", "generator", "gaussian", "seen_gaussian")]
        beaten = [sum(row.generator < getattr(row, key) for row in rows) for key in ("gaussian", "seen_gaussian")]
        body.append([name, *(f"{mean:.3f}" for mean in means), *(f"{count} of {len(rows)}" for count in beaten)])
    return head, body


@torch.no_grad()
def held_out_quality(model: Model, fold: Problem) -> list[Quality]:
    """The quality of a trained generator on the unseen classes of a problem."""
    method, vocabulary = model.method.eval(), fold.vocabulary
    if not isinstance(method, GenerativeMethod | CaGNet):
        raise BadUsage(f"{model.recipe.method.name} has no generator: give zs3net, zs3net_joem, csrl or cagnet.")
    pixels, size = _real_features(method, fold)
    seen = torch.cat([rows for label, rows in pixels.items() if label in vocabulary.seen_indices])
    context = resized(data.seen_only(fold.train, vocabulary, fold.rule).labels(0)[None], size).to(seen.device)
    kernels = fitted_kernels(seen) if method.settings.fit_kernels else KERNELS
    found = []
    for label in vocabulary.unseen_indices:
        if len(pixels.get(label, ())) < _FEWEST:
            continue  # too few to say anything
        rows = pixels[label][torch.randperm(len(pixels[label]))]
        real, other = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        made = method.make([label], len(other), context)[:, 0]
        guesses = (other, made, _gaussian(other, len(other)), _gaussian(seen, len(other)))
        distances = (float(moment_matching(real, guess, kernels)) for guess in guesses)
        found.append(Quality(vocabulary.names[label], *distances))
    return found


def _real_features(method: GenerativeMethod | CaGNet, fold: Problem) -> tuple[dict[int, Tensor], torch.Size]:
    """Features of the evaluation pictures by class, and the size of a feature map."""
    device = next(method.parameters()).device
    found: dict[int, list[Tensor]] = {}
    for index in range(min(len(fold.val), _PICTURES)):
        sample = fold.val[index]
        features = method.encoded(method.trunk.normalised(sample.image)[None].to(device))
        small = resized(sample.labels[None].to(device), features.shape[2:])
        for label, rows in by_class(features, small, _PER_PICTURE).items():
            found.setdefault(label, []).append(rows)
    return {label: torch.cat(rows) for label, rows in found.items()}, features.shape[2:]


def _gaussian(rows: Tensor, count: int) -> Tensor:
    """Features (count,C) from the Gaussian with the rows' mean and variances."""
    return rows.mean(dim=0) + rows.std(dim=0) * torch.randn(count, rows.shape[1], device=rows.device)
