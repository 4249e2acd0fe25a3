"""Classes by a click on the page, and zoom and pan, with mouse, fingers and keys."""

import numpy as np
import pytest
from browsing import PHONE, SCREENSHOTS, add, chips, image_of, picture, position, settle, upload
from playwright.sync_api import expect

WORDS = ["red circle", "blue ring"]


def click(page, x, y, size=(96, 75), touch=False):
    """Point at a pixel of the photo."""
    page.evaluate("scrollTo(0, 0)")
    where = position(page, x, y, *size)
    page.touchscreen.tap(*where) if touch else page.mouse.click(*where)
    expect(page.locator("#naming")).to_be_visible()


@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desktop", "phone"])
def test_a_click_makes_a_class(visit, trained, screen):
    touch = bool(screen)
    page = visit(**screen)
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    click(page, 40, 30, touch=touch)
    field = page.get_by_label("What is here?")
    if touch:
        field.fill("zzq thing")
    else:
        expect(field).to_be_focused()
        page.keyboard.type("zzq thing")
    page.screenshot(path=SCREENSHOTS / f"naming{'-phone' if touch else ''}.png")
    page.locator("#naming").get_by_role("button", name="Add").click()
    expect(page.locator("#naming")).to_be_hidden()
    expect(page.locator("#chips li[data-name='zzq thing'] .badge")).to_have_text("1 mark")
    settle(page)
    points = {"zzq thing": [(40, 30)]}

    def same():
        expected = trained.encode(picture()).segment([*WORDS, "zzq thing"], points=points)
        assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy())
        return [(int(x), int(y)) for y, x in np.argwhere(expected.labels.numpy() == expected.names.index("zzq thing"))]

    same()
    click(page, 70, 60, touch=touch)  # one more, by the name that is offered
    page.locator("#naming-offers").get_by_role("button", name="zzq thing", exact=True).click()
    expect(page.locator("#chips li[data-name='zzq thing'] .badge")).to_have_text("2 marks")
    settle(page)
    points["zzq thing"].append((70, 60))
    covered = same()
    x, y = covered[len(covered) // 2]
    click(page, x, y, touch=touch)  # and where it is not
    page.locator("#naming-offers").get_by_role("button", name="not zzq thing").click()
    expect(page.locator("#marks .mark.not")).to_have_count(1)
    settle(page)
    points["zzq thing"].append((x, y, False))
    same()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#marks .mark")).to_have_count(2)
    settle(page)
    points["zzq thing"].pop()
    same()
    page.get_by_role("button", name="Remove zzq thing").click()
    expect(page.locator("#marks .mark")).to_have_count(0)
    assert chips(page) == ["blue ring", "red circle"]


def test_a_drag_is_many_points_and_mistakes_are_told_there(visit):
    page = visit()
    settle(page)
    upload(page, picture())
    page.mouse.move(*position(page, 20, 20, 96, 75))
    page.mouse.down()
    page.mouse.move(*position(page, 60, 40, 96, 75), steps=8)
    expect(page.locator("#stroke .mark")).not_to_have_count(0)
    page.mouse.up()
    page.keyboard.press("Enter")
    expect(page.locator("#problem-naming")).to_contain_text("Type what is there")
    page.keyboard.type("thing")
    page.keyboard.press("Enter")
    expect(page.locator("#naming")).to_be_hidden()
    settle(page)
    assert page.locator("#marks .mark").count() > 4
    assert chips(page) == ["thing"], "without any word"
    add(page, "red circle")
    expect(page.locator("#chips li")).to_have_count(2)


def test_a_class_is_named_with_keys_alone(visit):
    page = visit()
    settle(page)
    upload(page, picture(), words="red circle")
    page.locator("#stage").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.type("thing")
    page.keyboard.press("Enter")
    expect(page.locator("#chips li[data-name='thing']")).to_have_count(1)
    expect(page.locator("#stage")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#naming")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#naming")).to_be_hidden()


def test_an_example_on_one_photo_counts_on_another(visit, trained):
    page = visit()
    settle(page)
    upload(page, picture(), "first.png", words="red circle")
    click(page, 40, 30)
    page.keyboard.type("thing")
    page.keyboard.press("Enter")
    expect(page.locator("#chips li[data-name='thing'] .badge")).to_have_text("1 mark")
    settle(page)
    upload(page, picture(64), "second.png")
    settle(page)
    expect(page.locator("#marks .mark")).to_have_count(0)
    taught = trained.with_examples("thing", [(picture(), [(40, 30)])])
    expected = taught(picture(64), ["red circle", "thing"])
    assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy())


def shown(page):
    """What the pixel at the middle of the stage is."""
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 1, box["y"] + box["height"] / 2 + 1)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return page.locator("#pixel-label").inner_text().split(":")[0]


def test_a_very_wide_photo_can_be_zoomed_and_moved(visit):
    page = visit()
    settle(page)
    wide = picture().resize((2400, 200))
    upload(page, wide, "wide.png", words=", ".join(WORDS))
    box = page.locator("#stage").bounding_box()
    assert box["width"] / box["height"] < 2.5, "not a thin line"
    assert shown(page) == "x 1200, y 100"
    for _ in range(4):
        page.get_by_role("button", name="Zoom in").click()
    assert shown(page) == "x 1200, y 100"
    page.screenshot(path=SCREENSHOTS / "wide.png")
    page.get_by_role("button", name="Move", exact=True).click()
    shown(page)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 100, box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()
    expect(page.locator("#naming")).to_be_hidden()
    x = int(shown(page).split(",")[0].removeprefix("x "))
    scale = box["width"] / 2400 * 1.5**4
    assert x == pytest.approx(1200 + 100 / scale, abs=2)
    page.get_by_role("button", name="Fit").click()
    expect(page.get_by_role("button", name="Fit")).to_be_disabled()
    assert shown(page) == "x 1200, y 100"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    expect(page.get_by_role("button", name="Fit")).to_be_enabled()


def test_outlines_are_smooth_at_any_zoom(visit):
    """A slanted edge: the line between two classes must not follow the stairs of the labels."""
    page = visit()
    settle(page)
    found = page.evaluate("""async () => {
        const { edgesOf, paint } = await import("/page/paint.js");
        const [width, height, zoom] = [40, 30, 10];
        const at = (i) => (i % width + 0.5 > 12 + Math.floor(i / width) / 3 ? 1 : 0);
        const labels = Uint8Array.from({ length: width * height }, (_, i) => at(i));
        const shown = { labels, edges: edgesOf(labels, width, height), width, height };
        const image = new ImageData(width * zoom, height * zoom);
        const fills = [[255, 0, 0, 255], [0, 0, 255, 255]];
        paint(image, shown, { left: 0, top: 0, step: 1 / zoom }, fills, 1, 1);
        const middles = []; // of the white line in every row
        for (let y = 5 * zoom; y < 25 * zoom; y++) {
            let [sum, count] = [0, 0];
            for (let x = 0; x < image.width; x++) {
                const at = 4 * (y * image.width + x);
                if (image.data[at + 1] > 128) { sum += x; count++; }
            }
            middles.push(count ? sum / count / zoom : null);
        }
        return middles;
    }""")
    assert None not in found, "the line has no gaps"
    rows = np.arange(len(found)) / 10
    slope, start = np.polyfit(rows, found, 1)
    assert slope == pytest.approx(1 / 3, abs=0.02)
    assert np.abs(np.polyval((slope, start), rows) - found).max() < 0.25, "of a label's width; stairs would be 0.5 away"
