"""Stored maps: computed once, the same in every process, and never unseen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from joem import data, engine, recipe
from joem.data import scenes
from joem.data.scenes import Scenes
from joem.engine.loading import epoch_batches
from joem.engine.stored_maps import MapStore, PixelSet, random_pixels, random_square
from joem.errors import BadUsage, LeakageError
from joem.io import write_tensors
from joem.models import build_trunk
from joem.vocabulary import VOID

PIXELWISE = {"name": "hypercolumn", "hidden": 16, "channels": 8}


def lite(**sections):
    """A recipe that trains on pixels of a small frozen backbone in a second."""
    made = recipe.load(
        "scenes",
        {
            "data": {"train_count": 24, "val_count": 4},
            "model": {"head": PIXELWISE},
            "train": {"epochs": 1, "batch_size": 8, "pixels": 6},
        },
    )
    return made.changed(**sections)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def trunk():
    return build_trunk(lite().model).eval()


def encoded(trunk, pictures, index):
    """The maps of a picture, computed anew."""
    with torch.no_grad():
        return trunk(trunk.normalised(pictures[index].image)[None])


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
def test_random_squares_hold_the_labels_at_their_positions(height, width, side, seed):
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


def test_maps_are_computed_once(cache, trunk):
    made = lite(train={"cache": cache})
    pictures = engine.open_problem(made.data).train
    store = MapStore.open(made, trunk)
    store.fill(pictures)
    assert len(list(store.folder.iterdir())) == len(pictures)
    first = store.maps(pictures, 3)
    assert first.strides == (8, 16, 16)
    for stored, computed in zip(first.maps, encoded(trunk, pictures, 3).maps[-3:], strict=True):
        torch.testing.assert_close(stored, computed, atol=2e-2, rtol=2e-3)  # half precision

    class Unreadable(data.Remembered):
        def __getitem__(self, index):
            raise AssertionError("the picture was read again")

    again = store.maps(Unreadable(pictures), 3)
    assert all(torch.equal(a, b) for a, b in zip(first.maps, again.maps, strict=True))


def test_maps_of_a_changed_picture_or_a_damaged_file_are_computed_again(tmp_path, trunk):
    data.write_folder(Scenes(3, 64), tmp_path / "pictures")
    made = lite(train={"cache": str(tmp_path / "cache")}, data={"kind": "folder", "root": str(tmp_path / "pictures")})
    pictures = data.Folder(tmp_path / "pictures")
    store = MapStore.open(made, trunk)
    store.fill(pictures)
    old = [store.maps(pictures, index).maps[-1] for index in range(3)]
    other = tmp_path / "pictures" / "images" / f"{pictures.name(0)}.png"
    Image.open(other).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(other)
    damaged = store.folder / f"{pictures.name(1)}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    untouched = (store.folder / f"{pictures.name(2)}.safetensors").stat().st_mtime_ns
    store.fill(pictures)
    new = [store.maps(pictures, index).maps[-1] for index in range(3)]
    assert [torch.equal(a, b) for a, b in zip(old, new, strict=True)] == [False, True, True]
    torch.testing.assert_close(new[0], encoded(trunk, pictures, 0).maps[-1], atol=2e-2, rtol=2e-3)
    assert (store.folder / f"{pictures.name(2)}.safetensors").stat().st_mtime_ns == untouched


def test_another_backbone_or_picture_size_has_another_folder(cache, trunk):
    changes = ({}, {"model": {"side": 64}}, {"data": {"size": 96}}, {"data": {"seed": 1}}, {"model": {"stride": 8}})
    folders = {MapStore.open(lite(train={"cache": cache}).changed(**each), trunk).folder for each in changes}
    assert len(folders) == 5


def test_the_folder_of_a_backbone_and_its_pictures_keeps_its_name(cache, trunk):
    """Maps of a large dataset take hours to compute: those in a cache must stay valid."""
    assert MapStore.open(lite(train={"cache": cache}), trunk).folder.name == "scenes-e48e61b5f93e"


@pytest.mark.parametrize("stride", [8, 32])
def test_pixels_are_drawn_from_maps_of_any_stride(tmp_path, stride):
    made = lite(
        model={"backbone": "tu-test_efficientnet", "weights": "none", "stride": stride},
        train={"cache": str(tmp_path)},
        data={"train_count": 2},
    )
    problem, trunk = engine.open_problem(made.data), build_trunk(made.model)
    store = MapStore.open(made, trunk)
    assert store.maps(problem.train, 0).strides == (8, min(stride, 16), stride)
    channels = sum(trunk.channels[-3:]) + 2 * trunk.channels[-1]
    for pixels, shape in ((4, (1, 4)), (0, (2, 2))):
        pictures = PixelSet(problem.train, problem.vocabulary, "ignore", store, pixels=pixels, side=2, seed=0)
        columns, labels = pictures[0, 0]
        assert columns.shape == (channels, *shape)
        assert labels.shape == shape


def test_a_store_needs_a_frozen_backbone_and_a_head_for_pixels(cache, trunk):
    made = lite(train={"cache": cache})
    with pytest.raises(BadUsage, match=r"--model.freeze_backbone true .* got hypercolumn, False"):
        MapStore.open(made.changed(model={"freeze_backbone": False}), trunk)
    with pytest.raises(BadUsage, match=r"--model.head.name hypercolumn.* got deeplabv3plus, True"):
        MapStore.open(made.changed(model={"head": {"name": "deeplabv3plus"}}), trunk)
    with pytest.raises(BadUsage, match=r"--train.cache DIR, got hypercolumn, True and None"):
        MapStore.open(lite(), trunk)
    MapStore.open(made.changed(model={"head": None}), trunk)  # a method whose experts have heads of their own


def test_an_unseen_label_trips_the_guard(cache, trunk):
    made = lite(train={"cache": cache})
    problem = engine.open_problem(made.data)
    unseen = problem.vocabulary.unseen_indices[0]

    class Liar(data.Remembered):
        def labels(self, index):
            labels = super().labels(index)
            return labels if not self.lying else labels.masked_fill(labels == 0, unseen)

    pictures = Liar(problem.train)
    pictures.lying = False
    store = MapStore.open(made, trunk)
    pixels = PixelSet(pictures, problem.vocabulary, "exclude", store, pixels=4, side=2, seed=0)
    pixels[0, 0]
    pictures.lying = True
    with pytest.raises(LeakageError, match=problem.vocabulary.names[unseen]):
        pixels[0, 1]  # the first is kept in memory as it was read


@pytest.mark.parametrize("pixels", [6, 0])
def test_training_on_pixels_is_deterministic_and_resumes_to_the_same_weights(cache, tmp_path, pixels):
    made = lite(train={"cache": cache, "pixels": pixels, "epochs": 2, "save_every": 2})
    whole = engine.train(made, tmp_path / "whole")
    again = engine.train(made, tmp_path / "again")
    resumed_from = tmp_path / "part" / "checkpoints"
    resumed_from.mkdir(parents=True)
    checkpoint = sorted((tmp_path / "again" / "checkpoints").iterdir())[0]
    checkpoint.rename(resumed_from / checkpoint.name)
    resumed = engine.train(made, tmp_path / "part", resume=True)
    for model in (again, resumed):
        for name, value in whole.method.state_dict().items():
            assert torch.equal(value, model.method.state_dict()[name]), name


def test_features_from_stored_maps_are_those_of_the_pictures(cache):
    made = lite(train={"cache": cache})
    problem = engine.open_problem(made.data)
    method = engine.train(made, problem=problem).method.eval()
    store = MapStore.open(made, method.trunk)
    with torch.no_grad():
        for index in range(3):
            plain = method.features(encoded(method.trunk, problem.train, index))
            stored = method.features(store.maps(problem.train, index))
            torch.testing.assert_close(stored, plain, atol=0.05, rtol=0.02)  # half precision


def test_an_epoch_over_many_pictures_reads_each_once_and_keeps_no_more_than_it_may(tmp_path, trunk, monkeypatch):
    few, count = Scenes(8, 64), 500
    shown = [few[index].labels for index in range(8)]

    class Many(data.Remembered):
        def __len__(self):
            return count

        def __getitem__(self, index):
            return pytest.fail("the maps of every picture are stored")

        def labels(self, index):
            return shown[index % 8]

        def name(self, index):
            return str(index)

        def version(self, index):
            return "1"

    store = MapStore(trunk, tmp_path)
    for index in range(count):
        sides = enumerate((4, 2, 2))  # the last two of strides 8, 16 and 16
        levels = {str(level): torch.full((1, 2, side, side), float(index)).half() for level, side in sides}
        write_tensors(tmp_path / f"{index}.safetensors", levels, {"picture": "1"})
    monkeypatch.setattr("joem.engine.stored_maps._LEAST_MEMORY", 200_000)
    monkeypatch.setattr("joem.engine.stored_maps.available_memory", lambda: 0)
    pixels = PixelSet(Many(few), scenes.vocabulary(), "ignore", store, pixels=3, side=2, seed=0)
    store.fill(pixels.samples)  # finds them all
    found = []
    for epoch in range(2):  # the second takes some from memory
        for columns, _ in epoch_batches(pixels, data.EpochSampler(count, 20, seed=0, epoch=epoch), 0, pin_memory=False):
            assert (columns == columns[:, :1, :, :1]).all()  # of one picture each
            found += columns[:, 0, 0, 0].tolist()
    assert sorted(found) == sorted([*range(count)] * 2)
    kept = sum(sum(each.nbytes for each in (b.fine, *b.coarse, b.everywhere)) for b, _ in pixels._kept.values())
    labels = sum(each.nbytes for _, each in pixels._kept.values())
    assert 100_000 < kept + labels <= 200_000
    assert len(pixels._kept) < 100
