"""YAML as recipes use it: plain values, lists and mappings. What makes YAML dangerous or slow is refused."""

from copy import deepcopy
from functools import lru_cache
from typing import Any

from joem.errors import BadUsage

LONGEST, DEEPEST = 200_000, 20
"""Characters of a text, and levels of lists and mappings in it."""


def parse(text: str) -> Any:
    """The value of a text.

    >>> parse("train: {epochs: 3, visual: {lr: 1.0e-3}}")
    {'train': {'epochs': 3, 'visual': {'lr': 0.001}}}
    """
    return deepcopy(_parsed(text))


@lru_cache(maxsize=64)  # a study reads the recipes in the box hundreds of times, and PyYAML is slow
def _parsed(text: str) -> Any:
    import yaml

    if len(text) > LONGEST:
        raise BadUsage(f"it has {len(text):,} characters, {LONGEST:,} are allowed")
    try:
        _check(yaml.parse(text, Loader=yaml.SafeLoader))
        return yaml.load(text, Loader=_loader())
    # Besides its own errors PyYAML raises those of Python, of numbers that are none for instance.
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError) as error:
        raise BadUsage(str(error)) from None


def _check(events: Any) -> None:
    """Refuse what a recipe does not need: aliases can stand for billions of values, tags for objects."""
    import yaml

    depth = 0
    for event in events:
        where = f"in line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise BadUsage(f"the anchor or alias {event.anchor!r} {where}: write its values out")
        if getattr(event, "tag", None) is not None:
            raise BadUsage(f"the tag {event.tag!r} {where}: leave it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise BadUsage(f"more than {DEEPEST} levels {where}")


def _loader() -> Any:
    """The safe loader, which takes dates for text and refuses a key that is given twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":merge"))]
            for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise yaml.YAMLError(f"a key is given twice below line {node.start_mark.line + 1}")
            return found

    return Loader
