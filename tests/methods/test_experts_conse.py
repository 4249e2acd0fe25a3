"""The ConSE expert against its equations: what it says, and how it reads the classifier."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from small_experts import CHANNELS, KNOWN, LABELS, SHARED, WORDS, build, random_teacher, random_view, small

from joem.errors import BadUsage
from joem.methods.experts import ConSE, ConSESettings, View
from joem.semantics import imagenet
from joem.vocabulary import VOID

NAMES = 9


def build_alone(teacher, **options):
    expert = ConSE(ConSESettings(**options), SHARED._replace(teacher=teacher)).eval()
    expert.meanings.copy_(F.normalize(torch.randn(NAMES, 6), dim=1))
    return expert


class Decided:
    """A teacher whose posterior is given, whatever it is asked."""

    names = tuple(range(NAMES))
    many = False

    def __init__(self, chances):
        self.chances = chances

    def posterior(self, last, temperature=1.0):
        return self.chances


def a_picture(height=2, width=3, size=(4, 6)):
    """A random last map, and the size of the other experts' features."""
    last = torch.randn(2, CHANNELS[-1], height, width)
    return View(None, last, size)


def means_by_loop(chances, meanings, size):
    """The mean of the meanings at every position, of unit length, resized."""
    found = torch.zeros(len(chances), meanings.shape[1], *chances.shape[-2:])
    for b, y, x in itertools.product(*map(range, (len(chances), *chances.shape[-2:]))):
        mean = sum(chance * meaning for chance, meaning in zip(chances[b, :, y, x], meanings, strict=True))
        found[b, :, y, x] = mean / mean.norm()
    return F.interpolate(found, size, mode="bilinear", align_corners=False)


@torch.no_grad()
def test_features_are_means_of_meanings_weighted_by_the_posterior():
    teacher, view = random_teacher(), a_picture()
    expert = build_alone(teacher)
    chances = teacher.posterior(view)
    torch.testing.assert_close(expert.features(view), means_by_loop(chances, expert.meanings, view.size))
    assert expert.gate(view) is None


@torch.no_grad()
def test_prototypes_are_word_vectors_of_unit_length():
    vectors = WORDS.vectors(["tractor", "cow"])
    found = build_alone(random_teacher()).prototypes(vectors, KNOWN)
    torch.testing.assert_close(found, torch.stack([vector / vector.norm() for vector in vectors]))


def test_meanings_are_those_of_the_dictionary_less_the_mean_of_all():
    expert = ConSE(ConSESettings(), SHARED._replace(teacher=random_teacher(range(3, 12))))
    expert.learn_names(WORDS)
    vectors = WORDS.vectors([imagenet.meanings()[index] for index in range(3, 12)])
    for row, vector in enumerate(vectors):
        apart = vector - sum(vectors) / len(vectors)
        torch.testing.assert_close(expert.meanings[row], apart / apart.norm())


def test_it_learns_nothing_from_masks():
    expert = build_alone(random_teacher()).train()
    assert expert.terms(random_view(), LABELS, KNOWN) == {}
    assert not list(expert.parameters())
    assert not [*expert.visual_parameters(), *expert.semantic_parameters()]


def test_without_names_there_is_nothing_to_read():
    with pytest.raises(BadUsage, match=r"conse reads a classifier of names: set --method.names strict or all"):
        build([small("cosine"), small("conse")])


def test_what_it_needs_at_test_time_is_saved():
    options = {"attention": 8.0, "gate": True, "temperature": 0.6}
    expert = build_alone(random_teacher(saved=True), **options).train()
    expert.terms(random_view(), LABELS, KNOWN)
    fresh = ConSE(ConSESettings(**options), expert.shared).eval()  # the blend saves the teacher
    fresh.load_state_dict(expert.state_dict())
    view = a_picture()
    assert torch.equal(fresh.features(view), expert.eval().features(view))
    assert torch.equal(fresh.gate(view), expert.gate(view))


# -------------------------------------------------- how it reads the classifier: each of the three on its own


