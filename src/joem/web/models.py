"""The models that are served, and what is told of each: the default one, and others that load when first asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from joem import __version__
from joem.asking import NOT
from joem.decision import RULES, parameters
from joem.errors import JoemError
from joem.model_folder import find_model
from joem.segmenter import Segmenter
from joem.vocabulary import colours
from joem.web import schemas
from joem.web.failures import Refusal
from joem.web.gallery import SamplePicture
from joem.web.limits import MOST_CLASSES, Limits

_COLOURS = colours(map(str, range(MOST_CLASSES)))
_HOW = {"names": "By names", "teacher": "By a network", "captions": "By captions"}
_MOST_LISTED = 60


class ServedModel(NamedTuple):
    """A model and the pictures to start with."""

    name: str
    segmenter: Segmenter
    samples: Sequence[SamplePicture]


class Models:
    """All models by name. Others than the default load once, when they are first asked for, and stay.

    Args:
        default: the model that calls are for that name none.
        others: what loads the others, by name.
    """

    def __init__(self, default: ServedModel, others: Mapping[str, Callable[[], ServedModel]]) -> None:
        self.default = default
        self._others = {name: load for name, load in others.items() if name != default.name}
        self._loaded = {default.name: default}
        self._lock = Lock()

    @property
    def names(self) -> list[str]:
        """The names to choose from, the default first."""
        return [self.default.name, *self._others]

    def is_ready(self, name: str | None) -> bool:
        """Whether `get` answers at once."""
        return name is None or name in self._loaded or name not in self._others

    def get(self, name: str | None) -> ServedModel:
        """A model; this can take seconds when it is first asked for."""
        if name is None:
            return self.default
        if name not in self.names:
            known = ", ".join(self.names)
            raise Refusal(404, f"There is no model {name[:80]!r} here: there are {known}.")
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._others[name]()
            return self._loaded[name]


def find_models(folder: Path) -> dict[str, Path]:
    """The models below a folder, by name: folders as `joem train` and `Segmenter.save` write them, and .onnx files."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.suffix == ".onnx" and path.is_file():
            found[path.stem] = path
        elif path.is_dir() and _holds_model(path):
            found[path.name] = path
    if not found:
        raise JoemError(f"There are no models in {folder}: give a folder of trained models or .onnx files.")
    return found


def _holds_model(path: Path) -> bool:
    try:
        return find_model(path.resolve()).is_dir()
    except JoemError:
        return False


def model_info(served: ServedModel, limits: Limits) -> schemas.ModelInfo:
    """What the service tells of a model."""
    vocabulary, own = served.segmenter.vocabulary, served.segmenter.model.recipe.decision
    values = {name: own.values.get(name, parameter.neutral) for name, parameter in parameters().items()}
    return schemas.ModelInfo(
        name=served.name,
        version=__version__,
        names=list(vocabulary.names),
        trained=list(vocabulary.seen),
        background=vocabulary.background,
        rules=[schemas.RuleInfo.model_validate(rule) for rule in RULES.values()],
        decision=schemas.DecisionInfo(rule=own.rule, values=values),
        strongest=_strongest(served.segmenter),
        has_scores=own.score is not None,
        taught=_taught(served.segmenter),
        colours=_COLOURS,
        limits=asdict(limits),
    )


def _strongest(segmenter: Segmenter) -> dict[str, float]:
    """The strongest value worth trying of every parameter of a rule: the same for all pictures."""
    prototypes = segmenter.model.prototypes()
    reach = float((prototypes[:, None] - prototypes[None]).norm(dim=2).max()) if len(prototypes) > 1 else 1.0
    return {name: parameter.grid(reach or 1.0)[-1] for name, parameter in parameters().items()}


def _taught(segmenter: Segmenter) -> list[schemas.TaughtInfo]:
    """What a model was taught, with what and by whom, in lines for people."""
    model, recipe, vocabulary = segmenter.model, segmenter.model.recipe, segmenter.vocabulary
    data = recipe.data
    pictures = {"data set": data.kind, "protocol": data.protocol, "split": data.train_split}
    lines = {
        "Masks of": _listed(vocabulary.without_taught().seen),
        "Only words of": _listed(vocabulary.unseen),
        "Shown by example": _listed([name for name in model.examples if name != NOT]),
        "Pictures": ", ".join(f"{key} {value}" for key, value in pictures.items() if value is not None),
        **{
            f"{_HOW[each.how]}, {each.who}": f"{_listed(each.words)}. It learned from {each.saw}."
            for each in model.teaching
            if each.how in _HOW
        },
        "Word vectors": recipe.semantics.vectors,
        "Method": f"{recipe.method.name}, on {recipe.model.backbone}",
    }
    return [schemas.TaughtInfo(title=title, text=text) for title, text in lines.items() if text]


def _listed(names: Sequence[str]) -> str:
    """Names with commas between them, the first of many.

    >>> _listed(["cow"] * 61)[-21:]
    'cow, cow and 1 others'
    """
    more = f" and {len(names) - _MOST_LISTED} others" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more
