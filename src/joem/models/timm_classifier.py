"""The head of any classifier of timm, applied at every position of its last map: a dense teacher of its names."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from joem import extras
from joem.errors import BadUsage, JoemError
from joem.models.backbones.dense import at_every_position
from joem.models.backbones.weights import file_tensors, misfits
from joem.settings import ModelSettings

# What of a network comes after its last map; the rest is not kept.
_HEAD = {
    "norm", "fc_norm", "head", "head_drop", "global_pool", "flatten", "conv_head", "norm_head", "act2", "bn2", "fc",
    "classifier", "attn_pool", "head_dist", "pre_logits", "drop", "last_linear", "final_conv",
}  # fmt: skip


class TimmClassifier(nn.Module):
    """What follows the last map of a classifier of timm, at every position: (B,channels,H,W) to logits (B,N,H,W).

    Args:
        name: tu-NAME.
        count: how many classes the published head has.
        classes: which of them it tells apart.
        saved: whether its tensors are part of the trained model.
    """

    def __init__(self, name: str, count: int, classes: Sequence[int], saved: bool = False) -> None:
        super().__init__()
        extras.require("train", f"The classifier of {name}", "timm")
        self._name, self._count, self._classes = name.removeprefix("tu-"), count, list(classes)
        head = _head(self._whole("none", meta=True)).to_empty(device="cpu").eval()
        _to_buffers(head, saved)
        self.model = head
        self._choose(head)
        for each in self.buffers():
            each.zero_()

    def take_weights(self, settings: ModelSettings) -> None:
        """Take the weights that the backbone was published with, or those of its file."""
        if settings.weights in {"none", "wheel"}:
            raise BadUsage(
                f"The names of a classifier come with its weights, got {settings.weights!r}: set --model.weights "
                "imagenet or a file of the whole classifier."
            )
        whole = self._whole(settings.weights)
        if settings.weights != "imagenet":
            given = file_tensors(settings.weights)
            wrong = misfits(whole.state_dict(), given)
            if wrong:
                raise JoemError(f"{settings.weights} is no classifier of {self._count} names: {wrong}.")
            whole.load_state_dict(given)
        head = _head(whole).eval()
        _to_buffers(head, True)
        self._choose(head)
        found = dict(head.named_buffers())
        for name, each in self.model.named_buffers():
            each.copy_(found[name])

    def forward(self, last: Tensor) -> Tensor:
        """Logits at every position of the last map."""
        model, size = self.model, last.shape[-2:]
        if type(model).__name__ == "EfficientNet":  # its last convolution belongs to the features, not to the head
            return at_every_position(model, model.bn2(model.conv_head(last)), size)
        if hasattr(model, "num_prefix_tokens"):
            tokens = last.flatten(2).transpose(1, 2)
            first = tokens.new_zeros(len(tokens), model.num_prefix_tokens, tokens.shape[2])
            return at_every_position(model, torch.cat([first, tokens], dim=1), size)
        if getattr(model, "output_fmt", "NCHW") == "NHWC":
            return at_every_position(model, model.norm(last.permute(0, 2, 3, 1)), size)
        return at_every_position(model, last, size)

    def for_inference(self) -> nn.Module:
        """Itself: there is no quicker form of it."""
        return self

    def _whole(self, weights: str, meta: bool = False) -> Any:
        import timm

        with torch.random.fork_rng(devices=[]), torch.device("meta" if meta else "cpu"):
            return timm.create_model(self._name, pretrained=weights == "imagenet", num_classes=self._count)

    def _choose(self, head: Any) -> None:
        """Keep the rows of the chosen classes."""
        last = head.get_classifier()
        for name in ("weight", "bias"):
            rows = getattr(last, name)
            if rows is not None:
                setattr(last, name, rows[self._classes].clone())


def _head(whole: Any) -> Any:
    """A network without what comes before its last map."""
    for name, _ in list(whole.named_children()):
        if name not in _HEAD:
            setattr(whole, name, nn.Identity())
    for name in list(whole._parameters):
        whole._parameters[name] = None  # positions and tokens of a transformer
    return whole


def _to_buffers(module: nn.Module, saved: bool) -> None:
    """Turn the parameters of a module into buffers, which do not learn."""
    for each in module.modules():
        for name, value in list(each._parameters.items()):
            del each._parameters[name]
            each.register_buffer(name, None if value is None else value.detach(), persistent=saved)
        for name in each._buffers:
            each._non_persistent_buffers_set.discard(name) if saved else each._non_persistent_buffers_set.add(name)
