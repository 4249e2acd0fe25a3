"""From typed functions to command lines: options, defaults and help come from signatures and docstrings.

Parameters before the `*` are given by position, the others as options; `--json` and `--help` come with every command.
A `list` is given by position or by repeating its option, a `tuple` as several words after it, `Names` and `Numbers`
as one word with commas. `Changes`, `RuleValues`, `RuleGrids` and dataclasses stand for many options each.
"""

import argparse
import dataclasses
import inspect
import shlex
import textwrap
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args, get_origin

from joem.cli import overrides
from joem.errors import BadUsage, choose
from joem.settings import split_names

Told = Generator[str, None, Any]
"""What a command gives: lines for people as it goes, and at the end what `--json` prints."""

Command = Callable[..., Told]


def to_numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes numbers separated by commas, got {text!r}") from None


Names = Annotated[list[str], split_names, "NAMES"]
Numbers = Annotated[list[float], to_numbers, "NUMBERS"]
CommandLine = Annotated[str, "the words"]
"""What was called, as it was typed."""
Changes = Annotated[dict[str, Any], "changes"]
"""Settings of a recipe that are replaced, nested: every option with a dot in its name."""
RuleValues = Annotated[dict[str, float | None], float, ""]
"""The value of each parameter that rules have: `--sigma 0.8`."""
RuleGrids = Annotated[dict[str, list[float] | None], Numbers, "s"]
"""The values to try of each of them: `--sigmas 1,0.9,0.8`."""


class _Parser(argparse.ArgumentParser):
    example = ""

    def error(self, message: str) -> NoReturn:
        said = message.removeprefix("argument ").replace(": takes ", " takes ")
        option, _, lack = said.partition(": ")
        if lack == "expected one argument":
            said = f"{option} needs a value: {str(self._option_string_actions[option].help).replace('%%', '%')}"
        raise BadUsage(f"{said}.\nExample: {self.example}\n{self.prog} --help lists what can be given.")


def parse(name: str, command: Command, words: Sequence[str]) -> tuple[dict[str, Any], bool] | None:
    """The arguments of a command and whether it shall print JSON; None where help was asked for and has been given."""
    import docstring_parser

    told = docstring_parser.parse(inspect.getdoc(command) or "")
    texts = {each.arg_name: " ".join((each.description or "").split()) for each in told.params}
    parameters = inspect.signature(command).parameters
    kinds = {each.annotation: each.name for each in parameters.values()}
    values: dict[str, Any] = {kinds[CommandLine]: shlex.join(["joem", name, *words])} if CommandLine in kinds else {}
    if Changes in kinds:
        words, values[kinds[Changes]] = overrides.take(words)
    helping = bool({"-h", "--help"} & set(words))
    parser = _Parser(prog=f"joem {name}", add_help=False, allow_abbrev=False)
    parser.example = "\n".join(each.description or "" for each in told.examples)
    readers = {key: _add(parser, each, texts[key], helping) for key, each in parameters.items() if key not in values}
    if "json" not in parameters:
        parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    parser.add_argument("-h", "--help", action="store_true", help="show this")
    given = parser.parse_args(list(words))
    if not helping:
        return values | {key: read(given) for key, read in readers.items()}, given.json
    positional = "".join(f" {key.upper()}" for key, each in parameters.items() if each.kind is not each.KEYWORD_ONLY)
    parser.usage = f"joem {name}{positional} [options]" + (" [--SECTION.KEY VALUE ...]" if Changes in kinds else "")
    about = [textwrap.fill(text, 100) for text in (told.short_description, told.long_description) if text]
    parser.description = "\n\n".join([*about, f"Example: {parser.example}"])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    if Changes in kinds:
        changes, recipe = values[kinds[Changes]], getattr(given, "recipe", None)
        default = parameters["recipe"].default if "recipe" in parameters else None
        overrides.document(parser, recipe, changes, recipe not in (None, default) or "method" in changes)
    parser.print_help()
    return None


class Choices(NamedTuple):
    """What can be typed after a command.

    Attributes:
        words: what its first word can be, where that is known.
        options: its options, each with the values that are known.
    """

    words: tuple[str, ...]
    options: dict[str, tuple[str, ...]]


