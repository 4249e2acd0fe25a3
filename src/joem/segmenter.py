"""What users hold: a trained model with its names. Encode a picture once, then ask for any names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from joem import data, decision
from joem.engine import Model
from joem.engine.files import write_json
from joem.errors import BadUsage, JoemError
from joem.vocabulary import Vocabulary, colours

Picture = str | Path | Image.Image | NDArray[np.uint8] | Tensor


class Segmenter:
    """A trained model that segments pictures into classes named by words.

    >>> model = Segmenter.load("runs/scenes/model")  # doctest: +SKIP
    >>> scene = model.encode("photo.png")  # doctest: +SKIP
    >>> scene.segment(["background", "red circle", "purple star"]).save("out")  # doctest: +SKIP
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._transform = data.evaluation(mean=model.method.visual.mean, std=model.method.visual.std)

    @classmethod
    def load(cls, path: str | Path, search: Iterable[str | Path] = ()) -> "Segmenter":
        """Load what `save` or a training run wrote; nothing in it is executed.

        `search` lists files or folders where word vectors from a file may be now.
        """
        return cls(Model.load(path, search))

    def save(self, path: str | Path) -> Path:
        """Write a folder with safetensors and JSON."""
        return self.model.save(path)

    @property
    def vocabulary(self) -> Vocabulary:
        """The classes the model was made for."""
        return self.model.vocabulary

    def to(self, device: str | torch.device) -> "Segmenter":
        """Move the networks to a device."""
        self.model.method.to(device)
        return self

    @torch.no_grad()
    def encode(self, image: Picture) -> "Scene":
        """Run the visual encoder once on a picture: a file, a PIL image, an RGB array or a (3,H,W) tensor."""
        pixels = _pixels(image)
        normalised, _ = self._transform(pixels, torch.zeros(pixels.shape[1:], dtype=torch.int64))
        method = self.model.method.eval()
        features = method.features(normalised[None].to(next(method.parameters()).device))
        return Scene(self, pixels, features)


@dataclass(frozen=True)
class Scene:
    """A picture that has been through the visual encoder; deciding again costs next to nothing."""

    segmenter: Segmenter
    pixels: Tensor
    features: Tensor

    def segment(
        self,
        names: Sequence[str] | None = None,
        rule: str | None = None,
        sigma: float | None = None,
        gamma: float | None = None,
    ) -> "Result":
        """Give every pixel one of the names.

        Args:
            names: class names, known or new; the model's own vocabulary if None. Names without training masks count
                as unseen for the rules.
            rule: nn, cs, ac or ratio; the model's own if None.
            sigma: ratio of ac and ratio; the model's own if None.
            gamma: margin of cs; the model's own if None.
        """
        model = self.segmenter.model
        wanted = _names(names, model.vocabulary)
        defaults = model.recipe.decision
        trained = set(model.vocabulary.seen)
        unseen = [place for place, name in enumerate(wanted) if name not in trained]
        ranking = decision.rank(self.features, model.prototypes(wanted), unseen, size=self.pixels.shape[1:])
        labels = decision.decide(
            ranking,
            rule=rule or defaults.rule,
            sigma=defaults.sigma if sigma is None else sigma,
            gamma=defaults.gamma if gamma is None else gamma,
            squared=defaults.squared,
        )
        return Result(
            labels[0].cpu(), wanted, tuple(wanted[place] for place in unseen), self.pixels, _background(model)
        )

    def distances(self, names: Sequence[str] | None = None) -> Tensor:
        """Distances (K,Ho,Wo) of every pixel to the prototypes of the names."""
        model = self.segmenter.model
        prototypes = model.prototypes(_names(names, model.vocabulary))
        return decision.distances(self.features, prototypes, size=self.pixels.shape[1:])[0].cpu()


@dataclass(frozen=True)
class Result:
    """A segmented picture.

    Attributes:
        labels: (Ho,Wo) int64, indices into `names`.
        names: the names that were asked for.
        unseen: those among them that have no training masks.
        pixels: the picture, (3,Ho,Wo) uint8.
        background: the name of the background class, if it was asked for.
    """

    labels: Tensor
    names: tuple[str, ...]
    unseen: tuple[str, ...]
    pixels: Tensor
    background: str | None = None

    @property
    def colours(self) -> tuple[tuple[int, int, int], ...]:
        """One RGB colour per name."""
        return colours(self.names, self.background)

    def areas(self) -> dict[str, float]:
        """The share of the picture that each name covers."""
        counts = torch.bincount(self.labels.flatten(), minlength=len(self.names))
        return {name: float(count) / self.labels.numel() for name, count in zip(self.names, counts, strict=True)}

    def mask(self) -> Image.Image:
        """The labels as a palette PNG picture (as 16-bit grey where there are more than 256 names)."""
        if len(self.names) > 256:
            return Image.fromarray(self.labels.numpy().astype(np.uint16))
        mask = Image.fromarray(self.labels.numpy().astype(np.uint8), mode="P")
        mask.putpalette([channel for colour in self.colours for channel in colour])
        return mask

    def overlay(self, opacity: float = 0.6, legend: bool = True) -> Image.Image:
        """The picture tinted by class, with a legend of the names that occur."""
        from joem.report import overlay

        return overlay(self.pixels, self.labels, self.names, self.colours, self.unseen, opacity, legend)

    def save(self, path: str | Path) -> Path:
        """Write overlay.png, mask.png and result.json into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.overlay().save(folder / "overlay.png")
        self.mask().save(folder / "mask.png")
        write_json(folder / "result.json", self.to_dict())
        return folder

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        height, width = self.labels.shape
        return {
            "width": width,
            "height": height,
            "names": list(self.names),
            "unseen": list(self.unseen),
            "areas": self.areas(),
        }


def _names(names: Sequence[str] | None, vocabulary: Vocabulary) -> tuple[str, ...]:
    return vocabulary.names if names is None else Vocabulary(cast(tuple[str, ...], names)).names


def _background(model: Model) -> str | None:
    return model.vocabulary.background


def _pixels(image: Picture) -> Tensor:
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise JoemError(f"There is no picture {str(image)!r}.")
        return data.read_image(Path(image))
    if isinstance(image, Image.Image):
        return data.as_pixels(image)
    if isinstance(image, np.ndarray) and image.ndim == 3:
        image = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
    if not isinstance(image, Tensor) or image.ndim != 3 or len(image) != 3 or image.dtype != torch.uint8:
        got = f"{type(image).__name__} {tuple(getattr(image, 'shape', ()))}"
        raise BadUsage(
            f"A picture must be a file, a PIL image, or uint8 RGB as (H,W,3) array or (3,H,W) tensor, got {got}."
        )
    return image
