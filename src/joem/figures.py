"""Pictures of the joint embedding space of any run: the ideas of the paper's figures 2, 3 and 4, from real pixels."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from joem import data, decision, losses
from joem.engine import Model, Problem
from joem.methods.classifier import ClassifierMethod
from joem.report import plots
from joem.segmenter import Segmenter
from joem.vocabulary import VOID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "space": "Prototypes (stars) and features (dots) of seen and of unseen classes, on the two main axes of both. "
    "Small grey stars: the prototypes of the other kind.",
    "relations": "Relations r between word vectors and r̂ between prototypes of the seen classes: the semantic "
    "consistency loss makes the second follow the first. Without the diagonal, each row scaled to its largest.",
    "apollonius": "Pixels whose nearest seen and nearest unseen class are these two, at their true distances from both "
    "prototypes. Pixels inside the Apollonius circle stay with the seen class; the dashed line is nearest neighbour.",
    "boundary": "One picture; its prototypes stacked by the mask; its features; the virtual prototypes that the "
    "boundary-aware loss pulls features to. Colours: the three main axes of the prototypes.",
}
"""What each group of figures shows."""

_PICTURES, _PER_CLASS, _PER_PAIR = 80, 60, 1500


def draw(model: Model, problem: Problem) -> dict[str, "list[Figure]"]:
    """All figures of a run by name, from some of its evaluation pictures."""
    features, labels = _sample(model, problem)
    groups = {
        "space": space(model, features, labels),
        "relations": relations(model),
        "apollonius": apollonius(model, features, labels),
        "boundary": boundary(model, problem),
    }
    return {name: figures for name, figures in groups.items() if figures}


def save(model: Model, problem: Problem, folder: Path) -> list[Path]:
    """Write all figures as PNG files."""
    return [
        plots.save(figure, folder / f"{name}-{number}.png")
        for name, figures in draw(model, problem).items()
        for number, figure in enumerate(figures, start=1)
    ]


def space(model: Model, features: Tensor, labels: Tensor) -> "list[Figure]":
    """Prototypes and feature clouds in two dimensions, seen and unseen classes apart but on the same axes.

    Args:
        model: gives prototypes, names and colours.
        features: (N,C).
        labels: (N,).
    """
    prototypes, vocabulary = model.prototypes().cpu(), model.vocabulary
    chosen = _some_of_each(labels, _PER_CLASS)
    features, labels = features[chosen], labels[chosen]
    stacked = torch.cat([prototypes, features])
    centre, main = _main_axes(stacked, 2)
    stars, dots = ((points - centre) @ main for points in (prototypes, features))
    figures = []
    for kind, own in (("seen", vocabulary.seen_indices), ("unseen", vocabulary.unseen_indices)):
        figure, axes = plots.new_axes("first axis", "second axis", size=(6.4, 5.2))
        axes.set_title(f"{kind} classes", color=plots.INK, fontsize="medium")
        others = [label for label in range(len(vocabulary)) if label not in own]
        axes.plot(*stars[others].T, "*", color="#999999", markersize=5)
        for label in own:
            colour = _colour(model, label)
            axes.plot(*dots[labels == label].T, ".", color=colour, alpha=0.35, markersize=3)
            axes.plot(*stars[label], "*", color=colour, markersize=13, markeredgecolor=plots.INK, markeredgewidth=0.6)
            axes.annotate(
                plots.starred(vocabulary.names[label], vocabulary), stars[label].tolist(), xytext=(5, 4),
                textcoords="offset points", color=plots.INK, fontsize="x-small",
            )  # fmt: skip
        figures.append(figure)
    return figures


def relations(model: Model) -> "list[Figure]":
    """Relations r and r^ of the seen classes side by side, the paper's equations 7 and 8."""
    seen, settings = list(model.vocabulary.seen_indices), model.recipe.method
    names = [model.vocabulary.names[label] for label in seen]
    spaces = (
        (f"r: word vectors, τ = {settings.tau_s:g}", losses.relations(model.vectors[seen], settings.tau_s)),
        (f"r̂: prototypes, τ = {settings.tau_mu:g}", losses.relations(model.prototypes().cpu()[seen], settings.tau_mu)),
    )
    figures = []
    for title, matrix in spaces:
        others = matrix.fill_diagonal_(0)
        side = max(4.2, 0.17 * len(names) + 1)
        figure, axes = plots.new_axes("", "", size=(side, side), grid=False)
        axes.set_title(title, color=plots.INK, fontsize="medium")
        axes.imshow(others / others.amax(1, keepdim=True).clamp(min=1e-12), cmap="cividis", vmin=0, vmax=1)
        if len(names) <= plots.MOST_NAMES:
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize="xx-small")
            axes.set_yticks(range(len(names)), names, fontsize="xx-small")
        figures.append(figure)
    return figures


