"""What segmenting a picture gives: labels by name, and why a pixel took its class."""

import io
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from joem import exchange
from joem.decision import Decision
from joem.errors import BadUsage, choose
from joem.io import write_json
from joem.overlay import overlay
from joem.vocabulary import OTHER, Colour, colours

NO_SCORE = (
    "This model has no calibrated score: joem tune RECIPE fits one on held-out classes and writes it into the recipe "
    "to train with."
)


_ROWS = 256  # counted at a time, for counting makes int64 of labels


class Neighbour(NamedTuple):
    """A class near a pixel."""

    name: str
    distance: float
    trained: bool


@dataclass(frozen=True)
class Explanation:
    """Why a pixel takes its class.

    Attributes:
        x, y: column and row of the pixel.
        first: the nearest class.
        second: the second nearest class, if there are two.
        ratio: d1 / d2, the distance to the first by that to the second; None without a second distance.
        winners: what wins under each rule.
    """

    x: int
    y: int
    first: Neighbour
    second: Neighbour | None
    ratio: float | None
    winners: dict[str, str]

    def __str__(self) -> str:
        kinds = {True: "trained", False: "new"}
        near = [
            f"{each.name} ({kinds[each.trained]}, {each.distance:.3g})" for each in (self.first, self.second) if each
        ]
        won = ", ".join(f"{rule.upper()} {name}" for rule, name in self.winners.items())
        return f"The pixel at x {self.x}, y {self.y} is nearest to {', then to '.join(near)}; by rule: {won}."

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        second = self.second and self.second._asdict()
        return {**asdict(self), "first": self.first._asdict(), "second": second}


