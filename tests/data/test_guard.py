"""No unseen class reaches a loss: the training rules, the guard, and the training set that uses both."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import CLEAN, COW, COWS, EMPTY, MEAN, STD, Masks, failure, save_palette, write_pictures
from torch.utils.data import DataLoader

from joem import data
from joem.errors import BadUsage, LeakageError
from joem.vocabulary import VOID, Vocabulary


def test_exclude_drops_every_picture_with_an_unseen_pixel():
    kept = data.seen_only(Masks([COWS, CLEAN, EMPTY, COWS]), COW, "exclude")
    assert [sample.name for sample in kept] == ["picture-1", "picture-2"]
    assert kept.labels(0).tolist() == kept[0].labels.tolist() == CLEAN
    assert kept.names == COW.names
    assert kept.background == "background"


def test_ignore_keeps_all_pictures_and_voids_unseen():
    kept = data.seen_only(Masks([COWS, CLEAN]), COW, "ignore")
    assert [kept.labels(i).tolist() for i in range(2)] == [[[0, 255], [1, 255]], CLEAN]
    assert kept[0].labels.tolist() == [[0, 255], [1, 255]]
    without_background = COW.without_background()
    pictures = data.relabel(Masks([COWS]), without_background.names)
    assert data.seen_only(pictures, without_background, "ignore").labels(0).tolist() == [
        [255, 255],
        [0, 255],
    ]


@pytest.mark.parametrize("rule", ["exclude", "ignore"])
def test_nothing_unseen_changes_nothing_else(rule):
    everything_seen = Vocabulary(COW.names)
    kept = data.seen_only(Masks([COWS, CLEAN]), everything_seen, rule)
    assert [kept.labels(i).tolist() for i in range(2)] == [COWS, CLEAN]


def test_rules_on_folders(tmp_path):
    folder = write_pictures(tmp_path)
    save_palette(np.eye(4, 5, dtype=np.uint8), folder / "masks" / "b.png")
    pictures = data.Folder(folder)
    assert [sample.name for sample in data.seen_only(pictures, COW, "exclude")] == ["b"]
    assert data.seen_only(pictures, COW, "ignore").labels(0)[0].tolist() == [1, VOID, VOID, 0, 0]


@pytest.mark.parametrize("masks", [[COWS], [COWS, EMPTY]])
def test_no_seen_class_left_says_what_was_dropped_and_what_to_do(masks):
    message = failure(data.seen_only, Masks(masks), COW, "exclude")
    kept = len(masks) - 1
    assert f"No seen class left after rule 'exclude': {kept} of {len(masks)} pictures stay" in message
    assert "(unseen: cow)" in message
    assert "Hold out fewer classes" in message
    assert "255 is void, which is no class" in message
    none_unseen = failure(data.seen_only, Masks([EMPTY]), Vocabulary(COW.names, background=COW.background), "exclude")
    assert "other than the background. Add pictures that show a class, or check that the masks hold" in none_unseen
    assert "No seen class left after rule 'ignore'" in failure(data.seen_only, Masks([EMPTY]), COW, "ignore")


def test_wrong_rules_and_vocabularies_are_errors():
    message = failure(data.seen_only, Masks([CLEAN]), COW, "drop", kind=BadUsage)
    assert "Available options are: exclude, ignore" in message
    other = Vocabulary(("background", "cow", "dog"))
    message = failure(data.seen_only, Masks([CLEAN]), other, "exclude", kind=BadUsage)
    assert "background, dog, cow" in message
    assert "background, cow, dog" in message
    assert "joem.data.relabel leaves classes out" in message


@pytest.mark.parametrize("labels", [CLEAN, EMPTY, [[VOID]], np.zeros((0, 3), np.int64)])
def test_the_guard_lets_seen_classes_and_void_pass(labels):
    data.guard(torch.tensor(labels), COW)


@pytest.mark.parametrize(
    ("labels", "messages"),
    [
        (COWS, ["unseen class 'cow' (2 pixels)"]),
        ([[0, 3, 3]], ["label 3, which is no class (2 pixels)"]),
        ([[-1, -5, 300]], ["label -1, which is no class (2 pixels)", "label 300"]),
        ([[2, 254]], ["unseen class 'cow' (1 pixels)", "label 254"]),
    ],
)
def test_the_guard_names_what_must_not_be_there(labels, messages):
    message = failure(data.guard, torch.tensor(labels), COW, kind=LeakageError)
    assert all(part in message for part in messages)
    assert "make the training set with joem.data.seen_only" in message


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([-1, *range(7), VOID]), min_size=1, max_size=30),
    st.sets(st.integers(0, 5), max_size=5),
)
def test_the_guard_equals_looking_at_every_pixel(pixels, unseen):
    names = tuple("abcdef")
    vocabulary = Vocabulary(names, unseen=tuple(names[i] for i in sorted(unseen)))
    leaks = any(label != VOID and (label in unseen or not 0 <= label < 6) for label in pixels)
    try:
        data.guard(torch.tensor(pixels).reshape(1, 1, -1), vocabulary)
        assert not leaks
    except LeakageError:
        assert leaks


def scene_set(seed=0):
    transform = data.training(32, mean=MEAN, std=STD)
    return data.TrainingSet(
        data.Scenes(12, size=48, only=["red circle"]),
        data.scenes.vocabulary(),
        "exclude",
        transform,
        seed=seed,
    )


def test_crops_depend_on_seed_epoch_and_index_alone():
    pictures = scene_set()
    first = [pictures[epoch, index] for epoch in range(2) for index in range(12)]
    torch.manual_seed(99)
    again = pickle.loads(pickle.dumps(pictures))
    for (epoch, index), (image, labels) in zip(
        [(epoch, index) for epoch in range(2) for index in range(12)][::-1], first[::-1], strict=True
    ):
        assert torch.equal(again[epoch, index][0], image)
        assert torch.equal(again[epoch, index][1], labels)
    assert sum(torch.equal(pictures[0, i][0], pictures[1, i][0]) for i in range(12)) < 2
    assert sum(torch.equal(pictures[0, i][0], scene_set(seed=1)[0, i][0]) for i in range(12)) < 2


def test_the_global_generator_is_left_as_it_was():
    pictures = scene_set()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pictures[0, 0]
    assert torch.equal(torch.rand(3), expected)


def test_workers_load_the_same_batches_in_every_epoch():
    pictures = scene_set()
    sampler = data.EpochSampler(len(pictures), 5, seed=3)
    loader = DataLoader(
        pictures, batch_sampler=sampler, num_workers=2, collate_fn=data.collate, persistent_workers=True
    )
    for epoch in range(2):
        sampler.epoch = epoch
        for keys, (images, labels) in zip(sampler, loader, strict=True):
            assert images.shape == (5, 3, 32, 32)
            assert {key[0] for key in keys} == {epoch}
            for key, image, label in zip(keys, images, labels, strict=True):
                assert torch.equal(pictures[key][0], image)
                assert torch.equal(pictures[key][1], label)


@pytest.mark.parametrize("rule", ["exclude", "ignore"])
def test_a_dataset_that_lies_about_its_masks_is_caught(rule):
    transform = data.training(2, mean=MEAN, std=STD)
    honest = data.TrainingSet(Masks([CLEAN, CLEAN]), COW, rule, transform, seed=0)
    honest[0, 1]
    slipped = [[0, 2], [1, 2]] if rule == "exclude" else [[0, 77], [1, 77]]  # "ignore" voids cows themselves
    lying = data.TrainingSet(Masks([CLEAN, CLEAN], shown=[CLEAN, slipped]), COW, rule, transform, seed=0)
    lying[0, 0]
    message = failure(lambda: lying[0, 1], kind=LeakageError)
    assert ("unseen class 'cow' (2 pixels)" if rule == "exclude" else "label 77") in message


def test_no_unseen_label_reaches_the_loss_under_either_rule():
    pictures = data.Scenes(40, size=48)
    vocabulary = data.scenes.vocabulary()
    transform = data.training(32, mean=MEAN, std=STD)
    for rule in ("exclude", "ignore"):
        chosen = data.TrainingSet(pictures, vocabulary, rule, transform, seed=0)
        assert len(chosen) == (
            40
            if rule == "ignore"
            else sum(not set(pictures.labels(i).unique().tolist()) & set(vocabulary.unseen_indices) for i in range(40))
        )
        present = {label for i in range(len(chosen)) for label in chosen[0, i][1].unique().tolist()}
        assert not present & set(vocabulary.unseen_indices)
        assert 0 in present
