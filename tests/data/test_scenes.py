import pickle
from math import cos, pi, sin, sqrt

import numpy as np
import pytest
import torch

from joem.data import scenes, shapes
from joem.data.scenes import CLASSES, COLOURS, NEW_CLASS, UNSEEN, Scenes, open_split
from joem.errors import BadUsage


def same(a, b):
    return torch.equal(a.image, b.image) and torch.equal(a.labels, b.labels) and a.name == b.name


def test_the_same_seed_and_index_give_the_same_picture_in_any_order_and_process():
    forwards = [Scenes(6, size=64)[i] for i in range(6)]
    longer = Scenes(60, size=64)
    copy = pickle.loads(pickle.dumps(longer))
    for i in reversed(range(6)):
        assert same(forwards[i], longer[i])
        assert same(forwards[i], copy[i])


def test_other_seeds_and_indices_give_other_pictures():
    pictures = [Scenes(3, size=64, seed=seed)[i] for seed in range(3) for i in range(3)]
    assert len({picture.image.numpy().tobytes() for picture in pictures}) == 9
    assert len({picture.labels.numpy().tobytes() for picture in pictures}) == 9
    assert len({picture.name for picture in pictures}) == 9


@pytest.mark.parametrize("size", [32, 33, 97, 200])
def test_sizes_types_and_labels_without_painting(size):
    pictures = Scenes(4, size=size, seed=5)
    for i, sample in enumerate(pictures):
        assert sample.image.shape == (3, size, size)
        assert sample.image.dtype == torch.uint8
        assert sample.labels.shape == (size, size)
        assert sample.labels.dtype == torch.int64
        assert torch.equal(pictures.labels(i), sample.labels)
    assert i == 3  # iteration stops at the end


def test_only_the_allowed_classes_are_drawn_and_all_of_them():
    allowed = ["red circle", "blue cross", "striped blue cross"]
    pictures = Scenes(30, size=64, only=allowed)
    drawn = {pictures.names[label] for i in range(30) for label in pictures.labels(i).unique().tolist()}
    assert drawn == {"background", *allowed}


def test_the_included_class_is_in_every_picture():
    pictures = Scenes(40, size=64, only=["red circle", "blue cross"], include="green ring")
    label = pictures.names.index("green ring")
    assert all((pictures.labels(i) == label).any() for i in range(40))


def test_every_thing_is_large_enough_to_see_and_there_are_several():
    for i in range(50):
        labels, counts = Scenes(50).labels(i).unique(return_counts=True)
        assert 2 <= len(labels) <= 7
        assert counts.min() > 150


def test_a_person_can_name_the_colour_of_every_plain_thing():
    plain = [f"{colour} {shape}" for colour in COLOURS for shape in ("circle", "cross", "ring", "crescent")]
    pictures = Scenes(40, classes=plain)
    for sample in pictures:
        for label in sample.labels.unique().tolist()[1:]:
            tone = sample.image[:, sample.labels == label].double().median(dim=1).values / 255
            nearest = min(COLOURS, key=lambda colour: (tone - torch.tensor(COLOURS[colour])).square().sum())
            assert nearest == pictures.names[label].split()[0]


@pytest.mark.parametrize("pattern", ["striped", "dotted", "checkered"])
def test_a_pattern_has_two_tones_and_a_plain_thing_one(pattern):
    def spread(name):
        pictures = Scenes(5, classes=[name])
        greys = [sample.image.double().mean(dim=0)[sample.labels == 1].std() for sample in pictures]
        return torch.stack(greys).mean()

    assert spread(f"{pattern} blue circle") > 3 * spread("blue circle")


def test_a_shape_without_colour_takes_any():
    reds = [sample.image[0][sample.labels == 1].double().mean() for sample in Scenes(20, classes=["circle"])]
    assert torch.stack(reds).std() > 30


def test_the_background_is_dull():
    for sample in Scenes(30):
        pixels = sample.image[:, sample.labels == 0].double()
        saturation = (pixels.amax(dim=0) - pixels.amin(dim=0)) / pixels.amax(dim=0)
        assert saturation.quantile(0.9) < 0.4


STAR = [(radius * sin(pi / 5 * corner), -radius * cos(pi / 5 * corner)) for corner, radius in enumerate([1, 0.45] * 5)]
POLYGONS = {
    "square": [(-0.7, -0.7), (0.7, -0.7), (0.7, 0.7), (-0.7, 0.7)],
    "triangle": [(0, -1), (sqrt(3) / 2, 0.5), (-sqrt(3) / 2, 0.5)],
    "star": STAR,
    "diamond": [(0, -1), (0.6, 0), (0, 1), (-0.6, 0)],
}


