"""Pictures of the joint embedding space of any run: the ideas of the paper's figures 1 to 4, from real pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from joem import data, engine, losses
from joem.decision import RULES, Decision, Ranking
from joem.engine import Model, Problem
from joem.errors import BadUsage, choose
from joem.methods.classifier import ClassifierMethod
from joem.report import plots
from joem.report.sheets import unseen_first
from joem.segmenter import Segmenter
from joem.vocabulary import VOID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTIONS = {
    "space": "Prototypes (stars) and features (dots), on the two axes along which prototypes and features of the seen "
    "classes vary most together; both centred and scaled to the same spread. A line leads from each prototype to the "
    "mean of its features. Small grey stars: the prototypes of the other kind.",
    "relations": "Relations r between word vectors and r̂ between prototypes of the seen classes: the semantic "
    "consistency loss makes the second follow the first. Without the diagonal, each row from its least (dark) to its "
    "largest (light).",
    "apollonius": "Pixels whose nearest seen and nearest unseen class are these two, at their true distances from both "
    "prototypes. The unseen class wins to the right of a rule's line; AC asks besides that no second seen class is "
    "nearer.",
    "boundary": "One picture; its prototypes stacked by the mask; its features; the virtual prototypes of the "
    "boundary-aware loss. Light and dark, blue and yellow: the two axes along which its prototypes differ most; "
    "features have a range of their own. Grey: void.",
}
"""What each group of figures shows."""

_PICTURES, _PER_CLASS = 80, 100
_PULLED, _MIXED = 24, 0.4  # features at boundaries that are drawn, and how far from an equal mixture they may be
_SEEN, _UNSEEN = "#009e73", "#cc79a7"  # not those of the rules
_TAU_S, _TAU_MU, _R = 5.0, 1.0, 4  # the paper's, for methods that have no such setting


def draw(model: Model, problem: Problem, pair: tuple[str, str] | None = None) -> dict[str, "list[Figure]"]:
    """All figures of a run by name, from some of its evaluation pictures; for `pair` see `apollonius`."""
    features, labels = sample_features(model, problem)
    groups = {
        "space": space(model, features, labels),
        "relations": relations(model),
        "apollonius": apollonius(model, features, labels, pair),
        "boundary": boundary(model, problem),
    }
    return {name: figures for name, figures in groups.items() if figures}


def save(drawn: "dict[str, list[Figure]]", folder: Path) -> list[Path]:
    """Write figures as PNG files."""
    return [
        plots.save(figure, folder / f"{name}-{number}.png")
        for name, figures in drawn.items()
        for number, figure in enumerate(figures, start=1)
    ]


def space(
    model: Model, features: Tensor, labels: Tensor, centres: Tensor | None = None, title: str = ""
) -> "list[Figure]":
    """Prototypes and feature clouds in two dimensions, seen and unseen classes apart but on the same axes.

    Args:
        model: gives prototypes, names and colours.
        features: (N,C).
        labels: (N,).
        centres: (K,C), drawn in place of the prototypes.
        title: put before "seen classes" and "unseen classes".
    """
    prototypes, vocabulary = model.prototypes().cpu() if centres is None else centres, model.vocabulary
    chosen = _some_of_each(labels, _PER_CLASS)
    features, labels = features[chosen], labels[chosen]
    stars, dots = _common_plane(prototypes, features, labels, vocabulary.seen_indices)
    low, high = torch.cat([stars, dots]).aminmax(dim=0)
    (left, bottom), (right, top) = (low - 0.04 * (high - low)).tolist(), (high + 0.04 * (high - low)).tolist()
    figures = []
    for kind, own in (("seen", vocabulary.seen_indices), ("unseen", vocabulary.unseen_indices)):
        figure, axes = plots.new_axes("first axis", "second axis", size=(5.4, 4.8), title=f"{title}{kind} classes")
        axes.set(xlim=(left, right + 0.1 * (right - left)), ylim=(bottom, top))  # names are written to the right
        others = [label for label in range(len(vocabulary)) if label not in own]
        axes.plot(*stars[others].T, "*", color="#999999", markersize=5)
        for label in own:
            colour, cloud = _colour(model, label), dots[labels == label]
            axes.plot(*cloud.T, ".", color=colour, alpha=0.4, markersize=3)
            if len(cloud):
                axes.plot(*torch.stack([stars[label], cloud.mean(0)]).T, color=plots.INK, linewidth=0.5, alpha=0.7)
            star = {"markersize": 13, "markeredgecolor": plots.INK, "markeredgewidth": 0.6, "zorder": 3}
            axes.plot(*stars[label], "*", color=colour, **star)  # above all clouds
        plots.name_points(axes, stars[list(own)], [vocabulary.starred[label] for label in own])
        figures.append(figure)
    return figures


def relations(model: Model) -> "list[Figure]":
    """Relations r and r^ of the seen classes side by side, the paper's equations 7 and 8."""
    seen, settings = list(model.vocabulary.seen_indices), model.recipe.method
    names = [model.vocabulary.names[label] for label in seen]
    spaces = (
        ("r: word vectors", model.vectors, getattr(settings, "tau_s", _TAU_S)),
        ("r̂: prototypes", model.prototypes().cpu(), getattr(settings, "tau_mu", _TAU_MU)),
    )
    figures = []
    for name, points, tau in spaces:
        matrix = losses.relations(points[seen], tau)
        diagonal = torch.eye(len(names), dtype=torch.bool)
        low = matrix.amin(1, keepdim=True)  # the diagonal is always the largest
        high = matrix.masked_fill(diagonal, 0).amax(1, keepdim=True)
        shown = ((matrix - low) / (high - low).clamp(min=1e-12)).masked_fill(diagonal, torch.nan)
        side = max(4.2, 0.17 * len(names) + 1)
        figure, axes = plots.new_axes("", "", size=(side, side), grid=False, title=f"{name}, τ = {tau:g}")
        axes.imshow(shown, cmap="cividis", vmin=0, vmax=1)
        plots.name_ticks(axes, names, "xx-small")
        figures.append(figure)
    return figures


