"""The lines of the paper's tables: what each trains, by which rule it decides, what was published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from joem import methods, protocols
from joem import recipe as recipes
from joem.decision import NEAREST
from joem.errors import BadUsage, choose
from joem.protocols import PublishedScores
from joem.recipe import Recipe

TABLES = ("methods", "ablation", "embedding-space", "per-class", "names")
_OF_THE_PAPER = {"ablation": "ablation", "embedding-space": "embedding_space", "per-class": "per_class"}
"""Tables as protocols.yaml calls them."""
_SHARED = ("data", "semantics", "model")
"""The sections of a recipe that all rows of a comparison share."""
_COMPARED = {"official": ("paper",)}
"""Families whose compared systems have their recipes in another one."""
_TOWER = "tower"  # a vision-language tower's own decision, where a family of recipes has one
_BLEND = "blend-masks"  # among other methods: the one that learns from masks alone, as they do

Own = Mapping[str, Recipe]
"""Rows that have a recipe of their own -> that recipe."""


@dataclass(frozen=True)
class Variant:
    """One thing to train: a method, with some of its settings changed.

    Attributes:
        name: what its folder is called.
        method: the method's name.
        changes: settings of the method that differ from the recipe.
        control: what replaces the word vectors, see `joem.settings.SemanticsSettings`.
        source: whose own recipe it takes, if there is one; the method's if empty.
    """

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    control: Literal["none", "shuffled", "random"] = "none"
    source: str = ""

    def recipe(self, base: Recipe, own: Own, seed: int) -> Recipe:
        """The recipe of one run."""
        control = {} if self.control == "none" else {"control": self.control}
        return own.get(self.source or self.method, base).changed(
            method={"name": self.method, **self.changes}, semantics=control, train={"seed": seed}
        )


@dataclass(frozen=True)
class Row:
    """One line of a table: what is trained, by which rule it decides, what was published, for every class if known."""

    title: str
    variant: Variant
    rule: str
    published: PublishedScores | None = None
    published_per_class: tuple[float, ...] = ()


def own_recipes(name: str) -> dict[str, str]:
    """The recipes in the box that rows of a comparison have of their own: row -> recipe.

    They are those of the same family: NAME up to the first "-" is lite, paper or official, which has the compared
    systems of paper; other recipes have none.

    >>> own_recipes("lite")["zs3net"], own_recipes("official-joem")["zs3net"], own_recipes("scenes")
    ('lite-zs3net', 'paper-zs3net', {})
    """
    family = name.partition("-")[0]
    found = () if Path(name).suffix else recipes.names()
    return {
        each.removeprefix(f"{known}-"): each
        for known in (*_COMPARED.get(family, ()), family)
        for each in found
        if each.startswith(f"{known}-")
    }


def load_own(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Recipe]:
    """The recipes of `own_recipes`, with the data, words and encoder of the recipe NAME, and with the same changes.

    What a system's recipe leaves as its family has it is as in NAME: its own are its method, its rates and lengths,
    where it has any. Recipes with other data, words or encoders are left out. Changes of the method and its decision
    are for the method of NAME only.
    """
    changes = changes or {}
    base = recipes.load(name, changes)
    general = {section: values for section, values in changes.items() if section not in {"method", "decision"}}
    found = {}
    for row, each in own_recipes(name).items():
        plain = recipes.load(each)
        if each == name:
            found[row] = base
        elif plain.method.name == base.method.name:  # the same system in another setting
            found[row] = recipes.load(each, changes)
        else:
            family = recipes.load(each.partition("-")[0])
            left = [part for part in (*_SHARED, "train") if getattr(plain, part) == getattr(family, part)]
            fitting = general
            if plain.model.head is None:  # experts have heads of their own
                fitting = {**general, "model": {k: v for k, v in general.get("model", {}).items() if k != "head"}}
            found[row] = replace(recipes.load(each, fitting), **{part: getattr(base, part) for part in left})
    return {row: own for row, own in found.items() if not differences(base, own)}


def differences(base: Recipe, own: Recipe) -> list[str]:
    """The sections in which a row's own recipe differs from what all rows of a comparison share.

    Heads may differ where one of them is left out: the experts of a blend have their own.
    """
    if base.model.head is None or own.model.head is None:
        base, own = (replace(each, model=replace(each.model, head=None)) for each in (base, own))
    return [section for section in _SHARED if getattr(own, section) != getattr(base, section)]


def rows(table: str, recipe: Recipe, names: Sequence[str] | None = None, own: Own | None = None) -> tuple[Row, ...]:
    """The lines of a table, or those of them whose variants are named, in that order."""
    makers = (_methods, _ablation, _embedding_space, _per_class, _names)
    found = tuple(dict(zip(TABLES, makers, strict=True))[choose("table", table, TABLES)](recipe, own or {}))
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


def _methods(recipe: Recipe, own: Own) -> Iterator[Row]:
    """Every system by its own rule; a blend, which is none without its experts, where a recipe says which."""
    published = _published(recipe)
    for name, method in methods.METHODS.items():
        if name != "blend":
            yield Row(method.title or name, Variant(name, name), method.rule, published.get(name))
        elif _BLEND in own or recipe.method.name == name:
            yield Row(method.title or name, Variant(name, name, source=_BLEND), method.rule)
    if _TOWER in own:
        yield Row("the tower alone", Variant(_TOWER, "blend", source=_TOWER), NEAREST)


def _ablation(recipe: Recipe, own: Own) -> Iterator[Row]:
    """The losses added to cross entropy one by one, then the rules."""
    for published in protocols.published_tables()["ablation"]["rows"]:
        used = published["losses"]
        changes = ({} if "bar" in used else {"r": 1}) | ({} if "sc" in used else {"sc_weight": 0.0})
        variant = Variant(f"joem-{'-'.join(used)}" if changes else "joem", "joem", changes)
        title = " + ".join(["L_ce", *(f"L_{name}" for name in used)]) + f", {published['rule'].upper()}"
        yield Row(title, variant, published["rule"], as_published(published))


def _names(recipe: Recipe, own: Own) -> Iterator[Row]:
    """What ImageNet's names teach beyond masks, and what is left of it without the right words."""
    titles = {
        "joem": "JoEm, the paper's objective",
        "blend-mixture": "JoEm with mixed prototypes",
        _BLEND: "JoEm on cosines, masks alone",
        "blend-strict": "joem+names (strict)",
        "blend-all": "joem+names",
    }
    missing = [name for name in titles if name not in own]
    if missing:
        raise BadUsage(
            f"The table names compares recipes in the box, of which {', '.join(missing)} do not go with the data, "
            "words and encoder given: start from the recipe lite, and change its data only."
        )
    variants = {title: Variant(name, own[name].method.name, source=name) for name, title in titles.items()}
    strict = variants["joem+names (strict)"]
    variants["strict, shuffled words"] = replace(strict, name="blend-strict-shuffled", control="shuffled")
    variants["strict, random vectors"] = replace(strict, name="blend-strict-random", control="random")
    for title, variant in variants.items():
        yield Row(title, variant, methods.get(variant.method).rule, _published(recipe).get(variant.name))


