from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_data import failure, save_palette

from joem import data, protocols
from joem.errors import BadUsage

REAL = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.real
needs_voc = pytest.mark.skipif(not (REAL / "VOCdevkit").exists(), reason="PASCAL VOC is not here")


@pytest.fixture
def voc(tmp_path):
    """VOC's layout: picture x with its own mask and an extra one, picture y with an extra mask only."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for part in ("JPEGImages", "SegmentationClass", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / part).mkdir(parents=True)
    for name in ("x", "y"):
        Image.new("RGB", (5, 4)).save(root / "JPEGImages" / f"{name}.jpg")
        save_palette(np.full((4, 5), 7, np.uint8), root / "SegmentationClassAug" / f"{name}.png")
    save_palette(np.full((4, 5), 20, np.uint8), root / "SegmentationClass" / "x.png")
    (root / "ImageSets/Segmentation/train.txt").write_text("x\n")
    (root / "ImageSets/Segmentation/train_aug.txt").write_text("x\ny\n")
    return tmp_path


def test_voc_is_found_from_any_level_and_prefers_its_own_masks(voc):
    for root in (voc, voc / "VOCdevkit", voc / "VOCdevkit" / "VOC2012"):
        pictures = data.VOC(root, "train_aug")
        assert [sample.name for sample in pictures] == ["x", "y"]
        assert [pictures.labels(i).unique().tolist() for i in range(2)] == [[20], [7]]
    assert pictures.names[20] == "tvmonitor"
    assert pictures.background == "background"
    assert len(data.VOC(voc, "train")) == 1


def test_voc_lists_of_paths_are_understood(voc):
    listing = voc / "VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt"
    listing.write_text("/JPEGImages/y.jpg /SegmentationClassAug/y.png\n")
    assert [sample.name for sample in data.VOC(voc, "train_aug")] == ["y"]


def test_voc_errors_say_what_to_do(voc, tmp_path):
    assert "expected the folder JPEGImages" in failure(data.VOC, tmp_path / "nowhere", "val")
    assert "Available options are: train, train_aug" in failure(data.VOC, voc, "val", kind=BadUsage)
    (voc / "VOCdevkit/VOC2012/SegmentationClassAug/y.png").unlink()
    message = failure(data.VOC, voc, "train_aug")
    assert "1 of the 2 pictures of split 'train_aug' have no mask" in message
    assert ": y. See what is missing, and build train_aug, with: joem data prepare voc --root" in message


@real
@needs_voc
def test_the_published_numbers_of_training_pictures_remain():
    pictures = data.VOC(REAL, "train_aug")
    assert len(pictures) == 10_582
    presence = data.class_presence(pictures)
    assert presence.shape == (10_582, 21)
    for name in (f"voc-zs3-{count}" for count in (2, 4, 6, 8, 10)):
        protocol = protocols.get(name)
        unseen = list(protocol.vocabulary.unseen_indices)
        assert int((~presence[:, unseen].any(dim=1)).sum()) == protocol.training_images
        assert len(data.seen_only(pictures, protocol.vocabulary, "exclude")) == protocol.training_images
    spnet = protocols.get("voc-spnet").vocabulary
    assert len(data.seen_only(data.relabel(pictures, spnet.names), spnet, "ignore")) == 10_582


@real
@needs_voc
def test_real_pictures_and_masks_fit():
    assert len(data.VOC(REAL / "VOCdevkit", "val")) == 1_449
    pictures = data.VOC(REAL / "VOCdevkit" / "VOC2012", "train")
    assert len(pictures) == 1_464
    for i in range(0, 1_464, 200):
        sample = pictures[i]
        assert sample.image.shape[1:] == sample.labels.shape
        assert sample.labels.unique().numel() > 1
