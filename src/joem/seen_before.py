"""What a model had met before it saw a mask of its own: so that rows of tables that knew more than others stand apart.

Weights say it by their names, those of timm and open_clip above all: `laion2b` are captions, `in22k` names, `lvd142m`
pictures alone. What no name tells is told as such.
"""

import re
from pathlib import Path

from joem import methods
from joem.models.backbones.weights import timm_notes
from joem.recipe import Recipe
from joem.settings import ModelSettings

_PICTURES = re.compile(
    r"mim_(?:in22k|m\d+m)|in\d+k_ijepa|\w*mae(?:_in1k)?|dino(?:v\d)?|data2vec|seer|sapiens\d?|\blvd\d+m"
)
"""Training without any word, also where the name says whose pictures these were."""
_KINDS = {
    "masks": ("samvit", "sam2_", "sa1b", "_seg"),
    "captions": (
        "clip", "siglip", "openai", "laion", "datacomp", "webli", "dfn", "merged2b", "yfcc15m", "cc12m", "florence",
        "vit_pe_", "_mci", "aimv2", "tips", "vitamin", "pali", "qwen", "gemma", "deepseek", "intern300m", "beit3",
        "ig1b", "swag", "eupe",
    ),
    "names (ImageNet-22k)": ("in22k", "in21k", "inw21k", "in12k"),
    "names (JFT)": ("jft",),
    "names (ImageNet)": ("in1k",),
}  # fmt: skip
"""What weights learned from, by parts of their names; hashtags count as captions."""


def seen_before(recipe: Recipe) -> str:
    """What backbone, words and teachers of a recipe had met, in a form for tables.

    >>> from joem import recipe
    >>> seen_before(recipe.load("clip-tower"))
    'backbone: captions; words: captions'
    >>> seen_before(recipe.load("lite-blend-strict"))
    'backbone: names (ImageNet); words: text; names taught: strict'
    """
    kinds = (text.partition(":")[0] for text in recipe.semantics.vectors.split("+"))
    words = dict.fromkeys("captions" if kind == "clip" else "text" for kind in kinds)
    told = [f"backbone: {_of_weights(recipe.model)}", f"words: {', '.join(words)}"]
    names = getattr(recipe.method, "names", "none")
    if names != "none":
        told.append(f"names taught: {names}")
    if recipe.data.teachers:
        told.append("teachers: masks")
    if recipe.data.captions:
        told.append("captions taught")
    if recipe.data.transductive:
        told.append("pictures of unseen classes")
    if recipe.train.start:
        told.append(f"what {Path(recipe.train.start).name} had learned")
    if methods.get(recipe.method.name).sees_every_mask:
        told.append("masks of unseen classes")
    return "; ".join(told)


def _of_weights(model: ModelSettings) -> str:
    """What the weights of a backbone were trained on, as far as names say it."""
    weights, name = model.weights, model.backbone.lower()
    if weights == "none":
        return "nothing"
    if weights == "wheel" or model.convention == "keras":
        return "names (ImageNet)"
    if weights != "imagenet":
        name = f"{name} {Path(weights).name.lower()}"
    elif not name.startswith("tu-"):
        return "names (ImageNet)"
    elif "." not in name and (known := timm_notes(name)) is not None:
        name = f"{name}.{known.tag}"  # what timm takes for a name without a tag
    rest, alone = _PICTURES.subn("", name)
    told = [kind for kind, parts in _KINDS.items() if any(part in rest for part in parts)]
    if len(told) > 1 and told[-1] == "names (ImageNet)" and told[-2].startswith("names"):
        told.pop()
    return ", ".join(told) or ("pictures alone" if alone else "not told")
