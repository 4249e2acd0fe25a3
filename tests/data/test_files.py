"""Pictures and masks of every kind, read from a folder."""

import numpy as np
import pytest
import torch
from PIL import Image
from small_data import failure, save_palette, write_pictures

from joem import data
from joem.vocabulary import VOID


@pytest.fixture
def folder(tmp_path):
    return write_pictures(tmp_path)


@pytest.mark.parametrize(
    "save",
    [
        lambda labels, path: Image.fromarray(labels).save(path),
        lambda labels, path: Image.fromarray(labels.astype(np.uint16)).save(path),
        lambda labels, path: Image.merge("LA", [Image.fromarray(labels)] * 2).save(path),
        lambda labels, path: Image.fromarray(labels).save(path.with_suffix(".tif")) or path.unlink(),
        lambda labels, path: Image.fromarray(labels).save(path.with_suffix(".bmp")) or path.unlink(),
    ],
    ids=["grey", "16-bit", "grey with alpha", "tif", "bmp"],
)
def test_folder_reads_other_kinds_of_masks(folder, save):
    expected = data.Folder(folder).labels(0)
    save(expected.numpy().astype(np.uint8), folder / "masks" / "a.png")
    assert torch.equal(data.Folder(folder).labels(0), expected)


def test_folder_reads_one_bit_masks(folder):
    bits = np.zeros((4, 5), bool)
    bits[2:] = True
    Image.fromarray(bits).save(folder / "masks" / "a.png")
    assert Image.open(folder / "masks" / "a.png").mode == "1"
    assert data.Folder(folder).labels(0).tolist() == bits.astype(int).tolist()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_folder_translates_coloured_masks(folder, mode):
    (folder / "classes.txt").write_text("background 0 0 0\ndog #FF8000\ncow 64 128 0\nvoid #E0E0C0\n")
    pixels = np.zeros((4, 5, 3), np.uint8)
    pixels[1], pixels[2], pixels[3, 3:] = (255, 128, 0), (64, 128, 0), (0xE0, 0xE0, 0xC0)
    Image.fromarray(pixels).convert(mode).save(folder / "masks" / "a.png")
    pictures = data.Folder(folder)
    assert pictures.names == ("background", "dog", "cow")
    assert pictures.labels(0).tolist() == [[0] * 5, [1] * 5, [2] * 5, [0, 0, 0, VOID, VOID]]
    assert pictures.labels(1)[0].tolist() == [1, 2, VOID, 0, 0]  # palette masks still hold labels


def test_an_unlisted_colour_is_named_with_its_file_and_pixels(folder):
    (folder / "classes.txt").write_text("background #000000\ndog #FF8000\ncow #408000\n")
    pixels = np.zeros((4, 5, 3), np.uint8)
    pixels[0, :3], pixels[1, 0] = (1, 2, 255), (9, 9, 9)
    Image.fromarray(pixels).save(folder / "masks" / "a.png")
    message = failure(data.Folder(folder).labels, 0)
    assert "a.png holds the value #0102FF at 3 pixels and 1 more such values" in message
    assert "which classes.txt does not list" in message


def test_a_coloured_mask_without_listed_colours_says_how_to_list_them(folder):
    Image.new("RGB", (5, 4)).save(folder / "masks" / "a.png")
    assert "write each class of classes.txt as 'name #RRGGBB'" in failure(data.Folder(folder).labels, 0)


def test_an_index_without_a_class_is_named_with_its_file_and_pixels(folder):
    mask = np.zeros((4, 5), np.uint8)
    mask[0, :4] = 3  # the first that is no class
    save_palette(mask, folder / "masks" / "b.png")
    message = failure(data.Folder(folder).labels, 1)
    assert "b.png holds the value 3 at 4 pixels, but the classes are 0 to 2 and void is 255" in message


def test_every_kind_of_picture_becomes_rgb_bytes(folder):
    grey = np.linspace(0, 255, 20).astype(np.uint8).reshape(4, 5)
    kinds = {
        "a": (Image.fromarray(grey), "jpg"),
        "b": (Image.fromarray(grey.astype(np.uint16) * 257), "png"),
        "c": (Image.merge("RGBA", [Image.fromarray(grey)] * 3 + [Image.new("L", (5, 4), 255)]), "webp"),
        "d": (Image.fromarray(grey).convert("CMYK"), "tif"),
        "e": (Image.fromarray(grey).convert("P"), "bmp"),
    }
    for path in (folder / "images").iterdir():
        path.unlink()
    for name, (picture, suffix) in kinds.items():
        picture.save(folder / "images" / f"{name}.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
        save_palette(np.zeros((4, 5), np.uint8), folder / "masks" / f"{name}.png")
    for sample in data.Folder(folder):
        assert sample.image.dtype == torch.uint8
        error = (sample.image.double() - torch.tensor(grey)).abs().max()
        assert error <= (6 if sample.name == "a" else 2), sample.name  # JPEG is not exact


def test_exif_orientation_is_applied(folder):
    upright = np.zeros((4, 5, 3), np.uint8)
    upright[0] = 255  # a white line on top
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its left side: turn by 90 degrees clockwise to show it
    stored = Image.fromarray(np.rot90(upright).copy())
    stored.save(folder / "images" / "a.png", exif=exif)
    expected = torch.tensor(upright).permute(2, 0, 1)
    assert torch.equal(data.Folder(folder)[0].image, expected)
    assert torch.equal(data.as_pixels(Image.open(folder / "images" / "a.png")), expected)
    labels = (upright[..., 0] > 0).astype(np.uint8)
    Image.fromarray(np.rot90(labels).copy()).save(folder / "masks" / "a.png", exif=exif)
    assert torch.equal(data.Folder(folder).labels(0), torch.tensor(labels).long())


def test_different_sizes_are_both_said(folder):
    save_palette(np.zeros((4, 6), np.uint8), folder / "masks" / "a.png")
    message = failure(lambda: data.Folder(folder)[0])
    assert "is 5x4" in message
    assert "is 6x4" in message


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\nrubbish"])
@pytest.mark.parametrize("part", ["images", "masks"])
def test_an_unreadable_file_is_named(folder, part, content):
    (folder / part / "a.png").write_bytes(content)
    assert f"{folder / part / 'a.png'} is no picture of a known format" in failure(lambda: data.Folder(folder)[0])


def test_a_truncated_picture_is_named(folder):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "images" / "a.png")
    whole = (folder / "images" / "a.png").read_bytes()
    (folder / "images" / "a.png").write_bytes(whole[: len(whole) // 2])
    assert f"{folder / 'images' / 'a.png'} is damaged: " in failure(lambda: data.Folder(folder)[0])


def test_a_mask_of_a_kind_without_labels_or_colours_is_refused(folder):
    Image.new("CMYK", (5, 4)).save(folder / "masks" / "a.tif")
    (folder / "masks" / "a.png").unlink()
    assert "is of the kind CMYK: save masks as palette, grey or RGB" in failure(data.Folder(folder).labels, 0)


@pytest.mark.parametrize("mode", ["L", "I;16", "P", "LA", "RGB", "RGBA", "CMYK", "1"])
def test_bands_make_no_difference(monkeypatch, mode):
    noise = np.random.default_rng(0).integers(0, 256, (11, 7, 4), np.uint8)
    picture = Image.fromarray(noise).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture).astype(np.uint16) * 200)
    whole = data.as_pixels(picture)
    monkeypatch.setattr("joem.data.files._BAND", 15)  # two rows
    assert torch.equal(data.as_pixels(picture), whole)
