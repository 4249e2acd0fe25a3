"""Picture files that are damaged, disguised or too large."""

import io
import struct
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from joem import data
from joem.errors import JoemError
from joem.picture_files import FORMATS, NotAPicture, TooManyPixels, read_picture, upright


def as_file(kind="PNG", size=(5, 4), **options):
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, kind, **options)
    return file.getvalue()


def orientation(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


@pytest.mark.parametrize("kind", FORMATS)
def test_every_listed_format_is_read(kind):
    picture = read_picture(io.BytesIO(as_file(kind)), "it")
    assert (picture.format, picture.size) == (kind, (5, 4))
    assert Image.registered_extensions()[FORMATS[kind].suffixes[0]] == kind


@pytest.mark.parametrize("kind", ["EPS", "PDF", "PCX", "ICO", "TGA"])
def test_others_are_not_opened_whatever_their_name(kind, tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(as_file(kind))
    with pytest.raises(NotAPicture, match=r"a\.png is no picture of a known format \(JPEG, PNG"):
        read_picture(file, str(file))


@pytest.mark.parametrize("number", range(10))
def test_a_picture_is_turned_as_its_exif_block_says_and_only_once(number):
    stored = Image.open(io.BytesIO(as_file("JPEG", exif=orientation(number))))
    expected = np.asarray(ImageOps.exif_transpose(stored))
    assert np.array_equal(np.asarray(upright(stored)), expected)
    assert np.array_equal(np.asarray(upright(upright(stored))), expected)


@pytest.mark.parametrize("block", [b"XX*\0\x08\0\0\0", b"II*\0"], ids=["SyntaxError", "struct.error"])
def test_a_picture_whose_exif_block_cannot_be_read_is_not_turned(block, tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(as_file(exif=b"Exif\0\0" + block))
    with pytest.raises((SyntaxError, struct.error)):
        ImageOps.exif_transpose(Image.open(file))
    assert torch.equal(data.read_image(file), data.as_pixels(Image.open(io.BytesIO(as_file()))))


def test_a_picture_is_turned_even_where_the_rest_of_its_exif_block_is_damaged(tmp_path):
    exif = orientation(6)
    exif[0x010F] = "maker"
    # Text under a tag that belongs to a number: it can be read but not written again, as exif_transpose does.
    block = exif.tobytes().replace(b"\x01\x0f\x00\x02", b"\x01\x20\x00\x02")
    file = tmp_path / "a.jpg"
    file.write_bytes(as_file("JPEG", exif=block))
    with pytest.raises(struct.error):
        ImageOps.exif_transpose(Image.open(file))
    assert data.read_image(file).shape == (3, 5, 4)


def test_bytes_of_an_exif_block_may_be_anything(tmp_path):
    random, file = np.random.default_rng(0), tmp_path / "a.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of it is the user's business
        for _ in range(200):
            block = bytearray(orientation(6).tobytes())
            for place in random.integers(6, len(block), random.integers(1, 8)):
                block[place] = random.integers(256)
            file.write_bytes(as_file(exif=bytes(block)))
            assert sorted(data.read_image(file).shape) == [3, 4, 5]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_anywhere_is_read_or_refused_by_name(kind):
    whole = as_file(kind, size=(33, 29))
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        told = "The picture is "
        with suppress(JoemError):
            try:
                data.read_image(io.BytesIO(whole[:end]))
            except JoemError as error:
                told = str(error)
                raise
        assert told.startswith("The picture is ")


def test_a_missing_file_is_told_so(tmp_path):
    with pytest.raises(JoemError, match=r"a cannot be read: .*No such file"):
        read_picture(tmp_path / "a", "a")


def test_a_folder_in_place_of_a_file_is_told_so(tmp_path):
    with pytest.raises(JoemError, match=r"a cannot be read: .*directory"):
        read_picture(tmp_path, "a")


def test_too_many_pixels_are_refused_before_they_are_decoded(monkeypatch):
    file = as_file(size=(5, 4))
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(TooManyPixels, match="it has 5 x 4 pixels"):
        read_picture(io.BytesIO(file), "it", pixels=19)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TooManyPixels, match="it has more than 18 pixels"):
            read_picture(io.BytesIO(file), "it")
