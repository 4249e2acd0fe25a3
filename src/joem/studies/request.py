"""What a table or figure of the paper is asked for, and which trainings follow from that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joem import calibration, protocols, recipe
from joem.calibration.choosing import fold_folder
from joem.calibration.folds import proportional_folds
from joem.errors import BadUsage
from joem.recipe import Recipe
from joem.studies import comparison
from joem.studies.comparison import Comparison
from joem.studies.rows import Variant, load_own, rows

SCALES = ("paper", "official", "lite")
"""The paper's networks and data by its equations or as the authors' code trains, or PASCAL VOC in minutes on a CPU."""

_SEEDS = {"paper": 5, "official": 5, "lite": 3}
_SETTINGS = {"context": "context", "voc-spnet": "spnet-setting"}  # what JoEm's recipes beside FAMILY-joem are for
_OF_THE_JOB = {"data.protocol": "--splits", "train.seed": "--seeds", "method.name": "--methods"}


@dataclass(frozen=True)
class Training:
    """One training that a job needs.

    Attributes:
        what: the protocol, the row, and the seed or the fold.
        recipe: what is trained.
        file: what is there when it is done.
    """

    what: str
    recipe: Recipe
    file: Path


@dataclass(frozen=True)
class Request:
    """What a job is asked for.

    Args:
        job: its name, one of `JOBS`.
        out: its folder; its runs go into out/runs.
        scale: one of `SCALES`.
        root: where the data are, if not where the recipes say.
        vectors: the source of word vectors, if not the recipes' own: by protocol, by dataset, or by "" for all others.
        folds: on how many folds of held-out seen classes tables choose parameters; 0 takes the recipes' own.
        overrides: settings that replace those of all recipes, nested.
        splits: which of a job's protocols, by name or by the number of unseen classes; all if None.
        methods: which rows of a table, by the names of their variants; all if None.
        seeds: how many runs per row of a table; five at the paper's scale, three at lite scale, if None.
        lambdas: the values of lambda that tables try on the folds; if None, the paper's grid and the recipes' own value
            at the paper's scale, and that value alone at the others.
        timing: whether to time how long every system takes to know one more class.
        command: what was called, as tables tell it.
    """

    job: str
    out: Path
    scale: str = "paper"
    root: str | None = None
    vectors: Mapping[str, str] = field(default_factory=dict)
    folds: int = 3
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    splits: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: int | None = None
    lambdas: Sequence[float] | None = None
    timing: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for option, instead in _OF_THE_JOB.items():
            section, key = option.split(".")
            if key in self.overrides.get(section, {}):
                raise BadUsage(f"A table or figure has its own --{option}: choose some of them with {instead}.")

    @property
    def runs(self) -> Path:
        """The folder of the trainings, which jobs share."""
        return self.out / "runs" / self.scale

    def compared(self, protocol: str) -> Path:
        """The folder of the comparisons on a protocol, whatever their table."""
        return self.runs / "compared" / protocol

    def chosen(self, offered: Mapping[str, Sequence[str]]) -> list[str]:
        """The protocols that are asked for, of those that a job has at this scale; official has those of paper."""
        here = list(offered["lite" if self.scale == "lite" else "paper"])
        for split in self.splits or ():
            if not any(_is_split(name, split) for name in here):
                raise BadUsage(f"{self.job} at {self.scale} scale has no split {split!r}. It has {', '.join(here)}.")
        return [name for name in here if self.splits is None or any(_is_split(name, each) for each in self.splits)]

    def base(self, protocol: str) -> str:
        """The name of the recipe of the paper's objective that fits a protocol."""
        dataset = protocols.get(protocol).dataset
        setting = _SETTINGS.get(protocol, _SETTINGS.get(dataset, "joem"))
        return f"{self.scale}-{'joem' if self.scale == 'lite' else setting}"

    def changes(self, protocol: str) -> dict[str, Any]:
        """What differs from the recipes in the box."""
        dataset = protocols.get(protocol).dataset
        vectors = next((self.vectors[key] for key in (protocol, dataset, "") if key in self.vectors), None)
        own = {
            "data": {"protocol": protocol, **({"root": self.root} if self.root else {})},
            "semantics": {"vectors": vectors} if vectors else {},
        }
        every = dict.fromkeys([*self.overrides, *own])
        return {section: {**self.overrides.get(section, {}), **own.get(section, {})} for section in every}

    def settings(self, protocol: str, **method: Any) -> Recipe:
        """The recipe of the paper's objective on a protocol, with some settings of the objective."""
        return recipe.load(self.base(protocol), self.changes(protocol)).changed(method=method)

    def compare(self, protocol: str, table: str, methods: Sequence[str] | None, seeds: int | None = None) -> Comparison:
        """A table of `compare` on a protocol, in the folder that all jobs share; see `trainings`."""
        return comparison.compare(
            self.settings(protocol),
            self.compared(protocol),
            table,
            self._rows(methods),
            self._seeds(seeds),
            self.folds,
            load_own(self.base(protocol), self.changes(protocol)),
            lambdas=self._lambdas(protocol),
            timing=self.timing,
        )

    def trainings(
        self, protocol: str, table: str, methods: Sequence[str] | None, seeds: int | None = None
    ) -> Iterator[Training]:
        """What `compare` trains, done or not.

        Args:
            protocol: the split.
            table: one of `TABLES`.
            methods: the rows of the job, all of the table if None.
            seeds: runs per row, those asked for if None.
        """
        base, own = self.settings(protocol), load_own(self.base(protocol), self.changes(protocol))
        used: dict[Variant, set[str]] = {}
        titles: dict[Variant, str] = {}
        for row in rows(table, base, self._rows(methods), own):
            used.setdefault(row.variant, set()).add(row.rule)
            titles.setdefault(row.variant, row.title.removesuffix(f", {row.rule.upper()}"))
        most, lambdas = proportional_folds(protocols.get(protocol).vocabulary), self._lambdas(protocol)
        for variant, rules in used.items():
            what, folder = f"{protocol}: {titles[variant]}", self.compared(protocol) / variant.name
            tuned = comparison.tunes(variant, lambdas)
            first = variant.recipe(base, own, 0)
            tried = [first.changed(method={"sc_weight": each}) for each in (lambdas or ()) if tuned] or [first]
            if tuned or comparison.calibrates(rules):
                for each in tried:
                    lam = getattr(each.method, "sc_weight", None)
                    for fold in range(min(self.folds, most)):
                        file = fold_folder(folder, each, fold) / "curves.json"
                        told = "" if lam is None else f", lambda {lam:g}"
                        yield Training(f"{what}{told}, fold {fold}", each, file)
            for seed in range(self._seeds(seeds)):
                yield Training(
                    f"{what}, seed {seed}", variant.recipe(base, own, seed), folder / f"seed-{seed}" / "training.json"
                )

    def _lambdas(self, protocol: str) -> Sequence[float] | None:
        if not self.folds:
            return None
        if self.lambdas or self.scale != "paper":
            return self.lambdas
        own = getattr(self.settings(protocol).method, "sc_weight", None)
        return sorted({*calibration.LAMBDAS, *([] if own is None else [own])})

    def _seeds(self, own: int | None) -> int:
        return own or (_SEEDS[self.scale] if self.seeds is None else self.seeds)

    def _rows(self, offered: Sequence[str] | None) -> Sequence[str] | None:
        """The rows of a job that are asked for."""
        unknown = [name for name in self.methods or () if offered is not None and name not in offered]
        if unknown:
            raise BadUsage(f"{self.job} has no row {unknown[0]!r}. It has {', '.join(offered or ())}.")
        return self.methods or offered


def _is_split(protocol: str, text: str) -> bool:
    return text in {protocol, protocol.rpartition("-")[2]}
