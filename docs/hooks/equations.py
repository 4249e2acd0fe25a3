"""Equations of the pages, LaTeX between dollars, as MathML: browsers draw it without a script or a network."""

import re
from typing import Any

from latex2mathml.converter import convert

_CODE = r"(?P<code>^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]+`)"
_BLOCK = r"\$\$(?P<block>.+?)\$\$"
_INLINE = r"(?<![\\\w$])\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$(?![\w$])"
_PATTERN = re.compile(f"{_CODE}|{_BLOCK}|{_INLINE}", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace $$...$$ and $...$ outside code; mkdocs calls it for every page."""
    return _PATTERN.sub(_drawn, markdown)


def _drawn(found: re.Match[str]) -> str:
    if found["code"]:
        return found[0]
    if found["block"]:
        return f'<div class="equation">{convert(found["block"].strip(), display="block")}</div>'
    return f"<span>{convert(found['inline'])}</span>"  # a line that begins with <math> would be a block of its own
