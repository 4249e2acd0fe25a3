"""The cosine expert against its equations."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experts import KNOWN, LABELS, SHARED, WORDS, random_teacher, random_view

from joem.methods.experts import Cosine, CosineSettings
from joem.vocabulary import VOID


def build(teacher=None, **changes):
    sizes = {"hidden": 4, "channels": 3, "scale": 7.0}
    return Cosine(CosineSettings(**{**sizes, **changes}), SHARED._replace(teacher=teacher)).eval()


def labelled(labels):
    return [(b, y, x) for b, y, x in (labels != VOID).nonzero().tolist()]


@given(st.integers(1, 3), st.booleans(), st.integers(0, 2**16))
@settings(deadline=None, max_examples=15)
@torch.no_grad()
def test_the_terms_follow_their_equations_copy_by_copy(copies, taught, seed):
    torch.manual_seed(seed)
    teacher = random_teacher() if taught else None
    expert, view = build(teacher, copies=copies, names_weight=0.5), random_view()
    terms = expert.terms(view, LABELS, KNOWN)
    raw, placed = expert.head(view.columns), expert.semantic(KNOWN)
    named = expert.semantic(teacher.vectors) if taught else None
    entropy = agreement = 0.0
    for b, y, x in labelled(LABELS):
        for copy in range(copies):
            part = slice(3 * copy, 3 * copy + 3)
            v = raw[b, part, y, x] / raw[b, part, y, x].norm()
            cosines = [float(v @ (mu[part] / mu[part].norm())) for mu in placed]
            total = sum(math.exp(7.0 * cosines[c]) for c in (0, 1, 3, 4))
            entropy -= 7.0 * cosines[int(LABELS[b, y, x])] - math.log(total)
            if taught:
                student = torch.stack([7.0 * v @ (mu[part] / mu[part].norm()) for mu in named]).log_softmax(0)
                agreement -= float(teacher.posterior(view)[b, :, y, x] @ student)
    count = len(labelled(LABELS)) * copies
    assert float(terms["ce"]) == pytest.approx(entropy / count, rel=1e-4)
    assert ("names" in terms) == taught
    if taught:
        assert float(terms["names"]) == pytest.approx(0.5 * agreement / count, rel=1e-4)


@torch.no_grad()
def test_a_cosine_of_the_whole_is_the_mean_of_the_copies():
    expert, view = build(copies=3), random_view()
    features, prototypes = expert.features(view), expert.prototypes(KNOWN, KNOWN)
    raw, placed = expert.head(view.columns), expert.semantic(KNOWN)
    together = torch.einsum("bchw,kc->bkhw", features, prototypes)
    apart = [
        torch.cosine_similarity(raw[:, None, part], placed[None, :, part, None, None], dim=2)
        for part in (slice(0, 3), slice(3, 6), slice(6, 9))
    ]
    torch.testing.assert_close(together, torch.stack(apart).mean(dim=0))


@torch.no_grad()
def test_features_and_prototypes_have_unit_length():
    expert = build(copies=2)
    features = expert.features(random_view())
    torch.testing.assert_close(features.norm(dim=1), torch.ones_like(features[:, 0]))
    assert float(expert.prototypes(WORDS.vectors(["tractor"]), KNOWN).norm()) == pytest.approx(1)


def test_names_of_no_weight_teach_nothing():
    assert set(build(random_teacher(), names_weight=0.0).terms(random_view(), LABELS, KNOWN)) == {"ce"}


def test_the_teacher_does_not_learn():
    teacher = random_teacher()
    expert = build(teacher)
    sum(expert.terms(random_view(), LABELS, KNOWN).values()).backward()
    assert not list(teacher.parameters())
    assert not [key for key in expert.state_dict() if "teacher" in key]
    assert {id(weight) for weight in (*expert.visual_parameters(), *expert.semantic_parameters())} == {
        id(weight) for weight in expert.parameters()
    }


def test_a_batch_without_labels_is_an_exact_zero_with_a_gradient():
    expert = build(random_teacher())
    total = sum(expert.terms(random_view(), torch.full((2, 1, 5), VOID), KNOWN).values())
    total.backward()
    assert float(total.detach()) == 0
    assert not any(weight.grad.any() for weight in expert.parameters())


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**16))
@settings(deadline=None, max_examples=15)
@torch.no_grad()
def test_the_term_of_captions_follows_its_equation_copy_by_copy(copies, photos, seed):
    torch.manual_seed(seed)
    expert, view = build(copies=copies, captions_weight=0.5), random_view(batch=photos)
    nouns, vectors = torch.rand(photos, 6) < 0.4, torch.randn(6, 6)
    nouns[:, 5] = False  # a noun that none of these photos has is not contrasted with
    terms = expert.caption_terms(view, nouns, vectors)
    raw, placed = expert.head(view.columns), expert.semantic(vectors)
    here = [n for n in range(6) if nouns[:, n].any()]
    if not here:
        assert terms == {}
        return
    losses = []
    for i, copy in itertools.product(range(photos), range(copies)):
        part = slice(3 * copy, 3 * copy + 3)
        pixels = [raw[i, part, 0, x] / raw[i, part, 0, x].norm() for x in range(5)]
        fit = {
            n: sum(math.exp(7.0 * float(v @ (placed[n, part] / placed[n, part].norm()))) for v in pixels) for n in here
        }
        others = sum(fit[n] for n in here if not nouns[i, n])
        losses += [-math.log(fit[n] / (fit[n] + others)) for n in here if nouns[i, n]]
    assert float(terms["captions"]) == pytest.approx(0.5 * sum(losses) / len(losses), rel=1e-4, abs=1e-6)


@torch.no_grad()
def test_photos_without_a_noun_teach_nothing():
    assert build().caption_terms(random_view(), torch.zeros(2, 3, dtype=torch.bool), torch.randn(3, 6)) == {}


@given(st.integers(1, 2), st.integers(0, 2**16))
@settings(deadline=None, max_examples=15)
@torch.no_grad()
def test_surroundings_are_background_in_one_term_and_classes_in_the_other(copies, seed):
    torch.manual_seed(seed)
    classes = SHARED.vocabulary.with_taught(["grass", "sky"])  # background, horse, cow (unseen), sheep, car, grass, sky
    shared, vectors = SHARED._replace(vocabulary=classes), torch.randn(7, 6)
    sizes = {"hidden": 4, "channels": 3, "scale": 7.0, "copies": copies, "taught_weight": 0.5}
    expert, view = Cosine(CosineSettings(**sizes), shared).eval(), random_view()
    labels = torch.tensor([0, 1, 3, 4, 5, 6, VOID])[torch.randint(7, (2, 1, 5))]
    terms = expert.terms(view, labels, vectors)
    raw, placed = expert.head(view.columns), expert.semantic(vectors)
    plain = apart = 0.0
    for b, y, x in labelled(labels):
        for copy in range(copies):
            part = slice(3 * copy, 3 * copy + 3)
            v = raw[b, part, y, x] / raw[b, part, y, x].norm()
            cosine = [7.0 * float(v @ (mu[part] / mu[part].norm())) for mu in placed]
            label = int(labels[b, y, x])
            plain -= cosine[0 if label in (5, 6) else label] - math.log(sum(math.exp(cosine[c]) for c in (0, 1, 3, 4)))
            apart -= cosine[label] - math.log(sum(math.exp(cosine[c]) for c in (0, 1, 3, 4, 5, 6)))
    count = max(1, len(labelled(labels)) * copies)
    assert float(terms["ce"]) == pytest.approx(plain / count, rel=1e-4, abs=1e-6)
    assert float(terms["taught"]) == pytest.approx(0.5 * apart / count, rel=1e-4, abs=1e-6)