def is_inside(x, y, corners):
    """Count how often a ray to the right crosses the outline."""
    inside = False
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) / (y2 - y1) * (x2 - x1):
            inside = not inside
    return inside


@pytest.mark.parametrize("shape", POLYGONS)
def test_polygons_have_their_corners(shape):
    points = np.random.default_rng(0).uniform(-1, 1, (2, 2000))
    distance = shapes.SHAPES[shape][0](*points)
    for x, y, d in zip(*points, distance, strict=True):
        if abs(d) > 1e-9:
            assert (d < 0) == is_inside(x, y, POLYGONS[shape])


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_every_shape_fits_its_radius_and_fills_a_good_part_of_it(shape):
    x, y = np.meshgrid(np.linspace(-1.5, 1.5, 301), np.linspace(-1.5, 1.5, 301))
    inside = shapes.SHAPES[shape][0](x, y) < 0
    assert np.hypot(x, y)[inside].max() <= 1.01
    assert 0.25 < inside.sum() * 0.01**2 / pi < 0.9


def test_held_out_classes_recombine_seen_words():
    vocabulary = scenes.vocabulary()
    assert vocabulary.names == ("background", *CLASSES)
    assert vocabulary.unseen == UNSEEN
    assert vocabulary.background == "background"
    assert NEW_CLASS not in vocabulary.names
    seen_words = [word for name in vocabulary.seen for word in name.split()]
    for name in (*UNSEEN, NEW_CLASS):
        assert all(seen_words.count(word) >= 2 for word in name.split())


def test_splits_share_no_picture_and_training_shows_no_unseen_class():
    train, val, demo = (open_split(split, 20, size=64) for split in scenes.SPLITS)
    unseen = torch.tensor([train.names.index(name) for name in UNSEEN])
    assert not any(torch.isin(train.labels(i), unseen).any() for i in range(20))
    assert any(torch.isin(val.labels(i), unseen).any() for i in range(20))
    assert all((demo.labels(i) == demo.names.index(NEW_CLASS)).any() for i in range(20))
    assert demo.names[:-1] == val.names == train.names
    seeds = [open_split(split, seed=seed).seed for split in scenes.SPLITS for seed in range(3)]
    assert len(set(seeds)) == 9


def test_the_training_split_leaves_out_the_classes_it_is_told_to():
    train = open_split("train", 40, size=64, unseen=["red circle"])
    drawn = {train.names[label] for i in range(40) for label in train.labels(i).unique().tolist()}
    assert "red circle" not in drawn
    assert drawn & set(UNSEEN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count=0"),
        ({"size": 8}, "size=8"),
        ({"seed": -1}, "seed=-1"),
        ({"only": []}, "nothing to draw"),
        ({"only": ["red cow"]}, "Unknown class 'red cow'"),
        ({"include": "red cow"}, "Unknown class 'red cow'"),
        ({"classes": ["red circel"]}, "Unknown shape in 'red circel' 'circel'. Did you mean 'circle'?"),
        ({"classes": ["rde circle"]}, "Unknown colour in 'rde circle' 'rde'. Did you mean 'red'?"),
        (
            {"classes": ["striped red blue circle"]},
            "is '[pattern] [colour] shape', got 'striped red blue circle'",
        ),
        ({"classes": ["red circle", "red circle"]}, "these repeat: red circle"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(arguments, message):
    with pytest.raises(BadUsage) as error:
        Scenes(**{"count": 1, **arguments})
    assert message in str(error.value)


def test_an_unknown_split_and_an_index_outside_are_errors():
    with pytest.raises(BadUsage, match="Available options are: train, val, demo"):
        open_split("test")
    for index in (-1, 3):
        with pytest.raises(IndexError):
            Scenes(3)[index]


def test_a_thing_that_would_hide_another_is_left_out():
    rng = np.random.default_rng(0)
    look = scenes._parse("red circle")
    large = scenes._pose(rng, look, 60, 128)
    owner = np.full((128, 128), -1)
    owner[large.window][large.inside] = 0
    assert scenes._fit_in(rng, look, 120, owner, [large]) is None
    assert scenes._fit_in(rng, look, 20, owner, [large]) is not None
