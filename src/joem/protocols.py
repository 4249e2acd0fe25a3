"""The published splits and rules, with the numbers reported on them; the data is in `protocols.yaml`."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

import yaml

from joem.errors import choose
from joem.vocabulary import Vocabulary


@dataclass(frozen=True)
class PublishedScores:
    """What a paper reports for one method, in percent.

    Args:
        seen: mIoU of the seen classes.
        unseen: mIoU of the unseen classes.
        hiou: harmonic mean of the two.
        deviation: standard deviations of the three over the runs, where the paper gives them.
    """

    seen: float
    unseen: float
    hiou: float
    deviation: tuple[float, float, float] | None = None

    @property
    def three(self) -> tuple[float, float, float]:
        """Seen, unseen and hIoU."""
        return self.seen, self.unseen, self.hiou


@dataclass(frozen=True)
class Protocol:
    """One split of one benchmark: the classes held out, how training respects it, what was reported.

    Args:
        name: the protocol's name, as given to `get`.
        dataset: the kind of data, as `joem.data.open` names it: "voc", "context" or "coco-stuff".
        vocabulary: the classes in label order and which are unseen; the background is none of them under the
            rule "ignore", as its pixels count neither in training nor in the scores.
        rule: "exclude" drops every training image that holds an unseen pixel (ZS3); "ignore" keeps all
            images and turns the pixels of unseen classes and of the background into void (SPNet).
        train_split: the dataset's split to train on.
        val_split: the dataset's split to score on.
        training_images: how many training images the rule leaves, where it was reported.
        published: scores by method; "joem-nn" is JoEm without the Apollonius circle.
    """

    name: str
    dataset: Literal["voc", "context", "coco-stuff"]
    vocabulary: Vocabulary
    rule: Literal["exclude", "ignore"]
    train_split: str
    val_split: str
    training_images: int | None
    published: Mapping[str, PublishedScores]


def names() -> tuple[str, ...]:
    """The names of all protocols.

    >>> [name for name in names() if name.startswith("voc")]
    ['voc-zs3-2', 'voc-zs3-4', 'voc-zs3-6', 'voc-zs3-8', 'voc-zs3-10', 'voc-spnet']
    """
    return tuple(_protocols())


def get(name: str) -> Protocol:
    """The protocol of that name; an unknown name answers with the list.

    >>> protocol = get("voc-zs3-4")
    >>> protocol.vocabulary.unseen, protocol.training_images, protocol.published["joem"].hiou
    (('cow', 'motorbike', 'aeroplane', 'sofa'), 8762, 44.6)
    """
    protocols = _protocols()
    return protocols[choose("protocol", name, protocols)]


def published_tables() -> dict[str, Any]:
    """The paper's other tables.

    They are `ablation` (losses, rules), `embedding_space` (two-stage, generative), `per_class` and `settings`.

    >>> published_tables()["ablation"]["rows"][-1]
    {'losses': ['bar', 'sc'], 'rule': 'ac', 'seen': 35.7, 'unseen': 31.8, 'hiou': 33.7}
    """
    tables: dict[str, Any] = deepcopy(_data()["tables"])
    return tables


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(files("joem").joinpath("protocols.yaml").read_text(encoding="utf-8"))
    return data


@cache
def _protocols() -> dict[str, Protocol]:
    return {
        protocol.name: protocol
        for setting, data in _data()["settings"].items()
        for protocol in _splits(setting, data, _data()["datasets"][data["dataset"]])
    }


def _splits(setting: str, data: dict[str, Any], dataset: dict[str, Any]) -> list[Protocol]:
    protocols = []
    unseen: tuple[str, ...] = ()
    for split, added in enumerate(data["unseen"]):
        unseen += tuple(added)
        vocabulary = Vocabulary(tuple(dataset["names"]), unseen, dataset["background"])
        protocols.append(
            Protocol(
                name=f"{setting}-{len(unseen)}" if len(data["unseen"]) > 1 else setting,
                dataset=data["dataset"],
                vocabulary=vocabulary.without_background() if data["rule"] == "ignore" else vocabulary,
                rule=data["rule"],
                train_split=dataset["train_split"],
                val_split=dataset["val_split"],
                training_images=data["training_images"][split] if "training_images" in data else None,
                published=_published(data, split),
            )
        )
    return protocols


def _published(data: dict[str, Any], split: int) -> Mapping[str, PublishedScores]:
    scores = {}
    for method, rows in data.get("published", {}).items():
        seen, unseen, hiou = rows[split]
        deviations = data.get("deviation", {}).get(method)
        scores[method] = PublishedScores(seen, unseen, hiou, tuple(deviations[split]) if deviations else None)
    return MappingProxyType(scores)
