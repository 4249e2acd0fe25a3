"""Networks that give every pixel of a picture one of their own names: TFLite and ONNX files, and joem's own models."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from joem import extras
from joem.errors import BadUsage, JoemError
from joem.io import damage_told
from joem.settings import TeacherSettings

NO_OPINION = frozenset({"other", "background", "void"})
"""Names by which a network says that it has none for a pixel."""


class Network(ABC):
    """A network that names pixels; it is loaded when it is first asked.

    Args:
        settings: which one.
    """

    def __init__(self, settings: TeacherSettings) -> None:
        self.settings = settings
        self.file = Path(settings.file).expanduser()
        if not self.file.exists():
            raise BadUsage(f"There is no teacher {settings.file}: data.teachers.file names a network's file or folder.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Its classes in the order of its labels."""
        given = self.settings.names
        if len(given) == 1 and Path(given[0]).expanduser().is_file():
            lines = Path(given[0]).expanduser().read_text(encoding="utf-8").splitlines()
            given = tuple(line.strip() for line in lines if line.strip())
        if not given:
            raise BadUsage(f"The teacher {self.settings.file} needs its names: list them in data.teachers.names.")
        return given

    @abstractmethod
    def labels(self, image: Tensor) -> Tensor:
        """The label of every pixel of a picture (3,H,W) uint8, (H,W) int64."""


class _File(Network):
    """A network in a file, with one picture as its input and labels or scores as its output.

    Which axis is which is read off their sizes: three channels in, as many scores as there are names out.
    """

    whose: ClassVar[str]

    @abstractmethod
    def _input(self) -> tuple[list[Any], type[Any]]:
        """Shape and kind of number of its input; axes of any size are not numbers."""

    @abstractmethod
    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Its first output."""

    def labels(self, image: Tensor) -> Tensor:
        """The picture at the size that the network takes; its labels at the size of the picture."""
        with damage_told(self.file, f"It could not be run with {self.whose}."):
            shape, kind = self._input()
            channels_last = shape[-1] == 3
            wanted = shape[1:3] if channels_last else shape[2:4]
            size = tuple(
                side if isinstance(side, int) and side > 0 else own
                for side, own in zip(wanted, image.shape[1:], strict=True)
            )
            values = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)
            if np.issubdtype(kind, np.floating):
                mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (self.settings.mean, self.settings.std))
                batch = ((values - mean) / std).numpy().astype(kind)
            else:
                batch = values.round().clamp(0, 255).numpy().astype(kind)
            found = torch.from_numpy(self._run(batch.transpose(0, 2, 3, 1) if channels_last else batch))
        return _resized(self._decided(found), image)

    def _decided(self, found: Tensor) -> Tensor:
        """Labels (h,w) of an output."""
        count, inner = len(self.names), found[0] if len(found) == 1 else found
        if not found.is_floating_point() and inner.squeeze().dim() == 2:
            labels = inner.squeeze().long()
        elif inner.dim() == 3 and count in {inner.shape[0], inner.shape[-1]}:
            labels = inner.argmax(dim=0 if inner.shape[0] == count else -1)
        else:
            raise JoemError(
                f"The teacher {self.file} gives {tuple(found.shape)} for a picture: expected labels (1,H,W), or scores "
                f"of its {count} names."
            )
        if int(labels.max()) >= count or int(labels.min()) < 0:
            raise JoemError(f"The teacher {self.file} gives the label {int(labels.max())}, but has {count} names.")
        return labels


class TFLite(_File):
    """A .tflite file."""

    whose = "LiteRT"

    @cached_property
    def _interpreter(self) -> Any:
        extras.require("teachers", "A .tflite teacher")
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(self.file), num_threads=torch.get_num_threads())
        interpreter.allocate_tensors()
        return interpreter

    def _input(self) -> tuple[list[Any], type[Any]]:
        described = self._interpreter.get_input_details()[0]
        return [int(each) for each in described["shape"]], described["dtype"]

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        interpreter = self._interpreter
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], batch)
        interpreter.invoke()
        found: NDArray[Any] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        return found


class ONNX(_File):
    """An .onnx file."""

    whose = "onnxruntime"

    @cached_property
    def _session(self) -> Any:
        extras.require("onnx", "An .onnx teacher", "onnxruntime")
        import onnxruntime

        return onnxruntime.InferenceSession(str(self.file), providers=onnxruntime.get_available_providers())

    def _input(self) -> tuple[list[Any], type[Any]]:
        described = self._session.get_inputs()[0]
        kinds = {"tensor(uint8)": np.uint8, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
        return list(described.shape), kinds.get(described.type, np.float32)

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self._session.run(None, {self._session.get_inputs()[0].name: batch})[0]
        return found


class OwnModel(Network):
    """A model of joem, which decides by its own rule among its own classes."""

    @cached_property
    def _model(self) -> Any:
        from joem.model import Model

        return Model.load(self.file)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The classes of its vocabulary; its background is no opinion, whatever it is called."""
        vocabulary = self._model.vocabulary
        return tuple("background" if name == vocabulary.background else name for name in vocabulary.names)

    @torch.no_grad()
    def labels(self, image: Tensor) -> Tensor:
        """What it takes every pixel for."""
        from joem import decision

        model, vocabulary = self._model, self._model.vocabulary
        ranking = decision.rank(
            model.features(image), model.prototypes(), vocabulary.unseen_indices, (image.shape[1], image.shape[2])
        )
        labels: Tensor = model.recipe.decision.decide(ranking)[0].cpu()
        return labels


NETWORKS: dict[str, type[Network]] = {".tflite": TFLite, ".onnx": ONNX, "": OwnModel}
"""Kinds of networks by the end of their file's name; a folder is a model of joem."""


def open_network(settings: TeacherSettings) -> Network:
    """The network that a recipe names."""
    suffix = Path(settings.file).suffix.lower()
    kind = NETWORKS.get("" if Path(settings.file).expanduser().is_dir() else suffix)
    if kind is None:
        raise BadUsage(f"A teacher is a .tflite or an .onnx file or the folder of a model, got {settings.file}.")
    return kind(settings)


def _resized(labels: Tensor, image: Tensor) -> Tensor:
    return F.interpolate(labels[None, None].float(), image.shape[1:], mode="nearest-exact")[0, 0].long()
