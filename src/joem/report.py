"""Tables, curves, overlays, and one self-contained HTML file that shows a run to a person."""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from joem.engine.files import write_text
from joem.vocabulary import Vocabulary

Colour = tuple[int, int, int]

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
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; border-radius: .4rem; background: #fff; }
figcaption { font-size: .9rem; opacity: .8; }
.numbers { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.numbers div { background: var(--soft); border-radius: .6rem; padding: .7rem 1.1rem; min-width: 8rem; }
.numbers b { display: block; font-size: 1.6rem; line-height: 1.2; color: var(--accent); }
pre { background: var(--soft); padding: .8rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem; }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
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

    def code(self, text: str) -> None:
        """Something to copy, or a recipe."""
        self._parts.append(f"<pre>{html.escape(text)}</pre>")

    def numbers(self, values: dict[str, str]) -> None:
        """The few numbers that matter, large."""
        cells = "".join(f"<div><b>{html.escape(value)}</b>{html.escape(name)}</div>" for name, value in values.items())
        self._parts.append(f'<div class="numbers">{cells}</div>')

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None) -> None:
        """A table; the row numbered `best` stands out."""
        top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
        body = "".join(
            f"<tr{' class=best' if number == best else ''}>"
            + "".join(f"<td>{html.escape(c)}</td>" for c in row)
            + "</tr>"
            for number, row in enumerate(rows)
        )
        self._parts.append(
            f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def picture(self, image: Image.Image, caption: str) -> None:
        """A picture with what it shows in words."""
        buffer = io.BytesIO()
        image.save(buffer, format="PNG", optimize=True)
        data = base64.b64encode(buffer.getvalue()).decode()
        self._parts.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
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


def overlay(
    pixels: Tensor,
    labels: Tensor,
    names: Sequence[str],
    colours: Sequence[Colour],
    unseen: Sequence[str] = (),
    opacity: float = 0.6,
    legend: bool = True,
) -> Image.Image:
    """A picture (3,H,W) tinted by its labels (H,W), with outlines and a legend of the names that occur.

    Names in `unseen` carry a star in the legend. Labels that are no class (void) stay untinted.
    """
    picture = pixels.permute(1, 2, 0).numpy().astype(np.float32)
    truth = labels.numpy()
    tint = np.zeros((256 if len(colours) <= 256 else truth.max() + 1, 3), np.float32)
    tint[: len(colours)] = colours
    known = (truth < len(colours))[..., None]
    mixed = np.where(known, (1 - opacity) * picture + opacity * tint[np.minimum(truth, len(tint) - 1)], picture)
    mixed[_outlines(truth)] = 255
    image = Image.fromarray(mixed.round().astype(np.uint8))
    if not legend:
        return image
    present = [label for label in np.unique(truth).tolist() if label < len(names)]
    entries = [(names[label] + (" *" if names[label] in unseen else ""), colours[label]) for label in present]
    return _with_legend(image, entries, starred=any(name.endswith(" *") for name, _ in entries))


def named(
    pixels: Tensor, labels: Tensor, vocabulary: Vocabulary, side: int = 256, smallest: float = 0.008
) -> Image.Image:
    """A small picture enlarged and tinted, with the name of every class written where it lies.

    Unseen names carry a star. Classes that cover less than the share `smallest` stay unnamed.
    """
    tinted = overlay(pixels, labels, vocabulary.names, vocabulary.colours, opacity=0.55, legend=False)
    image = tinted.resize((side, side * tinted.height // tinted.width), Image.Resampling.NEAREST)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(max(11, side // 20))
    scale = image.width / tinted.width
    for label in torch.unique(labels).tolist():
        place = (labels == label).nonzero().float()
        if label >= len(vocabulary) or vocabulary.names[label] == vocabulary.background:
            continue
        if len(place) < smallest * labels.numel():
            continue
        row, column = (scale * (place.median(dim=0).values + 0.5)).tolist()
        name = vocabulary.names[label] + ("*" if vocabulary.names[label] in vocabulary.unseen else "")
        half = font.getlength(name) / 2
        column = min(max(column, half + 3), image.width - half - 3)
        draw.text((column, row), name, fill="white", font=font, anchor="mm", stroke_width=2, stroke_fill="black")
    return image


def _outlines(labels: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    edge = np.zeros(labels.shape, bool)
    edge[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    edge[1:] |= labels[1:] != labels[:-1]
    return edge


def _with_legend(image: Image.Image, entries: Sequence[tuple[str, Colour]], starred: bool) -> Image.Image:
    """The picture with a strip below that says what the colours mean."""
    size = max(12, min(28, image.width // 28))
    font, pad = ImageFont.load_default(size), size // 2
    note = [("* never labelled in training", None)] if starred else []
    places: list[tuple[int, int, str, Colour | None]] = []
    x, y = pad, pad
    widths = [round(font.getlength(name)) + 3 * size for name, _ in [*entries, *note]]
    canvas_width = max(image.width, max(widths, default=0) + 2 * pad)
    for (name, colour), width in zip([*entries, *note], widths, strict=True):
        if x + width > canvas_width and x > pad:
            x, y = pad, y + round(1.6 * size)
        places.append((x, y, name, colour))
        x += width
    canvas = Image.new("RGB", (canvas_width, image.height + y + 2 * size), "white")
    canvas.paste(image, ((canvas_width - image.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    for left, top, name, colour in places:
        top += image.height  # noqa: PLW2901
        if colour is not None:
            draw.rounded_rectangle((left, top, left + size, top + size), size // 5, fill=colour, outline=(40, 40, 40))
        draw.text(
            (left + (round(1.4 * size) if colour else 0), top - size // 10),
            name,
            fill=(20, 20, 20),
            font=font,
        )
    return canvas


def contact_sheet(rows: Sequence[Sequence[Image.Image]], titles: Sequence[str], cell: int = 256) -> Image.Image:
    """Pictures in rows and columns under column titles."""
    gap, head = 8, 30
    width = len(titles) * (cell + gap) + gap
    sheet = Image.new("RGB", (width, head + len(rows) * (cell + gap)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(16)
    for column, title in enumerate(titles):
        draw.text((gap + column * (cell + gap), 6), title, fill=(20, 20, 20), font=font)
    for row, images in enumerate(rows):
        for column, image in enumerate(images):
            scaled = image.convert("RGB").resize((cell, cell), Image.Resampling.LANCZOS)
            sheet.paste(scaled, (gap + column * (cell + gap), head + row * (cell + gap)))
    return sheet


def plot_curves(curves: dict[str, Any], chosen: dict[str, float], titles: dict[str, str]) -> Image.Image:
    """The seen-unseen trade-off of swept rules, and hIoU over the strength of the correction.

    Args:
        curves: rule -> `joem.calibration.Curve`.
        chosen: rule -> the parameter value that was chosen, marked on the curve.
        titles: rule -> name in the legend.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    styles = {"cs": ("#d55e00", "--", "s"), "ac": ("#0072b2", "-", "o"), "ratio": ("#009e73", "-.", "^")}
    for rule, curve in curves.items():
        colour, line, marker = styles[rule]
        seen, unseen, hiou = ([getattr(s, key) for s in curve.scores] for key in ("miou_seen", "miou_unseen", "hiou"))
        left.plot(seen, unseen, line, color=colour, label=f"{titles[rule]} (area {curve.area:.1f})")
        right.plot(np.linspace(0, 1, len(hiou)), hiou, line, color=colour, label=titles[rule])
        if rule in chosen:
            place = min(range(len(curve.values)), key=lambda i: abs(curve.values[i] - chosen[rule]))
            left.plot(seen[place], unseen[place], marker, color=colour, markersize=9)
            right.plot(place / (len(hiou) - 1), hiou[place], marker, color=colour, markersize=9)
    first = next(iter(curves.values())).scores[0]
    left.plot(first.miou_seen, first.miou_unseen, "k*", markersize=12, label="nearest neighbour")
    left.set(xlabel="mIoU of seen classes", ylabel="mIoU of unseen classes", title="Seen-unseen trade-off")
    right.set(xlabel="strength of the correction (left: none)", ylabel="hIoU", title="Choosing the parameter")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return Image.open(buffer)
