"""One self-contained HTML file, put together piece by piece."""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from joem.io import write_text
from joem.report.plots import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --paper: #fff; --line: #d5dae0; --soft: #f4f6f8; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --paper: #15181c; --line: #3a4149; --soft: #1e2329; --accent: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
p { max-width: 46rem; } .lead { font-size: 1.1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid var(--line); }
tr.best td { font-weight: 650; background: var(--soft); }
.bar { display: inline-block; height: .7em; border-radius: .2em; background: var(--accent);
  print-color-adjust: exact; }
.bars { width: 12rem; text-align: left; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; border-radius: .4rem; background: #fff; }
.plots { display: grid; gap: 1rem; align-items: start; }
.plots svg { width: 100%; max-width: var(--widest); height: auto; }
svg text { font-family: system-ui, sans-serif; }
figcaption { font-size: .9rem; opacity: .8; }
.numbers { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.numbers div { background: var(--soft); border-radius: .6rem; padding: .7rem 1.1rem; min-width: 9rem; }
.numbers b { display: block; font-size: 1.6rem; line-height: 1.2; color: var(--accent); }
pre { background: var(--soft); padding: .8rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem; }
details summary { cursor: pointer; color: var(--accent); }
@media (max-width: 40rem) { th, td { padding: .3rem .25rem; white-space: normal; }
  table { font-size: .87rem; } .bars { display: none; } .numbers div { flex: 1; } body { font-size: 15px; } }
@media print { :root { --ink: #000; --paper: #fff; --line: #bbb; --soft: #f4f4f4; --accent: #0072b2; }
  body { max-width: none; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


class Page:
    """One HTML file with everything inside, put together piece by piece from the top."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="lead">{html.escape(lead)}</p>']

    def heading(self, text: str) -> None:
        """A section's heading."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def code(self, text: str, folded: str | None = None) -> None:
        """Something to copy, or a recipe; long ones fold away under a line of text."""
        block = f"<pre>{html.escape(text)}</pre>"
        self._parts.append(f"<details><summary>{html.escape(folded)}</summary>{block}</details>" if folded else block)

    def numbers(self, values: dict[str, str]) -> None:
        """The few numbers that matter, large."""
        cells = "".join(f"<div><b>{html.escape(value)}</b>{html.escape(name)}</div>" for name, value in values.items())
        self._parts.append(f'<div class="numbers">{cells}</div>')

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None, bars: bool = False
    ) -> None:
        """A table; the row numbered `best` stands out; `bars` draws the last column, in percent, as bars too."""
        top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head) + (
            '<th class="bars"></th>' if bars else ""
        )
        body = "".join(
            f"<tr{' class=best' if number == best else ''}>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + (_bar(row[-1]) if bars else "")
            + "</tr>"
            for number, row in enumerate(rows)
        )
        self._parts.append(
            f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def picture(self, image: Image.Image, caption: str) -> None:
        """A picture with what it shows in words."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, format="WEBP", quality=88)
        data = base64.b64encode(buffer.getvalue()).decode()
        self._parts.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/webp;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def plots(self, figures: Iterable["Figure"], caption: str) -> None:
        """Figures side by side, below each other where there is no room; their ink follows the page's."""
        figures, label = list(figures), html.escape(caption)
        drawn = "".join(_svg(figure, f"{len(self._parts)}-{number}") for number, figure in enumerate(figures))
        inches = figures[0].get_figwidth()
        narrowest, widest = 4.4 * inches, 6.5 * inches  # rem: its text would be hard to read, or larger than the page's
        columns = f"grid-template-columns: repeat(auto-fit, minmax(min({narrowest:.0f}rem, 100%), 1fr))"
        style = f"--widest: {widest:.0f}rem; {columns}"
        self._parts.append(
            f'<figure><div class="plots" style="{style}" role="img" aria-label="{label}">{drawn}</div>'
            f"<figcaption>{label}</figcaption></figure>"
        )

    def write(self, path: Path) -> Path:
        """Write the file."""
        write_text(
            path,
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
            f"<body>{''.join(self._parts)}</body></html>\n",
        )
        return path


def _bar(percent: str) -> str:
    width = float(percent) if percent.replace(".", "", 1).isdigit() else 0.0
    return f'<td class="bars"><span class="bar" style="width:{width:.0f}%"></span></td>'


def _svg(figure: "Figure", salt: str) -> str:
    """A figure as inline SVG with text as text, drawn in the page's own ink; the salt keeps its parts' names apart."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawing = buffer.getvalue()
    return drawing[drawing.index("<svg") :].replace(INK, "currentColor")
