"""Captioned photos: which nouns count, and what is told when there are none."""

import pytest
import torch
from PIL import Image

from joem.data import Captioned
from joem.errors import JoemError
from joem.vocabulary import VOID


def folder(path, captions):
    """A folder of small photos with captions."""
    (path / "images").mkdir()
    lines = ["image,caption"]
    for photo, texts in captions.items():
        Image.new("RGB", (6, 4), (9, 9, 9)).save(path / "images" / photo)
        lines += [f"{photo},{text}" for text in texts]
    (path / "captions.csv").write_text("\n".join(lines), encoding="utf-8")
    return path


def test_nouns_that_two_people_used_for_a_photo_and_ten_photos_have(tmp_path):
    same = ["A dog runs on the grass .", "Two dogs, one ball", "The grass is green near a lake"]
    photos = {f"{number}.jpg": same for number in range(10)} | {"other.jpg": ["A kayak", "a red kayak"]}
    found = Captioned(folder(tmp_path, photos))
    assert set(found.names) == {"dog", "grass"}  # one caption has ball, one lake; one photo has kayak
    assert len(found) == 10
    assert found.nouns(3).tolist() == [True, True]
    sample = found[3]
    assert sample.image.shape == (3, 4, 6)
    assert (found.labels(3) == VOID).all()
    assert sample.name == found.name(3) == "3"


def test_one_caption_of_a_photo_is_enough_where_there_is_one(tmp_path):
    found = Captioned(folder(tmp_path, {f"{number}.jpg": ["a cow in a field"] for number in range(12)}))
    assert set(found.names) == {"cow", "field"}
    assert torch.equal(found.nouns(0), torch.tensor([True, True]))


def test_folders_without_captions_or_nouns_are_told(tmp_path):
    with pytest.raises(JoemError, match=r"expected images/ and captions\.csv"):
        Captioned(tmp_path)
    with pytest.raises(JoemError, match="1 photos were read"):
        Captioned(folder(tmp_path, {"a.jpg": ["a cow"]}))