def apollonius(model: Model, features: Tensor, labels: Tensor) -> "list[Figure]":
    """The decision between the seen and the unseen class that meet most often, at true distances.

    With e the direction from mu_s to mu_u, a pixel is drawn at x = (v - mu_s) . e and y = |v - mu_s - x e|: its
    distances to both prototypes are those of the embedding space, so the circle is where the rule really decides.
    """
    vocabulary, wish = model.vocabulary, model.recipe.decision
    prototypes = model.prototypes().cpu()
    seen, unseen = list(vocabulary.seen_indices), list(vocabulary.unseen_indices)
    if not seen or not unseen or not len(features):
        return []
    distances = torch.cdist(features, prototypes)
    near = torch.tensor(seen)[distances[:, seen].argmin(1)]
    near_unseen = torch.tensor(unseen)[distances[:, unseen].argmin(1)]
    pairs = near * len(vocabulary) + near_unseen
    of_unseen = torch.isin(labels, torch.tensor(unseen)) & (labels == near_unseen)
    pair = int(pairs[of_unseen].mode().values) if of_unseen.any() else int(pairs.mode().values)
    s, u = divmod(pair, len(vocabulary))
    members = (pairs == pair).nonzero().flatten()[:_PER_PAIR]
    ratio = decision.distance_ratio(wish.sigma, wish.squared)
    span = float((prototypes[u] - prototypes[s]).norm())
    points = _beside_axis(features[members], prototypes[s], prototypes[u])
    return [_apollonius(model, (s, u), points, labels[members], ratio, span)]


def _apollonius(
    model: Model, pair: tuple[int, int], points: Tensor, labels: Tensor, ratio: float, span: float
) -> "Figure":
    vocabulary = model.vocabulary
    figure, axes = plots.new_axes("along the line between the prototypes", "distance from it", size=(7.0, 4.6))
    groups = [
        (f"truth: {plots.starred(vocabulary.names[pair[0]], vocabulary)}", labels == pair[0], "#0072b2", "o"),
        (f"truth: {plots.starred(vocabulary.names[pair[1]], vocabulary)}", labels == pair[1], "#d55e00", "x"),
        ("truth: another class", (labels != pair[0]) & (labels != pair[1]), "#999999", "."),
    ]
    for name, chosen, colour, marker in groups:
        if chosen.any():
            axes.plot(*points[chosen].T, marker, color=colour, markersize=4, alpha=0.6, label=name)
    axes.plot(0, 0, "*", color="#0072b2", markersize=18, markeredgecolor=plots.INK)
    axes.plot(span, 0, "*", color="#d55e00", markersize=18, markeredgecolor=plots.INK)
    axes.axvline(span / 2, color=plots.INK, linestyle="--", linewidth=1, label="nearest neighbour")
    top = max(float(points[:, 1].max()), span / 2) * 1.1
    left, right = min(float(points[:, 0].min()), 0.0), max(float(points[:, 0].max()), span)
    if ratio < 1:
        angle = torch.linspace(0, torch.pi, 200)
        centre, radius = -(ratio**2) * span / (1 - ratio**2), ratio * span / (1 - ratio**2)
        circle = f"Apollonius circle, d₁ / d₂ = {ratio:.2f}"
        axes.plot(centre + radius * angle.cos(), radius * angle.sin(), color="#009e73", linewidth=2, label=circle)
    axes.set(xlim=(left - 0.08 * span, right + 0.08 * span), ylim=(-0.04 * top, top), aspect="equal")
    axes.legend(
        frameon=False, fontsize="small", labelcolor=plots.INK, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2
    )
    return figure


