"""What the page saves: files as large as the photo, of one photo or many, links and code."""

import io
import json
import shlex
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from browsing import (
    SCREENSHOTS,
    add,
    as_file,
    chips,
    download,
    image_of,
    open_advanced,
    picture,
    position,
    settle,
    upload,
)
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from joem.decision import Score
from joem.scene import Scene
from joem.segmenter import Segmenter

WORDS = ["red circle", "blue ring", "brown horse"]


@pytest.fixture(scope="module")
def trained(trained):
    """The model, with scores."""
    model = trained.model
    score = Score((0.5, -1.0, 4.0), (0.1, -1.5, 3.0))
    scored = replace(model.recipe, decision=replace(model.recipe.decision, score=score))
    return Segmenter(replace(model, recipe=scored))


def large(width=2600, height=1800) -> Image.Image:
    return picture().resize((width, height), Image.Resampling.BICUBIC)


def test_files_have_the_full_size_of_the_photo(visit, trained, monkeypatch):
    page = visit()
    settle(page)
    photo = large()
    sent, encode = [], trained.encode
    monkeypatch.setattr(trained, "encode", lambda image: sent.append(image) or encode(image))
    upload(page, photo, "large.png", words=", ".join(WORDS))
    expect(page.locator("#size")).to_contain_text("2600 × 1800")
    mask = image_of(page, "Mask")
    assert mask.size == photo.size
    reduced = sent[-1]
    assert reduced.width * reduced.height <= 1 << 20
    whole = Scene(trained, torch.zeros(3, 1800, 2600, dtype=torch.uint8), encode(reduced).features).segment(WORDS)
    assert np.array_equal(np.asarray(mask), whole.labels.numpy()), "decided for every pixel of the photo"

    overlay = np.asarray(image_of(page, "Overlay").convert("RGB"))
    assert overlay.shape[1] == 2600
    assert overlay.shape[0] > 1800, "with a legend"
    labels = np.asarray(mask)
    inside = (labels[1:, 1:] == labels[:-1, 1:]) & (labels[1:, 1:] == labels[1:, :-1])
    palette = np.array(mask.getpalette()).reshape(-1, 3)
    expected = 0.4 * np.asarray(photo)[1:, 1:] + 0.6 * palette[labels[1:, 1:]]
    assert np.abs(overlay[1:1800, 1:] - expected)[inside].max() <= 2
    assert (overlay[1:1800, 1:][~inside] == 255).all(), "outlines are white"

    name = page.locator("#cut-name").input_value()
    cut = np.asarray(image_of(page, "Cut out"))
    assert cut.shape == (1800, 2600, 4)
    assert np.array_equal(cut[..., 3] == 255, labels == whole.names.index(name))
    assert np.array_equal(
        cut[labels == whole.names.index(name)][:, :3], np.asarray(photo)[labels == whole.names.index(name)]
    )

    data = json.loads(download(page, "COCO JSON"))
    assert (data["images"][0]["width"], data["images"][0]["height"]) == (2600, 1800)
    assert data["images"][0]["file_name"] == "large.png"
    drawn = {each["id"]: Image.new("1", photo.size) for each in data["categories"]}
    for each in data["annotations"]:
        for ring in each["segmentation"]:
            ImageDraw.Draw(drawn[each["category_id"]]).polygon(ring, fill=1)
    for each in data["categories"]:
        truth = labels == whole.names.index(each["name"])
        if truth.mean() > 0.02:
            found = np.asarray(drawn[each["id"]])
            assert (found & truth).sum() / (found | truth).sum() > 0.95


def test_unsure_pixels_become_other(visit, trained):
    page = visit()
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    scene = trained.encode(picture())
    middle = float(scene.segment(WORDS).scores().median())
    least = round(middle * 20) / 20
    page.get_by_label("leave out what is unsure").fill(str(round(100 * least)))
    settle(page)
    expect(page.locator("#rest")).to_contain_text("other")
    expected = scene.segment(WORDS, min_score=least)
    assert 0 < expected.areas()["other"] < 1
    assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy())
    page.locator("#more").fill("100")  # decided in the browser
    sigma = 0.02
    expected = scene.segment(WORDS, min_score=least, rule="ac", sigma=sigma)
    assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy())
    page.get_by_label("leave out what is unsure").fill("0")
    expect(page.locator("#rest")).not_to_contain_text("other")


def test_without_background_every_pixel_has_a_word(visit, trained):
    page = visit()
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    open_advanced(page)
    page.get_by_label("what fits no word is background").uncheck()
    expect(page.locator("#rest")).to_be_hidden()
    settle(page)
    expected = trained.encode(picture()).segment(WORDS, background=False)
    assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy())