def apollonius(model: Model, features: Tensor, labels: Tensor, pair: tuple[str, str] | None = None) -> "list[Figure]":
    """The decision between a seen and an unseen class, at true distances.

    With e the direction from mu_s to mu_u, a pixel is drawn at x = (v - mu_s) . e and y = |v - mu_s - x e|: its
    distances to both prototypes are those of the embedding space, so the lines are where the rules really decide.

    Args:
        model: gives prototypes, names, sigma and gamma.
        features: (N,C).
        labels: (N,).
        pair: names of the seen and the unseen class; if None, those that meet most often.
    """
    vocabulary, prototypes = model.vocabulary, model.prototypes().cpu()
    seen, unseen = list(vocabulary.seen_indices), list(vocabulary.unseen_indices)
    if not seen or not unseen or not len(features):
        return []
    distances = torch.cdist(features, prototypes)
    near = torch.tensor(seen)[distances[:, seen].argmin(1)]
    near_unseen = torch.tensor(unseen)[distances[:, unseen].argmin(1)]
    meetings = near * len(vocabulary) + near_unseen
    if pair is None:
        of_unseen = torch.isin(labels, torch.tensor(unseen)) & (labels == near_unseen)
        chosen = int((meetings[of_unseen] if of_unseen.any() else meetings).mode().values)
        s, u = divmod(chosen, len(vocabulary))
    else:
        s = vocabulary.index(choose("seen class", pair[0], vocabulary.seen))
        u = vocabulary.index(choose("unseen class", pair[1], vocabulary.unseen))
    pixels = (meetings == s * len(vocabulary) + u).nonzero().flatten()
    pixels = pixels[_some_of_each(labels[pixels], 2 * _PER_CLASS)]
    points = _beside_axis(features[pixels], prototypes[s], prototypes[u])
    return [_apollonius(model, (s, u), points, labels[pixels], float((prototypes[u] - prototypes[s]).norm()))]


