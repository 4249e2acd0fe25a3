"""How griffe, which reads the code for the API pages, is to understand this package's docstrings and settings."""

import re
from typing import Any

import griffe

_BLANK_LINES = re.compile(r"\n[ \t]*\n")


class Docstrings(griffe.Extension):
    """Doctests are examples; classes made by `joem.settings.settings` are dataclasses."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the doctests of a docstring under a heading, without which they would be read as quotations."""
        if obj.docstring is not None:
            paragraphs = _BLANK_LINES.split(obj.docstring.value)
            obj.docstring.value = "\n\n".join(_example(each) for each in paragraphs)

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Let the fields of settings be their arguments."""
        if any(str(decorator.value) == "settings" for decorator in cls.decorators):
            made = griffe.ExprName("dataclasses.dataclass")
            cls.decorators.append(griffe.Decorator(made, lineno=cls.lineno, endlineno=cls.lineno))


def _example(paragraph: str) -> str:
    if not paragraph.startswith(">>> "):
        return paragraph
    return "Examples:\n" + "\n".join(f"    {line}" for line in paragraph.splitlines())
