"""Settings of a recipe on the command line: `--SECTION.KEY VALUE`, and the help that lists them."""

import argparse
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from joem import plain_yaml
from joem.errors import BadUsage

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML reads 1e-3 as text


def take(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words without the options that have a dot in their name, and the settings these give.

    >>> take(["scenes", "--train.visual.lr", "1e-3", "--data.root=a", "--json"])
    (['scenes', '--json'], {'train': {'visual': {'lr': 0.001}}, 'data': {'root': 'a'}})
    """
    others: list[str] = []
    changes: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("--") or "." not in option:
            others.append(word)
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise BadUsage(f"{option} needs a value: {option} VALUE.")
            value = waiting.pop(0)
        _put(changes, option, _value(value))
    return others, changes


def _put(changes: dict[str, Any], option: str, value: Any) -> None:
    *sections, key = option.removeprefix("--").split(".")
    inner = changes
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            raise BadUsage(f"{option} is a part of {section!r}, which is given as {inner!r} too: give one of them.")
    inner[key] = value


def _value(text: str) -> Any:
    """A value as a recipe file would hold it; what is not plain YAML, such as the prompt "{}", is text.

    >>> _value("3"), _value("null"), _value("[cow, bus]"), _value("{}"), _value("1e-3"), _value("a: b: c")
    (3, None, ['cow', 'bus'], '{}', 0.001, 'a: b: c')
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        value = plain_yaml.parse(text)
    except BadUsage:
        return text
    return value if value is None or isinstance(value, bool | int | float | list) else text


def document(parser: argparse.ArgumentParser, name: str | None, changes: Mapping[str, Any], named: bool) -> None:
    """List the settings of a recipe in the help of a command.

    Those of its method only where a recipe or a method was `named`: they stand beside the method, and to import it
    with torch takes seconds.
    """
    from joem import decision, recipe

    values = recipe.values(name, changes) if name else changes
    if named:
        found = recipe.Recipe.from_dict(values)
        sections, own = vars(found), found.decision.to_dict()
    else:
        sections, own = recipe.general_sections(values, []), values.get("decision", {})
    for section in (*recipe.SECTIONS, "method"):
        if sections.get(section):
            _document(parser, section, sections[section])
    if not named:
        parser.add_argument_group("settings of method", "Each has its own: joem train RECIPE --help lists them.")
    group = parser.add_argument_group("settings of decision", "The rule at test time.")
    _setting(group, "--decision.rule", ", ".join(decision.RULES), own.get("rule", "the method's own"))
    for parameter in decision.parameters().values():
        _setting(group, f"--decision.{parameter.name}", parameter.about, own.get(parameter.name, parameter.neutral))


def _document(parser: argparse.ArgumentParser, prefix: str, values: Any) -> None:
    from joem.settings import documented, plain

    texts = documented(type(values))
    group = parser.add_argument_group(f"settings of {prefix}", (type(values).__doc__ or "").partition("\n")[0])
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value):
            _document(parser, f"{prefix}.{field.name}", value)
        else:
            _setting(group, f"--{prefix}.{field.name}", texts.get(field.name, ""), plain(value))


def _setting(group: Any, option: str, text: str, value: Any) -> None:
    told = f"{text.removesuffix('.')} (default: {value if isinstance(value, str) else json.dumps(value)})"
    group.add_argument(option, metavar="VALUE", help=told.replace("%", "%%"))