def _apollonius(model: Model, pair: tuple[int, int], points: Tensor, labels: Tensor, span: float) -> "Figure":
    figure, axes = plots.new_axes("along the line between the prototypes", "distance from it", size=(6.4, 5.2))
    names = [model.vocabulary.starred[label] for label in pair]
    groups = [
        ("truth: another class", (labels != pair[0]) & (labels != pair[1]), "#999999", "."),
        (f"truth: {names[0]}", labels == pair[0], _SEEN, "o"),
        (f"truth: {names[1]}", labels == pair[1], _UNSEEN, "x"),
    ]
    for name, chosen, colour, marker in groups:
        if chosen.any():
            axes.plot(*points[chosen].T, marker, color=colour, markersize=4, alpha=0.6, label=name)
    for name, position, colour in ((names[0], 0.0, _SEEN), (names[1], span, _UNSEEN)):
        axes.plot(position, 0, "*", color=colour, markersize=18, markeredgecolor=plots.INK)
        axes.annotate(name, (position, 0), xytext=(0, 12), textcoords="offset points", ha="center", color=plots.INK)
    top = max([span / 2, *points[:, 1].tolist()]) * 1.1
    left = min([0.0, *points[:, 0].tolist()]) - 0.12 * span
    right = max([span, *points[:, 0].tolist()]) + 0.12 * span
    axes.set(xlim=(left, right), ylim=(-0.04 * top, top), aspect="equal")
    _decision_lines(axes, model.recipe.decision, span, (left, right, top))
    figure.legend(frameon=False, fontsize="small", labelcolor=plots.INK, loc="outside lower center", ncols=2)
    return figure


def _decision_lines(axes: "Axes", decision: Decision, span: float, limits: tuple[float, float, float]) -> None:
    """Where the usual rules turn from a prototype at (0,0) to one at (span,0), within (left, right, top)."""
    left, right, top = limits
    x, y = torch.meshgrid(torch.linspace(left, right, 500), torch.linspace(0, top, 500), indexing="xy")
    seen, unseen, no_label = torch.hypot(x, y), torch.hypot(x - span, y), torch.zeros_like(x, dtype=torch.int64)
    ranking = Ranking(no_label, seen, torch.full_like(x, torch.inf), no_label, unseen)
    for rule in RULES.values():
        own, turning = decision.replace(rule.name), rule.turning(ranking)
        corrects = rule.parameter is None or own.value != rule.parameter.neutral
        if rule.candidate and corrects and turning.min() < own.value < turning.max():
            colour = rule.colour if rule.parameter else plots.INK
            axes.contour(x, y, turning, levels=[own.value], colors=colour, linestyles=rule.line, linewidths=2)
            axes.plot([], [], rule.line, color=colour, linewidth=2, label=str(own))  # for the legend


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
    size, r = features.shape[2:], getattr(model.recipe.method, "r", _R)
    sharp, smooth = (virtual_prototypes(sample.labels, table, size, r=factor) for factor in (1, r))
    labels = losses.resized(sample.labels[None], size)[0]
    void = labels == VOID
    if void.all():
        return []
    prototypes = table[torch.unique(labels[~void])]
    centre = prototypes.mean(0)
    main = _main_axes((prototypes - centre).T @ (prototypes - centre))
    maps = [(map_.movedim(0, -1) - centre) @ main for map_ in (sharp, features[0], smooth)]
    own = maps[0][~void].aminmax(dim=0)  # of the prototypes, sharp or blended
    limits = (own, maps[1].flatten(0, 1).aminmax(dim=0), own)
    coloured = [_two_axes_as_colour(*part) for part in zip(maps, limits, strict=True)]
    for map_ in (coloured[0], coloured[2]):
        map_[void] = 0.5
    titles = ("prototypes by the mask", "features", f"virtual prototypes, r = {r}")
    figures = []
    for title, image in [("picture", sample.image.permute(1, 2, 0)), *zip(titles, coloured, strict=True)]:
        figure, axes = plots.new_axes("", "", size=(3.0, 2.8), grid=False, title=title)
        axes.imshow(image, interpolation="nearest")
        axes.set_axis_off()
        figures.append(figure)
    return figures


