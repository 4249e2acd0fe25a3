"""Checkpoints of the authors' public code as models of joem.

Their code writes two files, one for the visual and one for the semantic encoder, and the config.json of the training
beside them. A file holds a dictionary whose `state_dict` has the weights; keys may begin with `module.`. Which encoder
a file belongs to is known by its keys: backbone., aspp. and decoder. are of the visual one, model. of the semantic one.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from joem import protocols, recipe
from joem.errors import BadUsage, JoemError
from joem.io import read_json
from joem.model import Model, Teaching
from joem.models.backbones.weights import file_tensors, misfits
from joem.recipe import Recipe
from joem.vocabulary import Vocabulary

CONFIG = "config.json"

_NAMES = {
    "visual.trunk.backbone.network.": "backbone.",
    "visual.head.aspp.": "aspp.",
    "visual.head.block1.": "decoder.project.",
    "visual.head.block2.": "decoder.last_conv.",
    "classifier.": "decoder.pred_conv.",
    "semantic.": "model.",
}
"""What the names of our weights begin with, and what theirs do; the rest is the same."""

_LOADERS = {"VOCDataLoader": ("voc", "official-joem"), "ContextDataLoader": ("context", "official-context")}
_SLIP = {"aeroplane": "bicycle"}  # what their last split of Context holds out instead


def import_checkpoint(
    paths: Sequence[Path], name: str | None = None, changes: Mapping[str, Any] | None = None
) -> Model:
    """A model of the authors' checkpoint.

    Args:
        paths: the two files, or the folder that holds them and no others.
        name: a recipe; official-joem or official-context by their config.json if None.
        changes: settings of the recipe to replace, such as where the word vectors are.
    """
    files = find_files(paths)
    config_file = files[0].parent / CONFIG
    if not config_file.is_file():
        raise BadUsage(
            f"There is no {config_file}: their code writes it beside the checkpoints, with the split and sigma."
        )
    default, own = _of_config(read_json(config_file), config_file)
    settings = recipe.load(name or default, own).changed(**(changes or {}))
    model = Model.create(settings, _vocabulary(settings))
    given = {key.removeprefix("module."): each for file in files for key, each in file_tensors(str(file)).items()}
    _load(model, given, " and ".join(map(str, files)))
    who, saw = f"the authors' checkpoint {files[0].name}", f"{settings.data.train_split} of {settings.data.kind}"
    model.teaching = (Teaching("masks", who, saw, model.vocabulary.seen),)
    return model


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The two files of a checkpoint, given as they are or by their folder."""
    found = [each for path in paths for each in (sorted(path.glob("*.pth")) if path.is_dir() else [path])]
    if len(found) != 2 or not all(each.is_file() for each in found):
        raise BadUsage(
            "A checkpoint of the authors' code is two .pth files, of the visual and of the semantic encoder; got "
            f"{', '.join(map(str, found)) or 'none'} from {', '.join(map(str, paths))}: give the two files, or a "
            "folder with no others."
        )
    return found


def _of_config(config: Any, path: Path) -> tuple[str, dict[str, Any]]:
    """The recipe that a configuration of theirs is like, and what differs from it."""
    try:
        kind, name = _LOADERS[config["data_loader"]["type"]]
        if config["arch"]["type"] != "DeepLabV3Plus":
            raise ValueError(f"the network is {config['arch']['type']!r}, not DeepLabV3Plus")
        unseen = config["data_loader"]["args"]["n_unseen_classes"]
        sigma = math.sqrt(config["hyperparameter"]["sigma"])  # theirs is for squared distances
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise JoemError(
            f"{path} is no configuration that can be imported ({type(error).__name__}: {error}): expected arch.type "
            f"DeepLabV3Plus, data_loader.type {' or '.join(_LOADERS)}, data_loader.args.n_unseen_classes and "
            "hyperparameter.sigma."
        ) from None
    protocol = protocols.get(f"{kind}-zs3-{unseen}")
    data: dict[str, Any] = {"protocol": protocol.name}
    if protocol.name == "context-zs3-10":
        data = {"protocol": None, "unseen": [_SLIP.get(each, each) for each in protocol.vocabulary.unseen]}
    return name, {"data": data, "model": {"weights": "none"}, "decision": {"rule": "ac", "sigma": sigma}}


def _vocabulary(settings: Recipe) -> Vocabulary:
    """The classes of a recipe, which need no pictures here: those of VOC or Context."""
    if settings.data.protocol is not None:
        return protocols.get(settings.data.protocol).vocabulary
    return protocols.get(f"{settings.data.kind}-zs3-2").vocabulary.with_unseen(settings.data.unseen)


def _load(model: Model, given: Mapping[str, Tensor], source: str) -> None:
    """Give a model their weights; all that does not fit is told, by their names."""
    own = model.method.state_dict()
    names = {_theirs(name): name for name in own}
    wrong = misfits({theirs: own[name] for theirs, name in names.items()}, given, most=None)
    if wrong:
        raise JoemError(f"The weights of {source} do not fit the network of the recipe; {wrong}.")
    model.method.load_state_dict({name: given.get(theirs, own[name]) for theirs, name in names.items()})
    model.method.eval()


def _theirs(name: str) -> str:
    prefix = next(each for each in _NAMES if name.startswith(each))
    return _NAMES[prefix] + name.removeprefix(prefix)
