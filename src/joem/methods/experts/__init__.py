"""The experts of a `blend`: each has its own features, prototypes, loss terms, sizes and settings."""

from joem.methods.experts.conse import ConSE, ConSESettings
from joem.methods.experts.cosine import Cosine, CosineSettings
from joem.methods.experts.expert import Expert, ExpertSettings, Shared
from joem.methods.experts.mixture import Mixture, MixtureSettings
from joem.methods.experts.names import NamesTeacher
from joem.methods.experts.novelty import Novelty, NoveltySettings
from joem.methods.experts.tower import Tower, TowerSettings
from joem.methods.experts.view import View

EXPERTS: dict[str, type[Expert]] = {
    "cosine": Cosine,
    "conse": ConSE,
    "mixture": Mixture,
    "novelty": Novelty,
    "tower": Tower,
}
"""Every expert by its kind."""

__all__ = [
    "EXPERTS",
    "ConSE",
    "ConSESettings",
    "Cosine",
    "CosineSettings",
    "Expert",
    "ExpertSettings",
    "Mixture",
    "MixtureSettings",
    "NamesTeacher",
    "Novelty",
    "NoveltySettings",
    "Shared",
    "Tower",
    "TowerSettings",
    "View",
]
