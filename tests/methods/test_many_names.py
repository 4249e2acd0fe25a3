"""Thousands of names in blocks of positions: the same numbers as all at once, and a tower by itself."""

import pytest
import torch
import torch.nn.functional as F
from small_experts import CHANNELS, KNOWN, LABELS, SHARED, given_features, random_teacher, random_view

from joem.errors import BadUsage
from joem.methods.experts import ConSE, ConSESettings, Cosine, CosineSettings, Tower, TowerSettings, names
from joem.methods.experts.names import left_out
from joem.semantics import imagenet


def in_blocks(monkeypatch):
    monkeypatch.setattr(names, "MANY", 0)
    monkeypatch.setattr(names, "BLOCK", 18)  # two positions of nine names


def test_what_names_teach_cosines_is_the_same_in_blocks(monkeypatch):
    torch.manual_seed(0)
    teacher, view = random_teacher(), random_view()
    settings = CosineSettings(hidden=4, channels=3, copies=2, scale=5.0, names_weight=0.7)
    expert = Cosine(settings, SHARED._replace(teacher=teacher)).eval()

    def term_and_gradients():
        expert.zero_grad()
        term = expert.terms(view, LABELS, KNOWN)["names"]
        term.backward()
        view.kept.clear()
        return [term.detach(), *(each.grad.clone() for each in expert.parameters())]

    whole = term_and_gradients()
    in_blocks(monkeypatch)
    assert teacher.many
    for a, b in zip(term_and_gradients(), whole, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("attention", [0.0, 8.0])
@pytest.mark.parametrize("gate", [False, True])
@torch.no_grad()
def test_what_the_classifier_sees_is_the_same_in_blocks(attention, gate, monkeypatch):
    torch.manual_seed(0)
    teacher = random_teacher()
    settings = ConSESettings(attention=attention, gate=gate, temperature=0.6)

    def found():
        torch.manual_seed(1)
        expert, view = ConSE(settings, SHARED._replace(teacher=teacher)), random_view(height=2)
        expert.meanings.normal_()
        expert.train().terms(view, LABELS.expand(-1, 2, -1), KNOWN)
        expert.eval()
        view.kept.clear()
        return expert.features(view), expert.gate(view)

    whole = found()
    in_blocks(monkeypatch)
    for a, b in zip(found(), whole, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_a_strict_teacher_of_22k_names_knows_no_kind_of_an_unseen_class():
    entries, out = imagenet.entries_of("imagenet-22k"), set(left_out(("cow", "sofa"), "imagenet-22k"))
    words = {each for index, entry in enumerate(entries) if index not in out for each in entry.names}
    assert not words & {"cow", "heifer", "milk cow", "ox", "sofa", "couch", "studio couch"}
    assert {"airliner", "grass", "sky", "locomotive"} <= words
    assert 18_000 < len(entries) - len(out) < len(entries) == 21_841


@torch.no_grad()
def test_the_tower_alone_is_the_largest_cosine():
    torch.manual_seed(0)
    shared = SHARED._replace(channels=[3, 4, 6])
    expert, features = Tower(TowerSettings(), shared), torch.randn(2, 6, 1, 5)
    view = given_features(features)
    distances = torch.cdist(
        expert.features(view).flatten(2).transpose(1, 2), expert.prototypes(KNOWN, KNOWN).expand(2, -1, -1)
    )
    for b in range(2):
        for x in range(5):
            cosines = [float(F.cosine_similarity(features[b, :, 0, x], word, dim=0)) for word in KNOWN]
            assert int(distances[b, x].argmin()) == max(range(len(cosines)), key=cosines.__getitem__)
    assert expert.visual_parameters() == []


def test_a_tower_needs_words_of_its_own_space():
    with pytest.raises(BadUsage, match=rf"last map \({CHANNELS[-1]} channels\) with word vectors \(6 numbers\)"):
        Tower(TowerSettings(), SHARED)