def test_many_photos_have_one_vocabulary_and_one_zip(visit, trained):
    page = visit()
    settle(page)
    photos = [picture(), picture(64), large(1600, 1200)]
    names = ["a.png", "a.jpg", "größe.png"]
    files = [as_file(photo, name) for photo, name in zip(photos, names, strict=True)]
    page.locator("#file").set_input_files(files)
    expect(page.locator("#status")).to_contain_text("a.png: ")
    expect(page.locator("#thumbs img[src]")).to_have_count(3)
    add(page, ", ".join(WORDS))
    expect(page.locator("#words")).to_have_value("")
    settle(page)
    page.locator("#thumbs button").nth(1).click()
    expect(page.locator("#status")).to_contain_text("a.jpg: ")
    settle(page)
    assert sorted(chips(page)) == sorted(WORDS)
    page.screenshot(path=SCREENSHOTS / "several.png")
    with zipfile.ZipFile(io.BytesIO(download(page, "Everything as a zip"))) as archive:
        assert archive.testzip() is None
        kinds = ("mask.png", "overlay.png", "coco.json", "result.json")
        folders = ("a", "a-2", "größe")
        assert archive.namelist() == [f"{folder}/{kind}" for folder in folders for kind in kinds]
        for folder, photo in zip(folders, photos, strict=True):
            mask = Image.open(io.BytesIO(archive.read(f"{folder}/mask.png")))
            assert mask.size == photo.size
            if photo.width < 1000:
                assert np.array_equal(np.asarray(mask), trained(photo, WORDS).labels.numpy())
            found = json.loads(archive.read(f"{folder}/result.json"))
            assert found["names"] == [*WORDS, "background"]
            assert sum(found["areas"].values()) == pytest.approx(1)


def test_tiff_as_on_the_command_line(visit, trained):
    page = visit()
    settle(page)
    upload(page, picture(), "scan.tif", words=", ".join(WORDS), kind="TIFF")
    assert np.array_equal(np.asarray(image_of(page, "Mask")), trained(picture(), WORDS).labels.numpy())
    deep = Image.fromarray(np.arange(96 * 75, dtype=np.uint16).reshape(75, 96) * 9)
    upload(page, deep, "deep.tiff", kind="TIFF")
    settle(page)


def test_a_link_carries_words_and_settings(visit, trained):
    page = visit()
    settle(page)
    page.get_by_role("button", name="Remove all").click()
    add(page, "red circle, kettle|pot, not: sky")
    expect(page.locator("#chips li")).to_have_count(3)
    open_advanced(page)
    page.get_by_role("radio", name="CS").check()
    settle(page)
    page.locator("#more").fill("80")
    page.get_by_label("leave out what is unsure").fill("30")
    settle(page)
    mask = np.asarray(image_of(page, "Mask"))
    page.get_by_text("Link and code").click()
    page.on("dialog", lambda dialog: dialog.accept())  # without a clipboard it is shown
    page.get_by_role("button", name="Copy a link").click()
    link = page.evaluate("location.hash")
    assert "words=red+circle" in link
    other = visit(hash=link)
    settle(other)
    assert chips(other) == chips(page)
    assert np.array_equal(np.asarray(image_of(other, "Mask")), mask)
    strange = visit(hash="#words=%00,<b>x</b>&rule=zzz&gamma=x&min_score=-4&sample=99&model=none")
    expect(strange.locator("#stage")).to_have_attribute("aria-busy", "false")


def test_the_same_in_code(visit, trained, tmp_path, monkeypatch):
    page = visit()
    settle(page)
    upload(page, picture(), "it's.png", words=", ".join(WORDS))
    page.mouse.click(*position(page, 40, 30, 96, 75))
    page.keyboard.type("thing")
    page.keyboard.press("Enter")
    expect(page.locator("#chips li")).to_have_count(4)
    settle(page)
    mask = np.asarray(image_of(page, "Mask"))
    page.get_by_text("Link and code").click()
    picture().save(tmp_path / "it's.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Segmenter, "load", classmethod(lambda cls, name: trained))
    found = {}
    exec(page.locator("#snippet").inner_text(), found)
    assert np.array_equal(found["result"].labels.numpy(), mask)
    page.get_by_role("radio", name="Command line").check()
    command = shlex.split(page.locator("#snippet").inner_text().replace("\\\n", ""))
    assert command[:3] == ["joem", "predict", "it's.png"]
    assert command[command.index("--example") + 1] == "thing=it's.png,40:30"
    assert command[command.index("--classes") + 1] == ", ".join([*WORDS, "thing"])
    page.get_by_role("radio", name="curl").check()
    words = shlex.split(page.locator("#snippet").inner_text().replace("\\\n", "").split("\n")[1])
    assert json.loads(words[words.index("-d") + 1])["points"] == {"thing": [[40, 30, True]]}