def _published(recipe: Recipe) -> Mapping[str, PublishedScores]:
    protocol = recipe.data.protocol
    return protocols.get(protocol).published if protocol else {}


def _embedding_space(recipe: Recipe, own: Own) -> Iterator[Row]:
    """Two-stage training and generators against the joint space."""
    in_the_paper = protocols.published_tables()["embedding_space"]["rows"]
    numbers = {
        (row["method"], row.get("note", "+".join(row.get("losses", [])))): as_published(row) for row in in_the_paper
    }
    joem = protocols.get(str(published_on("embedding-space", recipe))).published["joem"]
    centre = Variant("two_stage-center", "two_stage", {"r": 1, "sc_weight": 0.0})
    zs3net = numbers["zs3net", "reimplemented by the JoEm authors"]
    for title, variant, published in (
        ("V->S", Variant("visual_to_semantic", "visual_to_semantic"), None),
        ("S->V: L_center", centre, numbers["two_stage", "center"]),
        ("S->V: L_bar + L_sc", Variant("two_stage", "two_stage"), numbers["two_stage", "bar+sc"]),
        ("ZS3Net", Variant("zs3net", "zs3net"), zs3net),
        (
            "ZS3Net on JoEm's encoder",
            Variant("zs3net_joem", "zs3net_joem"),
            numbers["zs3net", "on JoEm's visual encoder"],
        ),
        ("JoEm", Variant("joem", "joem"), joem),
    ):
        yield Row(title, variant, methods.get(variant.method).rule, published)


def _per_class(recipe: Recipe, own: Own) -> Iterator[Row]:
    """ZS3Net with the weight of its authors and with the recipe's, ZS3Net on JoEm's encoder, JoEm."""
    for published in protocols.published_tables()["per_class"]["rows"]:
        name, weight, method = published["method"], published.get("unseen_weight"), methods.get(published["method"])
        title, variant = method.title or name, Variant(name, name)
        if weight is not None:
            variant = Variant(f"{name}-weight-{weight:g}", name, {"unseen_weight": float(weight)})
            title = f"{title} {published['note']}, unseen weight {weight:g}"
        yield Row(title, variant, method.rule, as_published(published), tuple(published["per_class"]))


def as_published(row: Mapping[str, Any]) -> PublishedScores:
    """The scores of a line of `protocols.published_tables`."""
    return PublishedScores(row["seen"], row["unseen"], row["hiou"])
