"""The mixture expert against its equations."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experts import KNOWN, SEEN, SHARED, VOCABULARY, WORDS, AsGiven, given_features, random_view

from joem.methods.experts import Mixture, MixtureSettings
from joem.vocabulary import VOID, Vocabulary

OBJECTS = (1, 3, 4)


def build(channels=3, copies=1, vocabulary=VOCABULARY):
    """An expert whose features are what is given to it."""
    own = MixtureSettings(copies=copies, hidden=2, channels=channels)
    expert = Mixture(own, SHARED._replace(vocabulary=vocabulary))
    expert.head = AsGiven()
    return expert


def terms_by_loops(features, labels, centres, copies):
    """L_ce and L_centre pixel by pixel and copy by copy, straight from the definition."""
    size = features.shape[1] // copies
    entropy = pull = 0.0
    count = max(1, int((labels != VOID).sum())) * copies
    for b, y, x in (labels != VOID).nonzero().tolist():
        label = int(labels[b, y, x])
        for copy in range(copies):
            part = slice(copy * size, (copy + 1) * size)
            squares = {c: float((features[b, part, y, x] - centres[r, part]).square().sum()) for c, r in SEEN.items()}
            shift = min(squares.values())
            total = sum(math.exp((shift - square) / 2) for square in squares.values())
            entropy -= (shift - squares[label]) / 2 - math.log(total)
            if label in OBJECTS:
                pull += squares[label]
    return {"ce": pytest.approx(entropy / count, rel=1e-4, abs=1e-5), "centre": pytest.approx(pull / count, rel=1e-4)}


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**16)
)
@settings(deadline=None, max_examples=50)
def test_terms_follow_their_equations(batch, copies, height, width, size, seed):
    torch.manual_seed(seed)
    expert = build(size, copies)
    features = torch.randn(batch, copies * size, height, width)
    labels = torch.tensor([0, 1, 3, 4, VOID])[torch.randint(5, (batch, height, width))]
    found = expert.terms(given_features(features), labels, KNOWN)
    expected = terms_by_loops(features, labels, expert.centres.detach(), copies)
    assert {name: float(term.detach()) for name, term in found.items()} == expected


def test_mixed_precision_does_not_reach_the_distances():
    expert = build(8)
    expert.centres.data += 10
    features, labels = expert.centres.data[[1, 3]].T.reshape(1, 8, 1, 2).clone(), torch.tensor([[[1, 4]]])
    exact = expert.terms(given_features(features), labels, KNOWN)
    with torch.autocast("cpu", torch.bfloat16):
        for name, term in expert.terms(given_features(features), labels, KNOWN).items():
            assert float(term.detach()) == pytest.approx(float(exact[name].detach()), rel=1e-6)


def test_a_batch_without_labels_is_an_exact_zero_with_a_gradient():
    expert = build(4)
    features = torch.randn(1, 4, 3, 3, requires_grad=True)
    total = sum(expert.terms(given_features(features), torch.full((1, 3, 3), VOID), KNOWN).values())
    total.backward()
    assert float(total.detach()) == 0
    assert not features.grad.any()
    assert not expert.centres.grad.any()


def length(centres):
    """R, the root of the mean of |m_c|^2."""
    return math.sqrt(sum(float(centre @ centre) for centre in centres) / len(centres))


@torch.no_grad()
def test_features_are_measured_by_the_length_of_centres():
    expert, features = build(), torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(expert.features(given_features(features)), features / length(expert.centres))


@torch.no_grad()
def test_seen_words_have_their_centres_and_other_words_lie_between_those_of_objects():
    expert = build()
    unit = length(expert.centres)
    vectors = WORDS.vectors(["cow", "background", "tractor", "sheep"])
    found = expert.prototypes(vectors, KNOWN)
    torch.testing.assert_close(found[1], expert.centres[0] / unit)
    torch.testing.assert_close(found[3], expert.centres[SEEN[3]] / unit)
    for row in (0, 2):
        shares = {c: math.exp(10 * float(F.cosine_similarity(vectors[row], KNOWN[c], dim=0))) for c in OBJECTS}
        total = sum(shares.values())
        between = sum(share * expert.centres[SEEN[c]] for c, share in shares.items()) / total
        mean_length = sum(share * float(expert.centres[SEEN[c]].norm()) for c, share in shares.items()) / total
        stretch = (mean_length / float(between.norm())) ** 0.75
        torch.testing.assert_close(found[row], stretch * between / unit)


@torch.no_grad()
def test_with_nothing_but_background_seen_every_word_is_background():
    lonely = Vocabulary(("background", "cow"), ("cow",), "background")
    expert = build(vocabulary=lonely)
    found = expert.prototypes(WORDS.vectors(["cow"]), WORDS.vectors(lonely.names))
    torch.testing.assert_close(found[0], expert.centres[0] / length(expert.centres))


def test_heads_and_centres_learn():
    expert = Mixture(MixtureSettings(copies=2, hidden=4, channels=3), SHARED)
    sum(expert.terms(random_view(), torch.tensor([[[0, 1, 3, 4, 4]]]).repeat(2, 1, 1), KNOWN).values()).backward()
    learning = [*expert.visual_parameters(), *expert.semantic_parameters()]
    assert {id(weight) for weight in learning} == {id(weight) for weight in expert.parameters()}
    assert all(weight.grad is not None and weight.grad.any() for weight in learning)
