"""What the commands share: parsers on typed settings, and values that are given as text."""

from collections.abc import Sequence
from typing import Any

from joem.errors import BadUsage


def new_parser(command: str, usage: str, description: str, example: str) -> Any:
    """A parser whose help teaches its command."""
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        prog=f"joem {command}",
        usage=f"joem {command} {usage}",
        description=f"{description} Example: {example}",
        exit_on_error=False,
    )


def parse(parser: Any, words: Sequence[str]) -> Any:
    """What the words say; an error tells where help is."""
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(list(words))
    except ArgumentError as error:
        raise BadUsage(f"{error}\n{parser.prog} --help lists what can be given.") from None


def parse_with_recipe(parser: Any, words: Sequence[str]) -> Any:
    """Let a parser take a recipe by name or file first, with every setting of it overridable after it."""
    from joem import recipe

    parser.add_argument("recipe", help=f"a YAML file, or one in the box: {', '.join(recipe.names())}")
    parser.add_class_arguments(recipe.Recipe)
    if words and not words[0].startswith("-"):
        parser.set_defaults(recipe.values(words[0]))
    elif not {"-h", "--help"} & set(words):
        raise BadUsage(f"Give the recipe first: {parser.usage}. Recipes in the box: {', '.join(recipe.names())}.")
    return parse(parser, words)


def recipe_of(values: Any, parser: Any) -> Any:
    """The recipe among parsed values."""
    from joem.recipe import Recipe

    made = parser.instantiate_classes(values)
    return Recipe(**{field: getattr(made, field) for field in Recipe.__dataclass_fields__})


def value_of(option: str, words: Sequence[str]) -> str | None:
    """What an option is given, before the parser knows the recipe whose defaults it should have."""
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
        if word == option and place + 1 < len(words):
            return words[place + 1]
    return None


def split_names(text: str) -> list[str]:
    """Names that are given with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def to_numbers(option: str, text: str | None) -> list[float]:
    """Numbers that are given with commas between them, none if there is no text."""
    try:
        return [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise BadUsage(f"{option} takes numbers separated by commas, got {text!r}.") from None


def check_setting_of_rule(wish: Any, rule: str) -> None:
    """A setting that the rule does not look at would change nothing, and nobody would know why."""
    for setting, rules in (("sigma", ("ac", "ratio")), ("gamma", ("cs",))):
        if getattr(wish, setting) is not None and rule not in rules:
            raise BadUsage(
                f"--{setting} is for the rule {' or '.join(rules)}, but the rule is {rule}: add --rule {rules[0]}."
            )
