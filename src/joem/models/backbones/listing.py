"""The networks of timm that can be backbones, with what timm notes of them; nothing is downloaded."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from joem import extras
from joem.errors import BadUsage

_NO_MAPS = {"coat", "convit", "convmixer", "crossvit", "visformer"}
"""Families of timm that give no maps of features."""


_OTHER_NAMES = {"mobileclip": "mci"}
"""What people call a family -> what timm calls it."""


class Known(NamedTuple):
    """A network that timm knows.

    Attributes:
        name: what --model.backbone is set to.
        licence: of its weights; "not told" where timm does not say, "none named" for a network without a tag.
        parameters: how many, with the classifier.
        side: of the pictures it was trained on.
    """

    name: str
    licence: str
    parameters: int
    side: int


def known_backbones(word: str) -> Iterator[Known]:
    """The networks and weights whose names hold a word, one after the other: their parameters are counted by building.

    Those come first in whose names a part starts with the word.

    >>> [each.name for each in known_backbones("test_vit3")]
    ['tu-test_vit3', 'tu-test_vit3.r160_in1k']
    """
    extras.require("train", "The list of backbones", "timm")
    import timm
    import torch

    part = _OTHER_NAMES.get(word.lower(), word)
    at_start = re.compile(rf"(?<![a-z0-9]){re.escape(part)}", re.IGNORECASE)  # pe_ is no eupe_
    found = sorted(
        {*timm.list_models(f"*{part}*"), *timm.list_models(f"*{part}*", pretrained=True)},
        key=lambda name: (at_start.search(name) is None, name),
    )
    families = {name: timm.models.model_entrypoint(name.split(".")[0]).__module__.split(".")[-1] for name in found}
    found = [name for name in found if families[name] not in _NO_MAPS]
    if not found:
        raise BadUsage(
            f"timm has no network with {word!r} in its name: try vit, dinov2, clip, siglip, swin or convnext."
        )
    counted: dict[str, int] = {}
    for name in found:
        arch, _, tag = name.partition(".")
        if arch not in counted:
            with torch.random.fork_rng(devices=[]), torch.device("meta"):
                counted[arch] = sum(each.numel() for each in timm.create_model(arch).parameters())
        cfg = timm.models.get_pretrained_cfg(name)
        licence = (cfg and cfg.license) or "not told" if tag else "none named"
        yield Known(f"tu-{name}", licence, counted[arch], cfg.input_size[-1] if cfg else 224)