@dataclass(frozen=True, repr=False)
class Result:
    """A segmented picture.

    Attributes:
        compact: (Ho,Wo), the `labels`, of large pictures in as few bytes as they need.
        names: the names that were asked for.
        unseen: those among them that have no training masks.
        pixels: the picture, (3,Ho,Wo) uint8.
        background: the name of what was not asked for: the background class, or "other"; None if there is neither.
        notes: what was understood otherwise than it was written, one sentence each.
        certainty: gives the confidence of every pixel, in bands of rows from top to bottom; only computed when asked.
        score: gives how often such a pixel is right, in bands too; None where the model was never calibrated for it.
    """

    compact: Tensor
    names: tuple[str, ...]
    unseen: tuple[str, ...]
    pixels: Tensor
    background: str | None = None
    certainty: Callable[[], Iterable[Tensor]] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    score: Callable[[], Iterable[Tensor]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {share:.0%}" for name, share in self.areas().items() if share >= 0.005)
        return f"Result({self.compact.shape[1]} x {self.compact.shape[0]}: {shown})"

    def _repr_png_(self) -> bytes:
        """How a notebook shows a result."""
        file = io.BytesIO()
        self.overlay().save(file, "PNG")
        return file.getvalue()

    @property
    def labels(self) -> Tensor:
        """(Ho,Wo) int64, indices into `names`."""
        return self.compact.long()

    @property
    def colours(self) -> tuple[Colour, ...]:
        """One RGB colour per name."""
        return colours(self.names, self.background)

    @property
    def unasked(self) -> frozenset[str]:
        """The names of what was not asked for, which no annotation is made of."""
        return frozenset({self.background or OTHER, OTHER})

    def areas(self) -> dict[str, float]:
        """The share of the picture that each name covers."""
        return {name: count / self.compact.numel() for name, count in self._pixels_by_name().items()}

    def confidences(self) -> dict[str, float | None]:
        """The mean of 1 - d / d' over the pixels of each name; None for names without a pixel.

        d is the distance to the class the pixel took and d' that to the nearest other class. 0 means that another
        class is as near, or nearer where the rule preferred this one; 1 that this one is met exactly.
        """
        return self._confidences

    @cached_property
    def _confidences(self) -> dict[str, float | None]:
        return dict.fromkeys(self.names) if self.certainty is None else self._means(self.certainty())

    def scores(self) -> Tensor:
        """How often a pixel so far from its class, and so little nearer to it than to the next, is right, (Ho,Wo)."""
        if self.score is None:
            raise BadUsage(NO_SCORE)
        return self._scores

    @cached_property
    def _scores(self) -> Tensor:
        assert self.score is not None
        return torch.cat(list(self.score()))

    def class_scores(self) -> dict[str, float | None]:
        """The mean score over the pixels of each name; None for names without a pixel, and without calibration."""
        return self._class_scores

    @cached_property
    def _class_scores(self) -> dict[str, float | None]:
        return dict.fromkeys(self.names) if self.score is None else self._means(self.score())

    def _means(self, bands: Iterable[Tensor]) -> dict[str, float | None]:
        """The mean of values, in bands of rows from top to bottom, over the pixels of each name."""
        sums, top = torch.zeros(len(self.names), dtype=torch.float64), 0
        for band in bands:
            labels = self.compact[top : top + len(band)]
            sums += torch.bincount(labels.flatten(), band.flatten().double(), minlength=len(self.names))
            top += len(band)
        counted = zip(self._pixels_by_name().items(), sums.tolist(), strict=True)
        return {name: total / count if count else None for (name, count), total in counted}

    def at_least(self, score: float) -> "Result":
        """The same result with the pixels whose score is below this as "other"."""
        names = self.names if OTHER in self.names else (*self.names, OTHER)
        found = self.scores()
        labels = torch.where(found < score, names.index(OTHER), self.compact)
        return replace(self, compact=labels, names=names, score=lambda: [found])

    def mask(self) -> Image.Image:
        """The labels as a palette PNG picture (as 16-bit grey where there are more than 256 names)."""
        if len(self.names) > 256:
            return Image.fromarray(self.compact.numpy().astype(np.uint16))
        mask = Image.fromarray(self.compact.numpy().astype(np.uint8, copy=False), mode="P")
        mask.putpalette([channel for colour in self.colours for channel in colour])
        return mask

    def overlay(self, opacity: float = 0.6, legend: bool = True) -> Image.Image:
        """The picture tinted by class, with a legend of the names that occur."""
        return overlay(self.pixels, self.compact, self.names, self.colours, self.unseen, opacity, legend)

    def save(self, path: str | Path) -> Path:
        """Write overlay.png, mask.png and result.json into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.overlay().save(folder / "overlay.png")
        self.mask().save(folder / "mask.png")
        write_json(folder / "result.json", self.to_dict(), lasting=False)
        return folder

    def cut_out(self, name: str) -> Image.Image:
        """The picture where it shows a name, transparent elsewhere."""
        chosen = self.compact == self.names.index(choose("class", name, self.names))
        alpha = (255 * chosen[None]).to(torch.uint8)
        return Image.fromarray(torch.cat([self.pixels, alpha]).permute(1, 2, 0).contiguous().numpy(), mode="RGBA")

    def to_coco(self, form: Literal["polygon", "rle"] = "polygon", file_name: str | None = None) -> dict[str, Any]:
        """The result as a COCO data set, one annotation for every connected region; the background has none.

        Args:
            form: polygons, which leave holes out, or exact run lengths.
            file_name: what to call the picture.
        """
        choose("form", form, ("polygon", "rle"))
        return exchange.coco(self, form, file_name)

    def to_cvat(self, file_name: str) -> dict[str, Any]:
        """The result as annotations that CVAT imports as "COCO 1.0": exact masks with their scores.

        Args:
            file_name: what the picture is called in CVAT.
        """
        return exchange.coco(self, "rle", file_name, scored=True)

    def to_label_studio(self, file_name: str, from_name: str = "label", to_name: str = "image") -> dict[str, Any]:
        """The result as a Label Studio task, with polygons to start from; they leave holes out.

        Args:
            file_name: where Label Studio finds the picture: a URL or a path that it serves.
            from_name: the name of `PolygonLabels` in the labelling interface.
            to_name: the name of `Image` there.
        """
        return exchange.label_studio(self, file_name, from_name, to_name)

    def to_supervision(self) -> Any:
        """The result as `supervision.Detections`, one for every connected region; the background has none.

        Needs `pip install "joem[supervision]"`. Labels are indices into `names`; `data["class_name"]` names them.
        """
        return exchange.detections(self)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        height, width = self.compact.shape
        return {
            "width": width,
            "height": height,
            "names": list(self.names),
            "unseen": list(self.unseen),
            "notes": list(self.notes),
            "areas": self.areas(),
            "confidences": self.confidences(),
            "scores": self.class_scores(),
        }

    def _pixels_by_name(self) -> dict[str, int]:
        counts = torch.zeros(len(self.names), dtype=torch.int64)
        for rows in torch.split(self.compact, _ROWS):
            counts += torch.bincount(rows.flatten(), minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))


def check_min_score(min_score: float | None, decision: Decision) -> None:
    """Refuse a least score that is none, and that of a model that knows no scores."""
    if min_score is None:
        return
    if not 0 <= min_score <= 1:
        raise BadUsage(f"The least score must be from 0 to 1, got {min_score}.")
    if decision.score is None:
        raise BadUsage(NO_SCORE)