def boundary(model: Model, problem: Problem) -> "list[Figure]":
    """A picture, its stacked prototypes, its features and its virtual prototypes, as colours.

    None for a classifier: void has no row in it, and nothing draws features to virtual prototypes.
    """
    if isinstance(model.method, ClassifierMethod):
        return []
    index = int((data.class_presence(problem.val).sum(1)).argmax())
    sample = problem.val[index]
    features = Segmenter(model).encode(sample.image).features.cpu()
    table = torch.cat([model.prototypes(), _of_void(model)]).cpu()
    size = features.shape[2:]
    sharp = virtual_prototypes(sample.labels, table, size, r=1)
    smooth = virtual_prototypes(sample.labels, table, size, r=model.recipe.method.r)
    centre, main = _main_axes(table, 3)
    maps = [(map_.movedim(0, -1) - centre) @ main for map_ in (sharp, features[0], smooth)]
    low, high = (torch.quantile(maps[0].flatten(0, 1), q, dim=0) for q in (0.0, 1.0))
    titles = ("prototypes by the mask", "features", f"virtual prototypes, r = {model.recipe.method.r}")
    shown = [("picture", sample.image.permute(1, 2, 0))]
    shown += [(t, ((m - low) / (high - low).clamp(min=1e-6)).clamp(0, 1)) for t, m in zip(titles, maps, strict=True)]
    figures = []
    for title, image in shown:
        figure, axes = plots.new_axes("", "", size=(3.2, 3.2), grid=False)
        axes.imshow(image, interpolation="nearest")
        axes.set_axis_off()
        axes.set_title(title, color=plots.INK, fontsize="medium")
        figures.append(figure)
    return figures


def virtual_prototypes(labels: Tensor, prototypes: Tensor, size: tuple[int, ...] | torch.Size, r: int) -> Tensor:
    """mu~ of one picture, (C,H,W): prototypes stacked by the labels at 1/r of the size, interpolated back.

    Args:
        labels: (Ho,Wo).
        prototypes: (K+1,C), the last one that of void.
        size: (H,W).
        r: how many times smaller the labels are made; 1 gives the sharp map.
    """
    fine = F.interpolate(labels[None, None].double(), size=tuple(size))
    coarse = F.interpolate(fine, size=[max(1, side // r) for side in size])[0, 0].long()
    stacked = prototypes[coarse.masked_fill(coarse == VOID, len(prototypes) - 1)].permute(2, 0, 1)
    return F.interpolate(stacked[None], size=tuple(size), mode="bilinear", align_corners=False)[0]


def _of_void(model: Model) -> Tensor:
    """What the semantic encoder makes of no word at all."""
    with torch.no_grad():
        nothing = torch.zeros_like(model.vectors[:1]).to(next(model.method.parameters()).device)
        return model.method.prototypes(nothing, ("void",))


def _sample(model: Model, problem: Problem) -> tuple[Tensor, Tensor]:
    """Features (N,C) and labels (N,) of evenly chosen evaluation pictures, unseen classes first among them."""
    features, labels = zip(*_encoded(model, problem), strict=True)
    return torch.cat(features), torch.cat(labels)


def _encoded(model: Model, problem: Problem) -> Iterator[tuple[Tensor, Tensor]]:
    unseen = list(problem.vocabulary.unseen_indices)
    order = data.class_presence(problem.val)[:, unseen].sum(1).argsort(descending=True, stable=True)
    segmenter = Segmenter(model)
    for index in order[:: max(1, len(order) // _PICTURES)].tolist():
        sample = problem.val[index]
        features = segmenter.encode(sample.image).features[0].cpu()
        labels = F.interpolate(sample.labels[None, None].double(), size=features.shape[1:]).long().flatten()
        known = labels != VOID
        yield features.flatten(1).T[known], labels[known]


def _some_of_each(labels: Tensor, most: int) -> Tensor:
    """Places of up to `most` evenly spread members of every label."""
    parts = []
    for label in torch.unique(labels):
        places = (labels == label).nonzero().flatten()
        parts.append(places[:: max(1, len(places) // most)][:most])
    return torch.cat(parts)


def _main_axes(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The centre (C,) of points (N,C) and the axes (C,count) along which they vary most."""
    centre = points.mean(0)
    offsets = points - centre
    return centre, torch.linalg.eigh(offsets.T @ offsets).eigenvectors[:, -count:].flip(1)


def _beside_axis(features: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """(N,2): how far along the line from start to end each feature lies, and how far from it."""
    direction = F.normalize(end - start, dim=0)
    offset = features - start
    along = offset @ direction
    return torch.stack([along, (offset - along[:, None] * direction).norm(dim=1)], dim=1)


def _colour(model: Model, label: int) -> str:
    if model.vocabulary.names[label] == model.vocabulary.background:
        return "#777777"
    return "#{:02x}{:02x}{:02x}".format(*model.vocabulary.colours[label])