def boundary_pull(model: Model, problem: Problem, r: int, title: str = "") -> "Figure":
    """Features at boundaries between two seen classes, and what L_center and L_bar pull them to: the paper's figure 2b.

    The classes are the two seen ones that meet most often. Drawn as in `apollonius`, in units of the distance between
    their prototypes: a dashed line leads to the prototype of the feature's own class, a solid one to its virtual
    prototype, on the line between the two; the lengths of both are those of the embedding space.

    Args:
        model: gives features and prototypes.
        problem: the data.
        r: of the virtual prototypes, 2 or more.
        title: of the figure.
    """
    features, labels, pairs, weights = _mixed_pixels(model, problem, r)
    first, second = divmod(
        int((pairs[:, 0] * len(model.vocabulary) + pairs[:, 1]).mode().values), len(model.vocabulary)
    )
    chosen = (pairs == torch.tensor([first, second])).all(dim=1)
    features, labels, weights = features[chosen], labels[chosen], weights[chosen]
    ends = model.prototypes().cpu()[[first, second]]
    points = _beside_axis(features, *ends) / (ends[1] - ends[0]).norm()
    zero = torch.zeros_like(weights)
    targets = {"--": torch.stack([(labels == second).float(), zero], 1), "-": torch.stack([weights, zero], 1)}
    size = (5.4, 5.4)
    figure, axes = plots.new_axes("along the line between the prototypes", "distance from it", size=size, title=title)
    some = slice(None, None, max(1, len(points) // _PULLED))
    kinds = (("--", "#999999", "own prototype"), ("-", "#0072b2", "virtual prototype"))
    for style, colour, name in kinds:
        mean = float((points - targets[style]).norm(dim=1).mean())
        axes.plot([], [], style, color=colour, label=f"to its {name}: {mean:.2f} on average")
        for point, target in zip(points[some], targets[style][some], strict=True):
            axes.plot(*torch.stack([point, target]).T, style, color=colour, linewidth=0.7)
    axes.plot(*targets["-"][some].T, "D", color="white", markeredgecolor="#0072b2", markersize=5)
    for place, label in enumerate((first, second)):
        own = points[some][labels[some] == label]
        star = {"markersize": 18, "markeredgecolor": plots.INK, "zorder": 3}
        axes.plot(*own.T, "o", color=_colour(model, label), markersize=4)
        axes.plot(place, 0, "*", color=_colour(model, label), label=model.vocabulary.names[label], **star)
    axes.set_ylim(-0.05 * float(points[:, 1].max()), None)
    told = {"frameon": False, "fontsize": "small", "labelcolor": plots.INK, "markerscale": 0.6}
    figure.legend(loc="outside lower center", ncols=2, **told)
    return figure


def _mixed_pixels(model: Model, problem: Problem, r: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels of evenly chosen evaluation pictures whose virtual prototype lies between those of two seen classes.

    Returns:
        their features (N,C), labels (N,), the two classes in order (N,2), and the weight of the second (N,).
    """
    seen, void = torch.tensor(model.vocabulary.seen_indices), torch.eye(len(model.vocabulary) + 1)
    parts, step = [], max(1, len(problem.val) // _PICTURES)
    for _, features, truth in engine.encoded(model, problem.val, range(0, len(problem.val), step)):
        size = features.shape[2:]
        weights = virtual_prototypes(truth, void, size, r)[seen].flatten(1).T  # of every class in the virtual prototype
        labels = losses.resized(truth[None], size).flatten()
        both, order = weights.topk(2).values.sum(1), weights.topk(2).indices.sort(dim=1).values
        second = weights.gather(1, order[:, 1:])[:, 0]
        mixed = (both > 0.999) & ((second - 0.5).abs() < _MIXED) & (labels[:, None] == seen[order]).any(1)
        rows = features[0].cpu().flatten(1).T
        parts.append((rows[mixed], labels[mixed], seen[order][mixed], second[mixed]))
    found = tuple(torch.cat(column) for column in zip(*parts, strict=True))
    if not len(found[0]):
        raise BadUsage(
            f"No evaluation picture has a boundary between two seen classes that virtual prototypes with r = {r} "
            "blend: an r of 2 or more and more pictures are needed."
        )
    features, labels, pairs, second = found
    return features, labels, pairs, second


def _two_axes_as_colour(map_: Tensor, limits: tuple[Tensor, Tensor]) -> Tensor:
    """(H,W,2) as RGB (H,W,3): the first axis from dark to light, the second from blue to yellow.

    Colour-blind people tell both apart.
    """
    low, high = limits
    light, yellow = ((map_ - low) / (high - low).clamp(min=1e-6)).clamp(0, 1).unbind(-1)
    light, yellow = 0.25 + 0.5 * light, 0.5 * (yellow - 0.5)
    return torch.stack([light + yellow, light + yellow, light - yellow], dim=-1)


def virtual_prototypes(labels: Tensor, prototypes: Tensor, size: tuple[int, ...] | torch.Size, r: int) -> Tensor:
    """mu~ of one picture, (C,H,W): prototypes stacked by the labels at 1/r of the size, interpolated back.

    Args:
        labels: (Ho,Wo).
        prototypes: (K+1,C), the last one that of void.
        size: (H,W).
        r: how many times smaller the labels are made; 1 gives the sharp map.
    """
    coarse = losses.resized(losses.resized(labels[None], size), [max(1, side // r) for side in size])[0]
    stacked = prototypes[coarse.masked_fill(coarse == VOID, len(prototypes) - 1)].permute(2, 0, 1)
    return F.interpolate(stacked[None], size=tuple(size), mode="bilinear", align_corners=False)[0]


def _of_void(model: Model) -> Tensor:
    """What the semantic encoder makes of no word at all."""
    with torch.no_grad():
        nothing = torch.zeros_like(model.vectors[:1]).to(next(model.method.parameters()).device)
        return model.method.prototypes(nothing, ("void",))


def sample_features(model: Model, problem: Problem) -> tuple[Tensor, Tensor]:
    """Features (N,C) and labels (N,) of evenly chosen evaluation pictures, unseen classes first among them."""
    order, parts = unseen_first(problem), []
    for _, features, truth in engine.encoded(model, problem.val, order[:: max(1, len(order) // _PICTURES)]):
        labels = losses.resized(truth[None], features.shape[2:]).flatten()
        parts.append((features[0].cpu().flatten(1).T[labels != VOID], labels[labels != VOID]))
    features, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return features, labels


def _some_of_each(labels: Tensor, most: int) -> Tensor:
    """Indices of up to `most` evenly spread pixels of every label."""
    parts = []
    for label in torch.unique(labels):
        indices = (labels == label).nonzero().flatten()
        parts.append(indices[:: max(1, len(indices) // most)][:most])
    return torch.cat([torch.empty(0, dtype=torch.int64), *parts])


def _main_axes(variation: Tensor) -> Tensor:
    """The two axes (C,2) of the largest variation, which is symmetric (C,C)."""
    axes: Tensor = torch.linalg.eigh(variation).eigenvectors[:, -2:].flip(1)
    return axes


def _common_plane(prototypes: Tensor, features: Tensor, labels: Tensor, seen: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Prototypes and features on a plane, (K,2) and (N,2), each centred and scaled to a spread of one.

    Its axes have the largest covariance between the prototypes of seen classes and the means of their features. What
    features have in common and prototypes have not, which is much, tells no class from another and is left out.
    """
    shown = [label for label in seen if (labels == label).any()]
    means = torch.stack([features[labels == label].mean(0) for label in shown])
    pairs = [points - points.mean(0) for points in (prototypes[shown], means)]
    together = pairs[0].T @ pairs[1]
    main = _main_axes(together + together.T)
    stars, dots = (
        (points - some.mean(0)) @ main / (own @ main).square().mean().sqrt().clamp(min=1e-12)
        for points, some, own in zip((prototypes, features), (prototypes[shown], means), pairs, strict=True)
    )
    return stars, dots


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
