"""What users hold: a trained model with its names. Encode a picture once, then ask for any names."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from huggingface_hub import ModelHubMixin, snapshot_download
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import resize

from joem import data, decision, tiles
from joem.asking import Asked, understand
from joem.decision import Decision, Norms, Ranking
from joem.engine.model import Model
from joem.errors import BadUsage, JoemError
from joem.model_folder import DEFAULT_MODEL, DESCRIPTION, WEIGHTS
from joem.result import Explanation, Neighbour, Result
from joem.vocabulary import Vocabulary

if TYPE_CHECKING:
    from joem.onnx import OnnxModel

Picture = str | Path | bytes | BinaryIO | Image.Image | NDArray[Any] | Tensor


class Segmenter(ModelHubMixin, library_name="joem", pipeline_tag="image-segmentation", tags=["zero-shot"]):
    """A trained model that segments pictures into classes named by words.

    `from_pretrained`, `save_pretrained` and `push_to_hub` exchange models with the Hugging Face Hub.

    >>> model = Segmenter.load("runs/scenes/model")  # doctest: +SKIP
    >>> scene = model.encode("photo.png")  # doctest: +SKIP
    >>> scene.segment("red circle, purple star").save("out")  # doctest: +SKIP
    """

    # Given, or the mixin would write a copy of the whole model into config.json; model.json says everything.
    _hub_mixin_config = {"library_name": "joem"}  # noqa: RUF012

    def __init__(self, model: "Model | OnnxModel") -> None:
        self.model = model

    @classmethod
    def load(
        cls, path: str | Path = DEFAULT_MODEL, search: Iterable[str | Path] = (), device: str | torch.device = "cpu"
    ) -> "Segmenter":
        """Load what `save`, a training run or `joem export` wrote, or a model in the box; nothing in it is executed.

        Args:
            path: a folder, an .onnx file, or the name of a model in the box.
            search: files or folders where word vectors from a file may be now.
            device: where the networks run, such as cuda; an exported model chooses by itself.
        """
        if Path(path).suffix == ".onnx":
            from joem.onnx import OnnxModel

            return cls(OnnxModel.load(path, search))
        return cls(Model.load(path, search).to(device))

    def __call__(self, image: "Picture", names: Asked = None, **options: Any) -> Result:
        """Encode a picture and segment it in one go; `options` are those of `Scene.segment`.

        >>> Segmenter.load()("photo.jpg", "person, puppy")  # doctest: +SKIP
        """
        return self.encode(image).segment(names, **options)

    def save(self, path: str | Path) -> Path:
        """Write a folder with safetensors and JSON."""
        return self._torch_model().save(path)

    def _save_pretrained(self, save_directory: Path) -> None:
        self._torch_model().write(save_directory)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, search: Iterable[str | Path] = (), **download: Any) -> "Segmenter":
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(snapshot_download(model_id, allow_patterns=[DESCRIPTION, WEIGHTS], **download))
        return cls.load(folder, search)

    @property
    def vocabulary(self) -> Vocabulary:
        """The classes the model was made for."""
        return self.model.vocabulary

    def to(self, device: str | torch.device) -> "Segmenter":
        """Move the networks to a device."""
        self._torch_model().to(device)
        return self

    def with_prompt(self, prompt: str) -> "Segmenter":
        """The same networks with another sentence around new names, such as "a photo of a {}".

        Only for models that read sentences. The names of `vocabulary` keep the vectors they were trained with.
        """
        return Segmenter(replace(self.model, semantics=self.model.semantics.with_prompt(prompt)))

    def classes(self, names: Asked = None, background: bool = True, strict_words: bool = False) -> "AskedClasses":
        """The classes that are asked for, each with its words, their prototypes and whether it was trained.

        Args:
            names: class names, known or new, as a list or with commas between them; "sofa|couch" gives one class by
                several words, the first of which is its name. Case, plurals, hyphens and other words for a class of
                the model lead to it, and `notes` says so. The model's own vocabulary if None.
            background: add the model's background class where the names have none, so that one name gives a mask and
                the rest of the picture.
            strict_words: refuse words that are in no dictionary at hand, instead of noting them.
        """
        own = self.vocabulary
        question = understand(names, own, background, strict_words)
        every = tuple(dict.fromkeys(word for group in question.words for word in group))
        return AskedClasses(
            names=question.names,
            unseen=tuple(index for index, group in enumerate(question.words) if not set(group) & set(own.seen)),
            prototypes=self.model.prototypes(every),
            owners=torch.tensor([index for index, group in enumerate(question.words) for _ in group]),
            asked=question.asked,
            notes=question.notes,
        )

    def encode(self, image: Picture, longest: int | None = None) -> "Scene":
        """Run the visual encoder once on a picture.

        Pictures beyond `tiles.SIDE` pixels are encoded in overlapping tiles.

        Args:
            image: a file's path, its bytes or the open file; a PIL image; an array (H,W), (H,W,3) or (H,W,4), grey, RGB
                or RGBA, uint8 or floats from 0 to 1; or a tensor (3,H,W) uint8.
            longest: encode a copy whose longer side has this many pixels, if the picture is larger; the labels still
                have the size of the picture. For photos that show things much larger than the training pictures.
        """
        pixels = _pixels(image)
        reduced = _reduced(pixels, longest)
        if self.model.recipe.model.side is not None:  # the encoder resizes pictures itself, so none is too large
            return Scene(self, pixels, self.model.features(reduced))
        stride = self.model.method.stride if isinstance(self.model, Model) else self.model.stride
        return Scene(self, pixels, tiles.encode(self.model.features, reduced, stride))

    def _torch_model(self) -> Model:
        if not isinstance(self.model, Model):
            raise BadUsage("An exported model is one file to copy, run by onnxruntime: load the folder of the model.")
        return self.model


@dataclass(frozen=True)
class AskedClasses:
    """Classes that are asked for.

    Attributes:
        names: one name per class.
        unseen: indices of the classes none of whose words has training masks.
        prototypes: (W,C), one per word.
        owners: (W,), which class each word belongs to.
        asked: what each class was asked for with.
        notes: what was understood otherwise than it was written, one sentence each.
    """

    names: tuple[str, ...]
    unseen: tuple[int, ...]
    prototypes: Tensor
    owners: Tensor
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def rank(
        self, features: Tensor, size: Sequence[int] | None, unseen: Sequence[int], known: Norms | None = None
    ) -> Ranking:
        """`decision.rank` where the distance to a class is that to the nearest of its words."""
        is_unseen = torch.isin(self.owners, torch.tensor(unseen, dtype=torch.int64))
        ranking = decision.rank(features, self.prototypes, is_unseen, size, known)
        if len(self.owners) == len(self.names):  # a word each
            return ranking
        owners = self.owners.to(features.device)
        nearest_seen, nearest_unseen = (_owner(owners, words) for words in (ranking.seen, ranking.unseen))
        second = ranking.second_seen_distance
        for index in self._seen_with_synonyms(is_unseen):
            others = self.prototypes[~is_unseen & (self.owners != index)]  # the second class, not the second word
            apart = decision.rank(features, others, (), size, known).seen_distance if len(others) else torch.inf
            second = torch.where(nearest_seen == index, apart, second)
        return Ranking(nearest_seen, ranking.seen_distance, second, nearest_unseen, ranking.unseen_distance)

    def distances(self, features: Tensor, size: Sequence[int] | None) -> Tensor:
        """Distances (B,K,Ho,Wo) to the nearest word of each class."""
        by_word = decision.distances(features, self.prototypes, size)
        groups = torch.split(by_word, torch.bincount(self.owners).tolist(), dim=1)
        return torch.stack([group.amin(dim=1) for group in groups], dim=1)

    def _seen_with_synonyms(self, is_unseen: Tensor) -> list[int]:
        return [index for index, words in enumerate(torch.bincount(self.owners[~is_unseen]).tolist()) if words > 1]


@dataclass(frozen=True)
class Scene:
    """A picture that has been through the visual encoder; deciding again costs next to nothing.

    Attributes:
        segmenter: what encoded it.
        pixels: the picture, (3,Ho,Wo) uint8.
        features: v, (1,C,H,W).
    """

    segmenter: Segmenter
    pixels: Tensor
    features: Tensor
    _latest: dict[tuple[Any, ...], tuple[AskedClasses, Ranking]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def size(self) -> tuple[int, int]:
        """(Ho, Wo), the size of the picture."""
        _, height, width = self.pixels.shape
        return height, width

    def segment(
        self,
        names: Asked = None,
        rule: str | None = None,
        *,
        background: bool = True,
        strict_words: bool = False,
        **values: float | None,
    ) -> Result:
        """Give every pixel one of the names.

        Args:
            names: class names, see `Segmenter.classes`; the model's own vocabulary if None. Names without training
                masks count as unseen for the rules.
            rule: one of `decision.RULES`; the model's own if None.
            background: add the model's background class where the names have none.
            strict_words: refuse words that are in no dictionary at hand, instead of noting them.
            values: parameters of rules, such as sigma=0.8 or gamma=0.5; the model's own where not given.
        """
        decision = self._decision(rule, values)  # a mistake in it is told before the work
        classes, ranking = self.ranked(names, background, strict_words)
        labels = decision.decide(ranking)
        return Result(
            labels[0].cpu(),
            classes.names,
            tuple(classes.names[index] for index in classes.unseen),
            self.pixels,
            self.segmenter.vocabulary.background,
            partial(self._certainty, classes, ranking, labels),
            classes.notes,
        )

    def ranking(self, names: Asked = None, background: bool = True) -> Ranking:
        """The nearest seen and unseen class of every pixel, (1,Ho,Wo) each; kept until other names are asked for."""
        return self.ranked(names, background)[1]

    def ranked(
        self, names: Asked = None, background: bool = True, strict_words: bool = False
    ) -> tuple[AskedClasses, Ranking]:
        """The classes that are asked for, and the ranking by them."""
        key = (names if names is None or isinstance(names, str) else tuple(names), background, strict_words)
        found = self._latest.get(key)
        if found is None:
            classes = self.segmenter.classes(names, background, strict_words)
            found = classes, classes.rank(self.features, self.size, classes.unseen, self._norms)
            self._latest.clear()
            self._latest[key] = found
        return found

    def distances(self, names: Asked = None, background: bool = True) -> Tensor:
        """Distances (K,Ho,Wo) of every pixel to the classes."""
        return self.segmenter.classes(names, background).distances(self.features, self.size)[0].cpu()

    def explain(
        self, x: int, y: int, names: Asked = None, *, background: bool = True, **values: float | None
    ) -> Explanation:
        """Why the pixel in column x and row y takes its class."""
        height, width = self.size
        if not (0 <= x < width and 0 <= y < height):
            raise BadUsage(f"The picture has columns 0 to {width - 1} and rows 0 to {height - 1}, got ({x}, {y}).")
        classes = self.segmenter.classes(names, background)
        # What bilinear upsampling gives at this one pixel, as grid_sample counts from -1 to 1.
        position = self.features.new_tensor([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1]).view(1, 1, 1, 2)
        feature = F.grid_sample(self.features, position, padding_mode="border", align_corners=False)
        distances = classes.distances(feature, None).flatten()
        order = distances.argsort(stable=True)[:2].tolist()
        first, *rest = (Neighbour(classes.names[i], float(distances[i]), i not in classes.unseen) for i in order)
        ranking = classes.rank(feature, None, classes.unseen)
        winners = {rule: classes.names[int(self._decision(rule, values).decide(ranking))] for rule in decision.RULES}
        second = rest[0] if rest else None
        ratio = first.distance / second.distance if second and second.distance else None
        return Explanation(x, y, first, second, ratio, winners)

    @cached_property
    def _norms(self) -> Norms:
        return decision.norms(self.features, self.size)

    def _decision(self, rule: str | None, values: Mapping[str, float | None]) -> Decision:
        return self.segmenter.model.recipe.decision.replace(rule, **values)

    def _certainty(self, classes: AskedClasses, ranking: Ranking, labels: Tensor) -> Tensor:
        """1 - d / d' of every pixel, d the distance to its class and d' that to the nearest other one; at least 0."""
        is_unseen = labels == ranking.unseen
        taken = torch.where(is_unseen, ranking.unseen_distance, ranking.seen_distance)
        other = torch.where(is_unseen, ranking.seen_distance, ranking.unseen_distance)
        second = ranking.second_seen_distance
        # Where the class is unseen and the nearest of all, the second nearest unseen one may be the nearest other, and
        # the ranking does not hold it.
        if len(classes.unseen) > 1 and (is_unseen & (taken < other)).any():
            seen = [index for index in range(len(classes.names)) if index not in classes.unseen]
            by_unseen = classes.rank(self.features, self.size, seen, self._norms)
            second = torch.where(is_unseen, by_unseen.second_seen_distance, second)
        other = torch.minimum(other, second)
        return (1 - taken / other).clamp(min=0).nan_to_num(0)[0].cpu()


def _owner(owners: Tensor, words: Tensor) -> Tensor:
    """Which class each word belongs to; -1 stays -1."""
    return torch.where(words < 0, words, owners[words])


def check_longest(longest: int | None) -> None:
    """Refuse a longer side that no picture can have."""
    if longest is not None and longest < 1:
        raise BadUsage(f"The longer side must have at least one pixel, got {longest}.")


def _reduced(pixels: Tensor, longest: int | None) -> Tensor:
    side = max(pixels.shape[1:])
    check_longest(longest)
    if longest is None or side <= longest:
        return pixels
    size = [max(1, round(length * longest / side)) for length in pixels.shape[1:]]
    reduced: Tensor = resize(pixels, size, antialias=True)
    return reduced


def _pixels(image: Picture) -> Tensor:
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise JoemError(f"There is no picture {str(image)!r}.")
        return data.read_image(Path(image))
    if isinstance(image, bytes | io.IOBase):
        return data.read_image(io.BytesIO(image) if isinstance(image, bytes) else image)
    if isinstance(image, np.ndarray):
        image = _from_array(image)
    if isinstance(image, Image.Image):
        return data.as_pixels(image)
    if not isinstance(image, Tensor) or image.ndim != 3 or len(image) != 3 or image.dtype != torch.uint8:
        raise _no_picture(image)
    if not image.numel():
        raise BadUsage(f"The picture is empty: it has {image.shape[2]} x {image.shape[1]} pixels.")
    return image


def _from_array(array: NDArray[Any]) -> Image.Image:
    if not array.size:
        raise BadUsage(f"The picture is empty: an array of the shape {array.shape}.")
    layout = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {1, 3, 4})
    if np.issubdtype(array.dtype, np.floating) and layout:
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise BadUsage(f"A picture of floats must be from 0 to 1, got {array.min():g} to {array.max():g}.")
        array = (255 * array).round().astype(np.uint8)
    if not layout or array.dtype != np.uint8:
        raise _no_picture(array)
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _no_picture(image: object) -> BadUsage:
    got = f"{type(image).__name__} {tuple(getattr(image, 'shape', ()))} {getattr(image, 'dtype', '')}".rstrip()
    return BadUsage(
        "A picture must be a file or its bytes, a PIL image, a grey, RGB or RGBA array of uint8 or of floats from 0 to "
        f"1, or a (3,H,W) uint8 tensor, got {got}."
    )