@torch.no_grad()
def test_the_posterior_is_that_of_positions_that_look_alike():
    """The mean over all positions of a picture, the more of a position the more alike it looks."""
    chances = torch.rand(2, NAMES, 2, 3).softmax(dim=1)
    expert, view = build_alone(Decided(chances), attention=8.0), a_picture()
    expert.norm.running_mean.copy_(torch.linspace(-0.1, 0.1, CHANNELS[-1]))
    expert.norm.running_var.copy_(torch.linspace(0.5, 2, CHANNELS[-1]))
    deviation = (expert.norm.running_var + 1e-5).sqrt()
    looks = (view.last - expert.norm.running_mean[:, None, None]) / deviation[:, None, None]
    attended = torch.zeros_like(chances)
    positions = list(itertools.product(range(2), range(3)))
    for b, (y, x) in itertools.product(range(2), positions):
        cosines = [F.cosine_similarity(looks[b, :, y, x], looks[b, :, j, i], dim=0) for j, i in positions]
        weights = [math.exp(8 * cosine) for cosine in cosines]
        total = sum(weight * chances[b, :, j, i] for weight, (j, i) in zip(weights, positions, strict=True))
        attended[b, :, y, x] = total / sum(weights)
    expected = means_by_loop(attended, expert.meanings, view.size)
    torch.testing.assert_close(expert.features(view), expected, rtol=1e-4, atol=1e-5)


def test_looks_are_measured_by_what_training_shows():
    expert, view = build_alone(random_teacher(), attention=8.0).train(), random_view()
    expert.terms(view, LABELS, KNOWN)
    mean = view.last.mean(dim=(0, 2, 3))
    torch.testing.assert_close(expert.norm.running_mean, 0.1 * mean)  # torch's momentum
    before = expert.norm.running_mean.clone()
    expert.eval().terms(view, LABELS, KNOWN)
    assert torch.equal(expert.norm.running_mean, before)


@torch.no_grad()
def test_the_posterior_is_sharpened_by_a_temperature():
    teacher = random_teacher()
    expert, view = build_alone(teacher, temperature=0.6), a_picture(1, 1, (1, 1))
    chances = (teacher.classifier(view.last) / 0.6).softmax(dim=1)
    torch.testing.assert_close(expert.features(view), means_by_loop(chances, expert.meanings, (1, 1)))


@torch.no_grad()
def test_it_counts_more_the_rarer_what_it_sees_was_in_training():
    chances = torch.rand(2, NAMES, 1, 1).softmax(dim=1)
    expert, view = build_alone(Decided(chances), gate=True), a_picture(1, 1, (2, 2))
    expert.frequencies.copy_(torch.rand(NAMES) + 0.1)
    middle = sorted(expert.frequencies.tolist())[NAMES // 2]
    rarity = [(middle / float(frequency)) ** 2 for frequency in expert.frequencies]
    for b in range(2):
        expected = sum(float(p) * r for p, r in zip(chances[b, :, 0, 0], rarity, strict=True))
        torch.testing.assert_close(expert.gate(view)[b], torch.full((1, 2, 2), expected))


@torch.no_grad()
def test_how_often_names_are_seen_is_the_mean_over_training_batches():
    teacher = random_teacher()
    expert, seen = build_alone(teacher, gate=True), []
    for labels in ([0, 1, VOID], [4, VOID, VOID], [VOID, VOID, VOID]):
        view, truth = random_view(1, 1, 3), torch.tensor(labels).view(1, 1, 3)
        expert.train().terms(view, truth, KNOWN)
        if labels != [VOID] * 3:
            seen.append(teacher.posterior(view)[0, :, 0].T[truth[0, 0] != VOID].mean(dim=0))
        expert.eval().terms(view, truth, KNOWN)  # does not count
    torch.testing.assert_close(expert.frequencies, torch.stack(seen).mean(dim=0))


@torch.no_grad()
def test_a_gate_moves_weight_between_the_experts_of_unit_length_and_no_other():
    """v . mu is W / total times the mean of their cosines with the weights w_k g_k, W the sum of their weights w_k."""
    weights = {"cosine": 1.0, "conse": 0.4, "mixture": 0.5}
    options = {"conse": {"gate": True}}
    made = build([small(kind, weight=weight, **options.get(kind, {})) for kind, weight in weights.items()], "strict")
    cosine, reader, mixture = made.experts
    reader.frequencies.copy_(torch.rand(len(reader.frequencies)) + 0.1)
    inputs = torch.randn(1, 3, 40, 56)
    words = ["tractor", "cow", "horse"]
    vectors = WORDS.vectors(words)
    view = made._view(inputs)  # the maps of a real backbone, which the posterior is read from
    found = torch.einsum("bchw,kc->bkhw", made.features(inputs), made.prototypes(vectors, words))
    gate = reader.gate(view)
    products = [
        torch.einsum("bchw,kc->bkhw", expert.features(view), expert.prototypes(vectors, made.vectors))
        for expert in (cosine, reader, mixture)
    ]
    of_unit = (1.0 * products[0] + 0.4 * gate * products[1]) / (1.0 + 0.4 * gate)
    expected = (1.4 * of_unit + 0.5 * products[2]) / 1.9
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
