"""What users hold: a trained model with its names. Encode a picture once, then ask for any names.

Importing this does not import torch: that comes with the first model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joem.errors import BadUsage
from joem.model_folder import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from joem.asking import Asked
    from joem.classes import AskedClasses
    from joem.examples import Examples, Point
    from joem.model import Model
    from joem.onnx import OnnxModel
    from joem.pictures import Mask, Picture
    from joem.result import Result
    from joem.scene import Scene
    from joem.vocabulary import Vocabulary


class Segmenter:
    """A trained model that segments pictures into classes named by words.

    `from_pretrained`, `save_pretrained` and `push_to_hub` exchange models with the Hugging Face Hub.

    >>> model = Segmenter.load("runs/scenes/model")  # doctest: +SKIP
    >>> scene = model.encode("photo.png")  # doctest: +SKIP
    >>> scene.segment("red circle, purple star").save("out")  # doctest: +SKIP
    """

    def __init__(self, model: Model | OnnxModel) -> None:
        self.model = model

    @classmethod
    def load(
        cls, path: str | Path = DEFAULT_MODEL, search: Iterable[str | Path] = (), device: str | torch.device = "cpu"
    ) -> Segmenter:
        """Load what `save`, a training run or `joem export` wrote, or a model in the box; nothing in it is executed.

        Args:
            path: a folder, an .onnx file, or the name of a model in the box.
            search: files or folders where word vectors from a file may be now.
            device: where the networks run, such as cuda; an exported model chooses by itself.
        """
        if Path(path).suffix == ".onnx":
            from joem.onnx import OnnxModel

            return cls(OnnxModel.load(path, search))
        from joem.model import Model

        return cls(Model.load(path, search).to(device))

    def __call__(self, image: Picture, names: Asked = None, **options: Any) -> Result:
        """Encode a picture and segment it in one go; `options` are those of `Scene.segment`.

        >>> Segmenter.load()("photo.jpg", "person, puppy")  # doctest: +SKIP
        """
        return self.encode(image).segment(names, **options)

    def each(self, images: Iterable[Picture], names: Asked = None, **options: Any) -> Iterator[Result]:
        """The results of many pictures, one after another, as they are asked for."""
        return (self(image, names, **options) for image in images)

    def save(self, path: str | Path) -> Path:
        """Write a folder with safetensors and JSON."""
        return self._torch_model().save(path)

    @classmethod
    def from_pretrained(cls, name: str | Path, search: Iterable[str | Path] = (), **options: Any) -> Segmenter:
        """Load a folder, or a model from the Hugging Face Hub; `options` are those of its `snapshot_download`."""
        from joem import hub

        return cls.load(name if Path(name).is_dir() else hub.download(str(name), **options), search)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write what `save` writes and a model card, as the Hugging Face Hub wants them."""
        from joem import hub

        hub.shared(self._torch_model()).save_pretrained(folder, **options)

    def push_to_hub(self, name: str, **options: Any) -> Any:
        """Upload that to the Hugging Face Hub; needs a login."""
        from joem import hub

        return hub.shared(self._torch_model()).push_to_hub(name, **options)

    @property
    def vocabulary(self) -> Vocabulary:
        """The classes the model was made for."""
        return self.model.vocabulary

    def to(self, device: str | torch.device) -> Segmenter:
        """Move the networks to a device."""
        self._torch_model().to(device)
        return self

    def with_prompt(self, prompt: str | Sequence[str]) -> Segmenter:
        """The same networks with another sentence around new names, such as "a photo of a {}", or with several.

        Only for models that read sentences. The names of `vocabulary` keep the vectors they were trained with.
        """
        return Segmenter(replace(self.model, semantics=self.model.semantics.with_prompt(prompt)))

    def with_examples(self, name: str, shown: Iterable[tuple[Picture, Mask | Sequence[Point]]]) -> Segmenter:
        """The same networks with a class that is known by examples, beside its word if that is one.

        Each example is a prototype of its own. `save` and export keep them with the model.

        Args:
            name: what to call the class, a word or not.
            shown: pictures, each with a mask of where it shows the class, or with points on it: (x, y), or
                (x, y, False) where it does not.

        >>> model = Segmenter.load().with_examples("flag", [("a.jpg", "a-mask.png"), ("b.jpg", [(120, 80)])])
        ... # doctest: +SKIP
        """
        found = [self.encode(picture).example(name, where) for picture, where in shown]
        if not found:
            raise BadUsage(f"No example of {name!r} is given: give (picture, mask) or (picture, points) pairs.")
        return self.knowing(*found)

    def knowing(self, *shown: Examples) -> Segmenter:
        """The same networks with the prototypes of further examples."""
        from joem import examples

        return Segmenter(replace(self.model, examples=examples.joined(self.model.examples, *shown)))

    def classes(
        self, names: Asked = None, background: bool = True, strict_words: bool = False, shown: Examples | None = None
    ) -> AskedClasses:
        """The classes that are asked for, each with its prototypes and whether it was trained.

        Args:
            names: class names, known or new, as a list or with commas between them; "sofa|couch" gives one class by
                several words, the first of which is its name, "okapi: a striped animal" describes one, and "not:
                reflection" takes pixels away from all others. Case, plurals, hyphens and other words for a class of
                the model lead to it, and `notes` says so. The model's own vocabulary if None.
            background: add the model's background class where the names have none, so that one name gives a mask and
                the rest of the picture.
            strict_words: refuse words that are in no dictionary at hand, instead of noting them.
            shown: prototypes of examples on the picture itself, by name; their names are asked for too.
        """
        from joem.classes import AskedClasses

        return AskedClasses.for_model(self.model, names, background, strict_words, shown or {})

    def encode(self, image: Picture, longest: int | None = None) -> Scene:
        """Run the visual encoder once on a picture.

        Pictures beyond `tiles.SIDE` pixels are encoded in overlapping tiles.

        Args:
            image: a file's path, its bytes or the open file, a PIL image, an array or a tensor; see `pictures.Picture`.
            longest: encode a copy whose longer side has this many pixels, if the picture is larger; the labels still
                have the size of the picture. For photos that show things much larger than the training pictures.
        """
        from joem.scene import Scene

        return Scene.of(self, image, longest)

    def _torch_model(self) -> Model:
        from joem.model import Model

        if not isinstance(self.model, Model):
            raise BadUsage("An exported model is one file to copy, run by onnxruntime: load the folder of the model.")
        return self.model