def choices(command: Command) -> Choices:
    """What can be typed after a command, apart from the settings of recipes."""
    from joem import recipe

    parser = argparse.ArgumentParser(add_help=False)
    for each in inspect.signature(command).parameters.values():
        if each.annotation not in (CommandLine, Changes):
            _add(parser, each, "", helping=True)
    words: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = {}
    for action in reversed(parser._actions):
        known = recipe.names() if action.dest == "recipe" else ()
        known = action.type.args[0] if isinstance(action.type, partial) else known
        if action.option_strings:
            options[action.option_strings[-1]] = known
        else:
            words = known
    return Choices(words, {"--help": (), "--json": (), **options})


def _add(
    parser: argparse.ArgumentParser, parameter: inspect.Parameter, text: str, helping: bool
) -> Callable[[argparse.Namespace], Any]:
    """Add what a parameter stands for, and say how its value is read; who asks for help may leave out anything."""
    name, kind = parameter.name, parameter.annotation
    if kind in (RuleValues, RuleGrids):
        return _add_rules(parser, kind, text)
    if dataclasses.is_dataclass(kind):
        return _add_fields(parser, name, kind)
    required = parameter.default is parameter.empty and not helping
    default = None if parameter.default is parameter.empty else parameter.default
    if parameter.kind is parameter.KEYWORD_ONLY:
        _option(parser, name, kind, text, default, required=required)
    else:
        many = get_origin(kind) is list
        nargs = ("+" if required else "*") if many else (None if required else "?")
        read = {} if many else _conversion(kind)
        parser.add_argument(
            name, **{**read, "metavar": name.upper()}, nargs=nargs, default=default, help=_escaped(text)
        )
    return lambda given: getattr(given, name)


def _add_rules(parser: argparse.ArgumentParser, kind: Any, text: str) -> Callable[[argparse.Namespace], Any]:
    """An option for each parameter of the rules, whatever rules there are."""
    from joem import decision

    _, each, ending = get_args(kind)
    for parameter in decision.parameters().values():
        rules = " and ".join(rule.name for rule in decision.calibrated().values() if rule.parameter == parameter)
        _option(parser, f"{parameter.name}{ending}", each, f"{text} {rules}: {parameter.about}", None)
    return lambda given: {name: getattr(given, f"{name}{ending}") for name in decision.parameters()}


def _add_fields(parser: argparse.ArgumentParser, name: str, kind: Any) -> Callable[[argparse.Namespace], Any]:
    """An option for each field of a dataclass."""
    from joem.settings import documented

    texts, fields = documented(kind), dataclasses.fields(kind)
    for field in fields:
        _option(parser, f"{name}.{field.name}", field.type, texts[field.name], field.default)
    return lambda given: kind(**{field.name: getattr(given, f"{name}.{field.name}") for field in fields})


def _option(parser: argparse.ArgumentParser, name: str, kind: Any, text: str, default: Any, **more: Any) -> None:
    shown = "" if default is None or default is False or default == () else f" (default: {default})"
    flag = "--" + (name if "." in name else name.rstrip("_").replace("_", "-"))  # from_ is --from
    parser.add_argument(flag, dest=name, default=default, help=_escaped(text) + shown, **_conversion(kind), **more)


def _conversion(kind: Any) -> dict[str, Any]:
    """How argparse reads a value of a type."""
    if NoneType in get_args(kind):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {"type": inner[1], "metavar": inner[2]}
    if origin is tuple or origin is list:
        return {"metavar": "TEXT", **({"nargs": "+"} if origin is tuple else {"action": "append"})}
    if kind is bool:
        return {"action": "store_true"}
    if origin is Literal:
        return {"type": partial(_one_of, inner), "metavar": "{" + ",".join(inner) + "}"}
    return {"type": kind, "metavar": {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")}


def _one_of(options: Sequence[str], text: str) -> str:
    try:
        return choose("choice", text, options)
    except BadUsage as error:
        raise argparse.ArgumentTypeError(str(error).removesuffix(".")) from None


def _escaped(text: str) -> str:
    return text.removesuffix(".").replace("%", "%%")
