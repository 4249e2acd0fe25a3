"""The classes that are asked for, and what belongs to the background."""

import torch

from joem import decision
from joem.asking import understand
from joem.classes import AskedClasses
from joem.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("background", "cow"), background="background").with_taught(["grass", "sky"])
PROTOTYPES = {
    "background": torch.tensor([0.0, 0.0, 1.0, 0.0]),
    "cow": torch.tensor([1.0, 0.0, 0.0, 0.0]),
    "grass": torch.tensor([0.0, 1.0, 0.0, 0.0]),
    "sky": torch.tensor([0.0, 0.0, 0.0, 1.0]),
    "lawn": torch.tensor([0.0, 0.9, 0.1, 0.0]),
    "tractor": torch.tensor([0.5, 0.3, 0.3, 0.3]),
}


def asked(names, **options):
    return AskedClasses.of(understand(names, VOCABULARY, **options), PROTOTYPES, {}, VOCABULARY, None)


def labels(classes, features):
    ranking = classes.rank(features, None, classes.unseen)
    return [classes.names[label] for label in decision.RULES["nn"].decide(ranking, None).flatten().tolist()]


def test_known_surroundings_are_background_unless_they_are_asked_for():
    pixels = torch.stack([PROTOTYPES[name] for name in ("cow", "grass", "sky")]).T[None, :, None]
    assert labels(asked("cow"), pixels) == ["cow", "background", "background"]
    assert labels(asked("cow, grass"), pixels) == ["cow", "grass", "background"]
    assert labels(asked("cow, grass", background=False), pixels) == ["cow", "grass", "cow"]


def test_a_new_word_for_known_surroundings_is_not_taken_by_them():
    pixels = PROTOTYPES["grass"][None, :, None, None]
    assert labels(asked("lawn"), pixels) == ["lawn"]
    assert "grass" not in asked("lawn").words
    assert labels(asked("tractor"), pixels) == ["background"]
    assert "grass" in asked("tractor").words


def test_surroundings_that_are_nearly_what_is_asked_for_are_not_background():
    vocabulary = VOCABULARY.with_taught(["field"])
    prototypes = {**PROTOTYPES, "field": torch.tensor([0.0, 0.5, 0.0, 0.8])}  # cosine .53 to grass, .85 to sky
    by_word = {
        word: AskedClasses.of(understand(word, vocabulary), prototypes, {}, vocabulary, None).words
        for word in ("grass", "cow")
    }
    assert "field" not in by_word["grass"]
    assert {"field", "grass", "sky"} <= by_word["cow"]  # a class with masks is never taken for surroundings
    assert "sky" in by_word["grass"]


def test_the_second_distance_is_that_to_another_class():
    torch.manual_seed(0)
    classes, features = asked("cow, tractor"), torch.randn(1, 4, 5, 6)
    ranking = classes.rank(features, None, classes.unseen)
    words = {"background": ("background", "grass", "sky"), "cow": ("cow",)}
    for y in range(5):
        for x in range(6):
            v = features[0, :, y, x]
            distance = {name: min(float((v - PROTOTYPES[w]).norm()) for w in own) for name, own in words.items()}
            first, second = sorted(distance, key=distance.get)
            assert classes.names[int(ranking.seen[0, y, x])] == first
            assert abs(float(ranking.second_seen_distance[0, y, x]) - distance[second]) < 1e-4
