import pickle
import time

import numpy as np
import pytest
import torch
from PIL import Image
from small_data import CLEAN, Masks, failure, save_palette, write_pictures

from joem import data
from joem.data.folder import read_class
from joem.errors import BadUsage
from joem.vocabulary import VOID, colours


@pytest.fixture
def folder(tmp_path):
    return write_pictures(tmp_path)


def test_folder_reads_pictures_and_palette_masks(folder):
    pictures = data.Folder(folder)
    assert len(pictures) == 2
    assert pictures.names == ("background", "dog", "cow")
    assert pictures.background == "background"
    sample = pictures[1]
    assert sample.name == "b"
    assert sample.image.shape == (3, 4, 5)
    assert sample.image.dtype == torch.uint8
    assert sample.image[:, 0, 0].tolist() == [10, 20, 30]
    assert sample.labels.dtype == torch.int64
    assert sample.labels[0].tolist() == [1, 2, VOID, 0, 0]
    assert torch.equal(pictures.labels(1), sample.labels)
    assert torch.equal(pickle.loads(pickle.dumps(pictures))[1].labels, sample.labels)


def test_splits_choose_and_order_the_pictures(folder):
    (folder / "splits").mkdir()
    (folder / "splits" / "train.txt").write_text("b.png\n\na\n")
    (folder / "splits" / "val.txt").write_text("b\n")
    assert [sample.name for sample in data.Folder(folder, "train")] == ["b", "a"]
    assert [sample.name for sample in data.Folder(folder, "val")] == ["b"]
    message = failure(data.Folder, folder, "test", kind=BadUsage)
    assert "Unknown split 'test'. Available options are: train, val" in message.replace("Did you mean", "")
    (folder / "splits" / "val.txt").write_text("b\nnowhere\n")
    assert "1 of 2 names" in (message := failure(data.Folder, folder, "val"))
    assert "nowhere" in message
    (folder / "splits" / "val.txt").write_text("\n")
    assert "val.txt lists no pictures" in failure(data.Folder, folder, "val")


def test_a_split_without_lists_says_which_file_is_wanted(folder):
    assert f"needs the file {folder / 'splits' / 'test'}.txt" in failure(data.Folder, folder, "test")


@pytest.mark.parametrize("part", ["images", "masks", "classes.txt"])
def test_a_missing_part_is_named(folder, part):
    (folder / part).rename(folder / "elsewhere")
    message = failure(data.Folder, folder)
    assert f"There is no {folder / part}" in message
    assert "classes.txt (one class per line)" in message


def test_a_missing_folder_is_named(tmp_path):
    assert f"There is no {tmp_path / 'nowhere'}." in failure(data.Folder, tmp_path / "nowhere")


def test_pictures_without_masks_are_counted_and_five_named(folder):
    for i in range(7):
        Image.new("RGB", (5, 4)).save(folder / "images" / f"new{i}.jpg")
    message = failure(data.Folder, folder)
    assert "7 of 9 pictures have no mask of the same name" in message
    assert "new0.jpg, new1.jpg, new2.jpg, new3.jpg, new4.jpg and 2 more" in message


def test_masks_without_pictures_and_other_files_are_left_alone(folder):
    save_palette(np.zeros((4, 5), np.uint8), folder / "masks" / "spare.png")
    (folder / "images" / "notes.txt").write_text("")
    (folder / "images" / "._a.png").write_text("")
    assert len(data.Folder(folder)) == 2


def test_an_empty_folder_says_so(folder):
    for path in (folder / "images").iterdir():
        path.unlink()
    assert "images holds no pictures (.avif, .bmp, .gif" in failure(data.Folder, folder)


def test_two_pictures_of_one_name_are_an_error(folder):
    Image.new("RGB", (5, 4)).save(folder / "images" / "a.jpg")
    assert "have the same name" in failure(data.Folder, folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must list 1 to 255 classes, one per line, got 0"),
        ("void #000000", "got 0"),
        ("\n".join(f"class{i}" for i in range(256)), "got 256"),
        ("dog\n\ncow", "Expected a class name in line 2"),
        ("dog 1 2 300", "three numbers from 0 to 255, got '1 2 300' in line 1"),
        ("dog #010203\ncow 1 2 3", "Line 2 of"),
        ("void #010203\ncow", "'void' must be the last line"),
        ("dog\ndog", "these repeat: dog"),
    ],
)
def test_a_wrong_class_list_says_what_is_wrong(folder, text, message):
    (folder / "classes.txt").write_text(text)
    assert message in failure(data.Folder, folder)


@pytest.mark.parametrize("file", ["classes.txt", "splits/train.txt"])
def test_lists_in_another_encoding_say_how_to_save_them(folder, file):
    (folder / "splits").mkdir()
    (folder / file).write_bytes("Kühe\n".encode("latin-1"))
    assert f"{folder / file} is not UTF-8: save it as UTF-8" in failure(data.Folder, folder, "train")


def test_names_of_several_words_and_numbers_are_kept(folder):
    (folder / "classes.txt").write_text("traffic light\nroute 66\ncow #010203\n")
    pictures = data.Folder(folder)
    assert pictures.names == ("traffic light", "route 66", "cow")
    assert pictures.background is None


def test_a_written_folder_reads_back_the_same(tmp_path):
    pictures = data.Scenes(3, size=40)
    data.write_folder(pictures, tmp_path / "new")
    back = data.Folder(tmp_path / "new")
    assert back.names == pictures.names
    assert back.background == pictures.background
    for a, b in zip(back, pictures, strict=True):
        assert a.name == b.name
        assert torch.equal(a.image, b.image)
        assert torch.equal(a.labels, b.labels)
    mask = Image.open(back.items[0].mask)
    palette = np.array(mask.getpalette("RGB")).reshape(-1, 3)
    shown = int(pictures.labels(0).max())
    assert tuple(palette[shown]) == colours(pictures.names, "background")[shown]


def test_writing_never_overwrites_and_knows_what_a_mask_can_hold(tmp_path):
    (tmp_path / "precious.txt").write_text("")
    assert "is not empty" in failure(data.write_folder, data.Scenes(1), tmp_path, kind=BadUsage)
    many = Masks([CLEAN], names=tuple(f"class{i}" for i in range(256)))
    assert "at most 255 classes, the dataset has 256" in failure(data.write_folder, many, tmp_path / "x")


@pytest.mark.parametrize(
    ("line", "name", "colour"),
    [
        ("cow", "cow", None),
        ("  red  fox\t", "red  fox", None),
        ("cow #408000", "cow", (64, 128, 0)),
        ("red fox   #408000 ", "red fox", (64, 128, 0)),
        ("cow 64 128 0", "cow", (64, 128, 0)),
        ("1 2 3 4", "1", (2, 3, 4)),
        ("1 2 3", "1 2 3", None),
        ("#408000", "#408000", None),
        ("cow #40800", "cow #40800", None),
        ("cow 1 2 ٣", "cow 1 2 ٣", None),
        ("cow" + " " * 30_000 + "fox", "cow" + " " * 30_000 + "fox", None),
        ("cow" + " " * 30_000 + "#408000", "cow", (64, 128, 0)),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_line_of_classes_is_a_name_and_maybe_a_colour(line, name, colour):
    started = time.monotonic()
    assert read_class(line, "line 1") == (name, colour)
    assert time.monotonic() - started < 1
