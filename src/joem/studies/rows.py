"""The lines of the paper's tables: what each trains, by which rule it decides, what was published."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from joem import methods, protocols
from joem.errors import choose
from joem.protocols import PublishedScores
from joem.recipe import Recipe

TABLES = ("methods", "ablation", "embedding-space", "names")
_OF_THE_PAPER = {"ablation": "ablation", "embedding-space": "embedding_space"}  # as protocols.yaml calls them


@dataclass(frozen=True)
class Variant:
    """One thing to train: a method, with some of its settings changed.

    Attributes:
        name: what its folder is called.
        method: the method's name.
        changes: settings of `joem.recipe.MethodSettings` that differ from the recipe.
        control: what replaces the word vectors, see `joem.recipe.SemanticsSettings`.
    """

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    control: Literal["none", "shuffled", "random"] = "none"

    def recipe(self, base: Recipe, seed: int) -> Recipe:
        """The recipe of one run."""
        recipe = deepcopy(base)
        recipe.method = replace(recipe.method, name=self.method, **self.changes)
        recipe.semantics.control = self.control
        recipe.train.seed = seed
        return recipe


@dataclass(frozen=True)
class Row:
    """One line of a table: what is trained, by which rule it decides, what was published."""

    title: str
    variant: Variant
    rule: str
    published: PublishedScores | None = None


def rows(table: str, recipe: Recipe, names: Sequence[str] | None = None) -> tuple[Row, ...]:
    """The lines of a table, or those of them whose variants are named, in that order."""
    own = {"methods": _methods, "ablation": _ablation, "embedding-space": _embedding_space, "names": _names}
    found = tuple(own[choose("table", table, TABLES)](recipe))
    known = dict.fromkeys(row.variant.name for row in found)
    chosen = known if names is None else dict.fromkeys(choose(f"row of {table}", name, known) for name in names)
    return tuple(row for name in chosen for row in found if row.variant.name == name)


def published_on(table: str, recipe: Recipe) -> str | None:
    """The protocol that the published numbers of a table were measured on, whatever data the runs have.

    >>> published_on("ablation", Recipe()), published_on("methods", Recipe())
    ('context-zs3-4', None)
    """
    if table not in _OF_THE_PAPER:
        return recipe.data.protocol if _published(recipe) else None
    protocol: str = protocols.published_tables()[_OF_THE_PAPER[table]]["protocol"]
    return protocol


def _methods(recipe: Recipe) -> Iterator[Row]:
    """Every system by its own rule."""
    published = _published(recipe)
    for name in methods.METHODS:
        method = methods.get(name)
        yield Row(method.title or name, Variant(name, name), method.rule, published.get(name))


def _ablation(recipe: Recipe) -> Iterator[Row]:
    """The losses added to cross entropy one by one, then the rules."""
    for published in protocols.published_tables()["ablation"]["rows"]:
        used = published["losses"]
        changes = ({} if "bar" in used else {"r": 1}) | ({} if "sc" in used else {"sc_weight": 0.0})
        variant = Variant(f"joem-{'-'.join(used)}" if changes else "joem", "joem", changes)
        title = " + ".join(["L_ce", *(f"L_{name}" for name in used)]) + f", {published['rule'].upper()}"
        yield Row(title, variant, published["rule"], _as_published(published))


def _names(recipe: Recipe) -> Iterator[Row]:
    """What ImageNet's names teach beyond masks, and what is left of it without the right words."""
    cosine = "joem-cosine"
    weights = {"teacher_weight": recipe.method.teacher_weight, "mixture_weight": recipe.method.mixture_weight}
    strict, every = {"names": "strict", **weights}, {"names": "all", **weights}
    masks = {"names": "none", "mixture_weight": 8.0}  # as chosen on folds, docs/experiments.md
    for title, variant in (
        ("JoEm, the paper's objective", Variant("joem", "joem", {"names": "none"})),
        ("JoEm with mixed prototypes", Variant("joem-mixture", "joem-mixture", {"names": "none"})),
        ("JoEm on cosines, masks alone", Variant(f"{cosine}-none", cosine, masks)),
        ("joem+names (strict)", Variant(f"{cosine}-strict", cosine, strict)),
        ("joem+names", Variant(f"{cosine}-all", cosine, every)),
        ("strict, shuffled words", Variant(f"{cosine}-strict-shuffled", cosine, strict, "shuffled")),
        ("strict, random vectors", Variant(f"{cosine}-strict-random", cosine, strict, "random")),
    ):
        published = _published(recipe).get("joem") if variant.name == "joem" else None
        yield Row(title, variant, methods.get(variant.method).rule, published)


def _published(recipe: Recipe) -> Mapping[str, PublishedScores]:
    protocol = recipe.data.protocol
    return protocols.get(protocol).published if protocol else {}


def _embedding_space(recipe: Recipe) -> Iterator[Row]:
    """Two-stage training and generators against the joint space."""
    in_the_paper = protocols.published_tables()["embedding_space"]["rows"]
    numbers = {
        (row["method"], row.get("note", "+".join(row.get("losses", [])))): _as_published(row) for row in in_the_paper
    }
    joem = protocols.get(str(published_on("embedding-space", recipe))).published["joem"]
    centre = Variant("two_stage-center", "two_stage", {"r": 1, "sc_weight": 0.0})
    own = numbers["zs3net", "reimplemented by the JoEm authors"]
    for title, variant, published in (
        ("V->S", Variant("visual_to_semantic", "visual_to_semantic"), None),
        ("S->V: L_center", centre, numbers["two_stage", "center"]),
        ("S->V: L_bar + L_sc", Variant("two_stage", "two_stage"), numbers["two_stage", "bar+sc"]),
        ("ZS3Net", Variant("zs3net", "zs3net"), own),
        (
            "ZS3Net on JoEm's encoder",
            Variant("zs3net_joem", "zs3net_joem"),
            numbers["zs3net", "on JoEm's visual encoder"],
        ),
        ("JoEm", Variant("joem", "joem"), joem),
    ):
        yield Row(title, variant, methods.get(variant.method).rule, published)


def _as_published(row: Mapping[str, Any]) -> PublishedScores:
    return PublishedScores(row["seen"], row["unseen"], row["hiou"])
