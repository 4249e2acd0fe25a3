"""What a run is made of: one YAML file per published row, every setting of it overridable.

A recipe file may start with `extends: NAME` (or a file beside it) and then holds only what differs. A section whose
`name` changes starts anew: no value chosen for one method, or one head, is inherited by another, and neither is the
decision that was chosen for another method.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pydantic

from joem import plain_yaml
from joem.decision.rules import Decision
from joem.errors import BadUsage, JoemError, choose
from joem.settings import (
    DataSettings,
    HeadSettings,
    MethodSettings,
    ModelSettings,
    SemanticsSettings,
    TrainSettings,
    complaints,
    field_names,
    plain,
    shown,
)

SECTIONS: dict[str, type] = {
    "data": DataSettings,
    "semantics": SemanticsSettings,
    "model": ModelSettings,
    "train": TrainSettings,
}
"""The sections whose settings are the same for every method; `method` and `decision` are the others."""

DEFAULT_METHOD, DEFAULT_HEAD = "joem", "deeplabv3plus"


def default_method() -> MethodSettings:
    """The settings of the paper's own method."""
    return method_settings(DEFAULT_METHOD)(name=DEFAULT_METHOD)


def default_model() -> ModelSettings:
    """The settings of the paper's own network."""
    return ModelSettings(head=head_settings(DEFAULT_HEAD)(name=DEFAULT_HEAD))


def method_settings(name: str) -> type[MethodSettings]:
    """The class of a method's own settings."""
    from joem import methods

    return methods.get(name).settings_class


def head_settings(name: str) -> type[HeadSettings]:
    """The class of a head's own settings."""
    from joem.models import HEADS

    return HEADS[choose("head", name, HEADS)].settings_class


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a run.

    Attributes:
        data: pictures, masks and who is unseen.
        semantics: class names to vectors.
        model: the two encoders.
        method: the system to train, with its own settings.
        train: the loop.
        decision: the rule at test time; the method's own, correcting nothing, if it is not given.
    """

    data: DataSettings = field(default_factory=DataSettings)
    semantics: SemanticsSettings = field(default_factory=SemanticsSettings)
    model: ModelSettings = field(default_factory=default_model)
    method: MethodSettings = field(default_factory=default_method)
    train: TrainSettings = field(default_factory=TrainSettings)
    decision: Decision = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.data.protocol is not None and self.data.unseen:
            raise BadUsage(
                f"data.unseen is {', '.join(self.data.unseen)}, but the protocol {self.data.protocol!r} says who is "
                "unseen: add --data.protocol null to use your own."
            )
        train_split, val_split = self.data.splits()  # so that what a run writes down says which pictures it had
        object.__setattr__(self, "data", replace(self.data, train_split=train_split, val_split=val_split))
        if self.decision is None:
            from joem import methods

            object.__setattr__(self, "decision", Decision(methods.get(self.method.name).rule))

    def changed(self, **sections: Mapping[str, Any]) -> "Recipe":
        """The same with some settings replaced: `recipe.changed(train={"seed": 1}, method={"r": 2})`.

        Another `name` starts a section anew, as in recipe files.
        """
        values, data = self.to_dict(), sections.get("data", {})
        if "protocol" in data or "kind" in data:
            values["data"] |= {"train_split": "auto", "val_split": "auto"}  # another one has lists of its own
        return Recipe.from_dict(_merged(values, sections))

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON and YAML can hold."""
        sections = {name: plain(getattr(self, name)) for name in (*SECTIONS, "method")}
        return {**sections, "decision": self.decision.to_dict()}

    def identity(self) -> dict[str, Any]:
        """What makes a training: all settings but the decision and those that say where and on what it runs."""
        values = self.to_dict()
        del values["decision"]
        for name in ("root", "workers"):
            del values["data"][name]
        for name in ("accelerator", "devices", "nodes", "strategy", "save_every", "log_every", "tensorboard"):
            del values["train"][name]
        values["train"]["cache"] = values["train"]["cache"] is not None
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Build a recipe from nested values; all that is wrong with them is told in one message."""
        every = (*SECTIONS, "method", "decision")
        unknown = [name for name in values if name not in every]
        wrong = [f"{name}: there is no such section. A recipe has {', '.join(every)}." for name in unknown]
        made = general_sections(values, wrong, head_settings)
        made["method"] = _named("method", DEFAULT_METHOD, method_settings, values.get("method"), wrong)
        made["decision"] = _decision(values.get("decision"), wrong)
        if wrong:
            raise BadUsage("The recipe does not fit:\n  " + "\n  ".join(wrong))
        return cls(**made)


def general_sections(
    values: Mapping[str, Any], wrong: list[str], heads: Callable[[str], type[HeadSettings]] | None = None
) -> dict[str, Any]:
    """The sections that every method has, None where something is wrong with one, which is noted.

    Needs no torch without `heads`, which says what settings a head has: then there are those that all heads have.
    """
    model = values.get("model") or {}
    head = model.get("head", {}) if isinstance(model, Mapping) else None
    if heads is None and isinstance(head, Mapping):
        head = {name: value for name, value in head.items() if name in field_names(HeadSettings)}
    if head is not None:
        made = _named("model.head", DEFAULT_HEAD, heads or (lambda name: HeadSettings), head, wrong)
        values = {**values, "model": {**model, "head": made}}
    return {name: _section(name, kind, values.get(name), wrong) for name, kind in SECTIONS.items()}


def _section(name: str, kind: type, values: Any, wrong: list[str]) -> Any:
    """One section, or None and what is wrong with it."""
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        wrong.append(f"{name}: expected settings such as {field_names(kind)[0]}, got {shown(values)}.")
        return None
    try:
        defaults = plain(kind()) if name in SECTIONS else {}
        return pydantic.TypeAdapter(kind).validate_python(_merged(defaults, values))
    except pydantic.ValidationError as error:
        wrong.extend(complaints(error, name, field_names(kind)))
        return None


def _named(name: str, default: str, kinds: Callable[[str], type], values: Any, wrong: list[str]) -> Any:
    """A section whose own name says which settings it has, or None and what is wrong with it."""
    given = values or {}
    named = {"name": default, **given} if isinstance(given, Mapping) else given
    try:
        return _section(name, kinds(str(named["name"]) if isinstance(named, Mapping) else default), named, wrong)
    except BadUsage as error:
        wrong.append(f"{name}.name: {error}")
        return None


def _decision(values: Any, wrong: list[str]) -> Decision | None:
    """The decision, if one is given, or None and what is wrong with it."""
    if not values:
        return None
    if not isinstance(values, Mapping):
        wrong.append(f"decision: expected settings such as rule, got {shown(values)}.")
        return None
    try:
        return Decision.from_dict(values)
    except BadUsage as error:
        wrong.append(f"decision: {error}")
        return None


def names() -> tuple[str, ...]:
    """Names of the recipes in the box."""
    return tuple(sorted(Path(entry.name).stem for entry in _folder().iterdir() if entry.name.endswith(".yaml")))


def about(name: str) -> str:
    """The first comment of a recipe in the box: what it is, its command, how long it takes, what to expect."""
    lines = find(name).read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    return "\n".join(comment)


def find(name: str) -> Path:
    """The file of a recipe in the box, or a user's own file."""
    if Path(name).suffix in {".yaml", ".yml"}:
        if not Path(name).is_file():
            raise BadUsage(f"There is no recipe file {name!r}. Recipes in the box: {', '.join(names())}.")
        return Path(name)
    choose("recipe", name, names())
    return Path(str(_folder() / f"{name}.yaml"))


