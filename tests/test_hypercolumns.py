"""Hypercolumns: gathered right, stored once, the same in every process, and never unseen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from joem import data, engine, recipe
from joem.data.scenes import Scenes
from joem.engine.hypercolumns import HypercolumnSet, MapStore, random_pixels, random_square
from joem.errors import BadUsage, LeakageError
from joem.models import HypercolumnHead, VisualEncoder
from joem.recipe import ModelSettings
from joem.segmenter import Segmenter
from joem.vocabulary import VOID


def lite(**changes):
    """A recipe that trains on pixels of a small frozen backbone in a second."""
    made = recipe.load("scenes")
    made.data.train_count, made.data.val_count = 24, 4
    made.model.architecture, made.model.hidden, made.model.channels = "hypercolumn", 16, 8
    made.train.epochs, made.train.batch_size, made.train.pixels = 1, 8, 6
    for name, value in changes.items():
        room, field = name.split("_", 1)
        setattr(getattr(made, room), field, value)
    return made


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def visual():
    return VisualEncoder(lite().model).eval()


def bilinear(plane, x, y):
    """The value of a map at a place between -1 and 1, from the definition (align_corners=False, border)."""
    height, width = plane.shape
    across = min(max((x + 1) / 2 * width - 0.5, 0), width - 1)
    down = min(max((y + 1) / 2 * height - 0.5, 0), height - 1)
    left, top = int(across), int(down)
    right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
    a, b = across - left, down - top
    upper = (1 - a) * plane[top, left] + a * plane[top, right]
    lower = (1 - a) * plane[bottom, left] + a * plane[bottom, right]
    return float((1 - b) * upper + b * lower)


def neighbours(plane):
    """The mean over 5x5 neighbours that exist."""
    height, width = plane.shape
    result = torch.zeros_like(plane)
    for i in range(height):
        for j in range(width):
            result[i, j] = plane[max(0, i - 2) : i + 3, max(0, j - 2) : j + 3].mean()
    return result


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**6))
def test_gather_follows_the_definition(height, width, seed):
    torch.manual_seed(seed)
    fine, middle, last = (
        torch.randn(2, 2 * height, 2 * width),
        torch.randn(3, height, width),
        torch.randn(2, height, width),
    )
    places = torch.rand(1, 4, 2) * 2.2 - 1.1
    found = HypercolumnHead.gather([each[None] for each in (fine, middle, last)], places[None])[0]
    for number, (x, y) in enumerate(places[0].tolist()):
        planes = [*fine, *middle, *last, *(neighbours(plane) for plane in last)]
        expected = [bilinear(plane, x, y) for plane in planes] + [float(plane.mean()) for plane in last]
        torch.testing.assert_close(found[:, 0, number], torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_gather_everywhere_equals_gather_at_the_places_of_the_finest_map():
    torch.manual_seed(0)
    maps = [torch.randn(2, 2, 6, 9), torch.randn(2, 3, 3, 5), torch.randn(2, 4, 3, 5)]
    rows, columns = ((torch.arange(size) + 0.5) / size * 2 - 1 for size in (6, 9))
    places = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1).expand(2, -1, -1, -1)
    torch.testing.assert_close(HypercolumnHead.gather(maps), HypercolumnHead.gather(maps, places))


@torch.no_grad()
def test_the_encoder_takes_pictures_maps_and_hypercolumns():
    torch.manual_seed(0)
    encoder = VisualEncoder(lite().model)
    picture = torch.randn(2, 3, 50, 71)
    for _ in range(3):
        encoder.train()(picture)  # statistics that are not those of a new layer
    maps = encoder.eval().maps(picture)
    expected = encoder.head.layers(HypercolumnHead.gather(maps))
    assert expected.shape[:2] == (2, 8)
    for inputs in (picture, maps, HypercolumnHead.gather(maps)):
        torch.testing.assert_close(encoder(inputs), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [(1200, 900), (1024, 1025), (40, 1100), (1, 1500)])
def test_a_picture_of_any_size_is_encoded_whole(size):
    made = lite(model_side=64, train_cache=None)
    segmenter = Segmenter(engine.Model.create(made, engine.open_problem(made.data).vocabulary))
    pixels = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    result = segmenter.encode(pixels).segment()
    assert result.labels.shape == size


def test_side_resizes_what_the_backbone_sees():
    encoder = VisualEncoder(ModelSettings(**{**vars(lite().model), "side": 64})).eval()
    assert encoder.maps(torch.randn(1, 3, 32, 48))[-3].shape[-2:] == (8, 12)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_random_pixels_are_labelled_and_in_place(height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (height, width), generator=generator)
    labels[torch.rand(height, width, generator=generator) < 0.5] = VOID
    positions, found = random_pixels(labels, 7, generator)
    assert positions.shape == (1, 7, 2)
    for (x, y), label in zip(positions[0].tolist(), found[0].tolist(), strict=True):
        assert int(labels[int((y + 1) / 2 * height), int((x + 1) / 2 * width)]) == label
    assert (found == VOID).any() == bool((labels == VOID).all())


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 8), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_random_squares_hold_the_labels_at_their_places(height, width, side, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (height * 3, width * 3), generator=generator)
    positions, found = random_square(labels, torch.Size([height, width]), side, generator)
    assert positions.shape == (side, side, 2)
    assert int((found != VOID).sum()) == min(side, height) * min(side, width)
    for i in range(side):
        for j in range(side):
            if found[i, j] != VOID:
                x, y = positions[i, j].tolist()
                assert labels[int((y + 1) / 2 * height * 3), int((x + 1) / 2 * width * 3)] == found[i, j]


def test_maps_are_computed_once(cache, visual):
    made = lite(train_cache=cache)
    pictures = engine.open_problem(made.data).train
    store = MapStore.open(made, visual)
    store.fill(pictures, progress=False)
    assert len(list(store.folder.iterdir())) == len(pictures)
    first = store.maps(pictures, 3)
    image, _ = data.evaluation(mean=visual.mean, std=visual.std)(pictures[3].image, pictures[3].labels)
    for stored, computed in zip(first, visual.maps(image[None])[-3:], strict=True):
        torch.testing.assert_close(stored, computed, atol=2e-2, rtol=2e-3)  # half precision

    class Unreadable(data.Remembered):
        def __getitem__(self, index):
            raise AssertionError("the picture was read again")

    again = store.maps(Unreadable(pictures), 3)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_maps_of_a_changed_picture_or_a_damaged_file_are_computed_again(tmp_path, visual):
    data.write_folder(Scenes(3, 64), tmp_path / "pictures", progress=False)
    made = lite(train_cache=str(tmp_path / "cache"), data_kind="folder", data_root=str(tmp_path / "pictures"))
    pictures = data.Folder(tmp_path / "pictures")
    store = MapStore.open(made, visual)
    store.fill(pictures, progress=False)
    old = [store.maps(pictures, index)[-1] for index in range(3)]
    other = tmp_path / "pictures" / "images" / f"{pictures.name(0)}.png"
    Image.open(other).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(other)
    damaged = store.folder / f"{pictures.name(1)}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    untouched = (store.folder / f"{pictures.name(2)}.safetensors").stat().st_mtime_ns
    store.fill(pictures, progress=False)
    new = [store.maps(pictures, index)[-1] for index in range(3)]
    assert [torch.equal(a, b) for a, b in zip(old, new, strict=True)] == [False, True, True]
    image, _ = data.evaluation(mean=visual.mean, std=visual.std)(pictures[0].image, pictures[0].labels)
    torch.testing.assert_close(new[0], visual.maps(image[None])[-1], atol=2e-2, rtol=2e-3)
    assert (store.folder / f"{pictures.name(2)}.safetensors").stat().st_mtime_ns == untouched


def test_another_backbone_or_picture_size_has_another_folder(cache, visual):
    folders = {
        MapStore.open(lite(train_cache=cache, **change), visual).folder
        for change in ({}, {"model_side": 64}, {"data_size": 96}, {"data_seed": 1}, {"model_stride": 8})
    }
    assert len(folders) == 5


def test_a_store_needs_a_frozen_hypercolumn_encoder(cache, visual):
    with pytest.raises(BadUsage, match=r"--model.freeze_backbone true"):
        MapStore.open(lite(train_cache=cache, model_freeze_backbone=False), visual)
    with pytest.raises(BadUsage, match=r"--model.architecture hypercolumn"):
        MapStore.open(lite(train_cache=cache, model_architecture="deeplabv3plus"), visual)


def test_an_unseen_label_trips_the_guard(cache, visual):
    made = lite(train_cache=cache)
    problem = engine.open_problem(made.data)
    unseen = problem.vocabulary.unseen_indices[0]

    class Liar(data.Remembered):
        def labels(self, index):
            labels = super().labels(index)
            return labels if not self.lying else labels.masked_fill(labels == 0, unseen)

    pictures = Liar(problem.train)
    pictures.lying = False
    pixels = HypercolumnSet(
        pictures, problem.vocabulary, "exclude", MapStore.open(made, visual), pixels=4, places=2, seed=0
    )
    pixels[0, 0]
    pictures.lying = True
    with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
        pixels[0, 0]


@pytest.mark.parametrize("pixels", [6, 0])
def test_training_on_pixels_is_deterministic_and_resumes_to_the_same_weights(cache, tmp_path, pixels):
    made = lite(train_cache=cache, train_pixels=pixels, train_epochs=2, train_save_every=2)
    whole = engine.train(made, tmp_path / "whole", progress=False)
    again = engine.train(made, tmp_path / "again", progress=False)
    resumed_from = tmp_path / "part" / "checkpoints"
    resumed_from.mkdir(parents=True)
    checkpoint = sorted((tmp_path / "again" / "checkpoints").iterdir())[0]
    checkpoint.rename(resumed_from / checkpoint.name)
    resumed = engine.train(made, tmp_path / "part", resume=True, progress=False)
    for model in (again, resumed):
        for name, value in whole.method.state_dict().items():
            assert torch.equal(value, model.method.state_dict()[name]), name


def test_ranking_from_stored_maps_is_that_of_the_pictures(cache):
    made = lite(train_cache=cache)
    problem = engine.open_problem(made.data)
    model = engine.train(made, problem=problem, progress=False)
    store = MapStore.open(made, model.method.visual)
    plain = list(engine.rank_dataset(model, problem, problem.train, progress=False))
    stored = list(engine.rank_dataset(model, problem, problem.train, progress=False, store=store))
    same = [(a.seen == b.seen).float().mean() for (a, _), (b, _) in zip(plain, stored, strict=True)]
    assert torch.stack(same).mean() > 0.99  # half precision
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(plain, stored, strict=True))
