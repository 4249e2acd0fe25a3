"""What a row of a table had seen before training: by masks, by names or by captions; so that leaky rows stand apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What the weights of timm's and open_clip's names were trained on, by parts of the name; the first that fits.
_WEIGHTS = (
    (("sam_", "samvit", "sa1b", ".sa"), "masks"),
    (
        ("clip", "siglip", "openai", "laion", "datacomp", "webli", "metaclip", "pe_core", "_mci", "mobileclip"),
        "captions",
    ),
    (("dino", "mae", "data2vec", "fcmae", "ijepa"), "pictures alone"),
    (("in22k", "in21k", "in12k"), "names (ImageNet-22k)"),
)
_WORDS = {"clip": "captions"}


def seen_before(recipe: Mapping[str, Any]) -> str:
    """What backbone, words and teachers of a recipe had seen, in a form for tables.

    >>> seen_before({"model": {"backbone": "tu-vit_small_patch14_dinov2", "weights": "imagenet"},
    ...              "semantics": {"vectors": "clip:ViT-B-16@openai"}})
    'backbone: pictures alone; words: captions'
    """
    model, data = recipe["model"], recipe.get("data", {})
    told = [f"backbone: {_of_weights(model['backbone'], model['weights'])}"]
    kinds = [text.partition(":")[0] for text in str(recipe["semantics"]["vectors"]).split("+")]
    told.append(f"words: {', '.join(dict.fromkeys(_WORDS.get(kind, 'text') for kind in kinds))}")
    names = recipe.get("method", {}).get("names", "none")
    if names != "none":
        told.append(f"names taught: {names}")
    if data.get("teachers"):
        told.append("teachers: masks")
    if data.get("captions"):
        told.append("captions taught")
    return "; ".join(told)


def _of_weights(backbone: str, weights: str) -> str:
    """What weights were trained on, as far as names say it."""
    if weights == "none":
        return "nothing"
    name = backbone.lower()
    if weights not in {"imagenet", "wheel"}:
        name = f"{name} {Path(weights).name.lower()}"
    for parts, what in _WEIGHTS:
        if any(part in name for part in parts):
            return what
    return "names (ImageNet)" if weights in {"imagenet", "wheel"} else "not told (a file)"
