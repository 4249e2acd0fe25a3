"""Whether a generator makes better features of classes it never met than a Gaussian would."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from joem import calibration, data, engine, methods
from joem.compare.tables import Table
from joem.engine import Model, Problem
from joem.io import read_json, write_json
from joem.errors import BadUsage, choose
from joem.losses import resized
from joem.losses.compared import KERNELS, fitted_kernels, moment_matching
from joem.methods.cagnet import CaGNet
from joem.methods.generative import GenerativeMethod, by_class
from joem.recipe import Recipe

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
    recipe: Recipe,
    out: Path,
    names: Sequence[str] | None = None,
    progress: bool = True,
    own: Mapping[str, Recipe] | None = None,
) -> dict[str, list[Quality]]:
    """The quality of the generator of several methods, all that have one if None; what is in `out` is not repeated.

    `own` are the recipes of methods that have their own, by name.
    """
    known = [name for name, method in methods.METHODS.items() if issubclass(method, GenerativeMethod | CaGNet)]
    problem = engine.open_problem(recipe.data)
    found = {}
    for name in known if names is None else [choose("method with a generator", name, known) for name in names]:
        base = (own or {}).get(name, recipe)
        settings = replace(base, method=replace(base.method, name=name))
        file = out / "generators" / f"{name}.json"
        kept = read_json(file) if file.exists() else None
        if kept is None:
            qualities = generator_quality(settings, problem, progress=progress)
            kept = {"recipe": settings.to_dict(), "classes": [asdict(quality) for quality in qualities]}
            write_json(file, kept)
        if kept["recipe"] != settings.to_dict():
            raise BadUsage(f"{file} is of another recipe: give another --out, or remove it.")
        found[name] = [Quality(**row) for row in kept["classes"]]
    return found


def quality_table(found: Mapping[str, Sequence[Quality]]) -> Table:
    """Means over the held-out classes, and on how many of them the generator beats the Gaussians."""
    head = ["sqrt(MMD²) to real", "other real", "generator", "its Gaussian", "seen Gaussian", "beats its", "beats seen"]
    body = []
    for name, rows in found.items():
        means = [fmean(getattr(row, key) for row in rows) for key in ("real", "generator", "gaussian", "seen_gaussian")]
        beaten = [sum(row.generator < getattr(row, key) for row in rows) for key in ("gaussian", "seen_gaussian")]
        body.append([name, *(f"{mean:.3f}" for mean in means), *(f"{count} of {len(rows)}" for count in beaten)])
    return head, body


def generator_quality(recipe: Recipe, problem: Problem, folds: int = 4, progress: bool = True) -> list[Quality]:
    """Train a generative method with a part of the SEEN classes held out, and look at what it makes of these.

    Args:
        recipe: of a method with a generator.
        problem: the whole problem; its unseen classes and evaluation pictures are not touched.
        folds: into how many parts the seen classes are cut; the first one is held out.
        progress: show progress.
    """
    fold = calibration.fold_problems(problem, folds, recipe.train.seed)[0]
    return held_out_quality(engine.train(recipe, problem=fold, progress=progress), fold)


@torch.no_grad()
def held_out_quality(model: Model, fold: Problem) -> list[Quality]:
    """The quality of a trained generator on the unseen classes of a problem."""
    method, vocabulary = model.method.eval(), fold.vocabulary
    if not isinstance(method, GenerativeMethod | CaGNet):
        raise BadUsage(f"{model.recipe.method.name} has no generator: give zs3net, zs3net_joem, csrl or cagnet.")
    pixels, size = _real_features(method, fold)
    seen = torch.cat([rows for label, rows in pixels.items() if label in vocabulary.seen_indices])
    context = resized(data.seen_only(fold.train, vocabulary, fold.rule).labels(0)[None], size).to(seen.device)
    kernels = fitted_kernels(seen) if model.recipe.method.generator.fit_kernels else KERNELS
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
    transform = data.evaluation(mean=method.visual.mean, std=method.visual.std)
    device = next(method.parameters()).device
    found: dict[int, list[Tensor]] = {}
    for index in range(min(len(fold.val), _PICTURES)):
        sample = fold.val[index]
        image, labels = transform(sample.image, sample.labels)
        features = method.encoded(image[None].to(device))
        small = resized(labels[None].to(device), features.shape[2:])
        for label, rows in by_class(features, small, _PER_PICTURE).items():
            found.setdefault(label, []).append(rows)
    return {label: torch.cat(rows) for label, rows in found.items()}, features.shape[2:]


def _gaussian(rows: Tensor, count: int) -> Tensor:
    """Features (count,C) from the Gaussian with the rows' mean and variances."""
    return rows.mean(dim=0) + rows.std(dim=0) * torch.randn(count, rows.shape[1], device=rows.device)