def load(name: str, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Load a recipe by name or file, with some of its settings replaced."""
    return Recipe.from_dict(values(name, changes))


def values(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What `load` makes a recipe of, not checked yet: needs no torch."""
    return _merged(read(find(name)), changes or {})


def read(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a recipe file over those of the recipe that it extends."""
    chain = (*extending, path.resolve())
    if chain[-1] in extending:
        raise BadUsage(f"Recipes extend each other in a circle: {' -> '.join(each.name for each in chain)}.")
    try:
        with path.open(encoding="utf-8") as file:
            values = plain_yaml.parse(file.read(plain_yaml.LONGEST + 1)) or {}
    except (BadUsage, UnicodeDecodeError) as error:
        raise BadUsage(f"Recipe {path} is not plain YAML: {error}") from None
    except OSError as error:
        raise JoemError(f"Recipe {path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise BadUsage(f"Recipe {path} must hold sections such as 'data:', got {shown(values)}.")
    values = {section: value for section, value in values.items() if value is not None}  # an empty section
    base = values.pop("extends", None)
    if base is not None and not isinstance(base, str):
        raise BadUsage(f"Recipe {path} extends {base!r}: give the name of one recipe.")
    if base is None:
        return values
    try:
        found = find(str(path.parent / base) if Path(base).suffix else base)
    except BadUsage as error:
        raise BadUsage(f"Recipe {path} extends {base!r}, which is not there. {error}") from None
    return _merged(read(found, chain), values)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with some replaced; a section whose name changes starts anew.

    >>> _merged({"train": {"epochs": 1, "seed": 2}}, {"train": {"seed": 3}})
    {'train': {'epochs': 1, 'seed': 3}}
    >>> _merged({"method": {"name": "joem", "r": 4}, "decision": {"sigma": 0.8}}, {"method": {"name": "spnet"}})
    {'method': {'name': 'spnet'}}
    """
    result = dict(base)
    if _renamed(base.get("method", {}), changes.get("method")):
        result.pop("decision", None)
    for key, value in changes.items():
        old = result.get(key)
        anew = key in {"method", "head"} and _renamed(old, value)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and not anew:
            result[key] = _merged(old, value)
        else:
            result[key] = value
    return result


def _renamed(old: Any, new: Any) -> bool:
    """Whether a section is given another name than it has."""
    named = isinstance(old, Mapping) and isinstance(new, Mapping) and "name" in new
    return named and old.get("name", DEFAULT_METHOD) != new["name"]


def _folder() -> Any:
    return resources.files("joem") / "recipes"
