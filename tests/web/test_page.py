"""The page in a real browser, as a person uses it; screenshots go to build/screenshots."""

import io
import re

import numpy as np
import pytest
from browsing import (
    PHONE,
    SCREENSHOTS,
    add,
    chips,
    image_of,
    open_advanced,
    picture,
    position,
    serving,
    set_value,
    settle,
    upload,
)
from PIL import Image
from playwright.sync_api import expect

from joem import decision
from joem.web.gallery import generated, photos

NEW = "striped blue circle"
WORDS = ["red circle", "blue ring", "yellow ring", NEW]


@pytest.fixture
def segmenter(trained):
    return trained


def colour(page, name):
    return page.locator(f"#chips li[data-name='{name}'] .swatch").evaluate("one => one.style.background")


@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desktop", "phone"])
def test_the_start_is_a_photo_and_one_field(visit, segmenter, screen):
    page = visit(**screen)
    expect(page.get_by_label("What is in the picture?")).to_be_focused()
    settle(page)
    shown = generated(segmenter.model.recipe.data)[0].names
    assert chips(page) == list(reversed(shown)), "only what is on it"
    expect(page.locator("#rest")).to_contain_text("background")
    upload(page, picture())
    assert chips(page) == [], "a photo of one's own has no words yet"
    expect(page.get_by_label("What is in the picture?")).to_be_focused()
    expect(page.locator("#save-mask")).to_be_disabled()
    clear = page.locator("#tint").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.every((v) => v === 0)"
    )
    assert clear, "nothing over the photo before anything is asked for"
    page.screenshot(path=SCREENSHOTS / f"start{'-phone' if screen else ''}.png")
    page.get_by_role("button", name="red circle", exact=True).click()  # a word that the model was taught
    expect(page.locator("#chips li")).to_have_count(1)
    tops = {name: page.locator(name).bounding_box()["y"] for name in ("#stage", "#words", "#more", "#compare")}
    if screen:
        assert tops["#stage"] < tops["#words"] < tops["#more"] < tops["#compare"], "photo and words before sliders"


def test_from_a_photo_and_words_to_a_mask(visit, segmenter):
    page = visit()
    settle(page)
    upload(page, picture(), words="red circle, blue ring")
    before = colour(page, "blue ring")
    add(page, f"yellow ring, {NEW}")
    expect(page.locator("#chips li")).to_have_count(4)
    assert chips(page)[0] == NEW, "new words on top"
    expect(page.locator(f"#chips li[data-name='{NEW}'] .badge")).to_have_text("new")
    expect(page.locator("#chips li[data-name='red circle'] .badge")).to_have_text("trained")
    page.get_by_role("button", name="Remove red circle").click()
    expect(page.locator("#chips li")).to_have_count(3)
    assert colour(page, "blue ring") == before, "colours stay with their words"
    names = ["blue ring", "yellow ring", NEW]
    settle(page)

    open_advanced(page)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    scene, masks = segmenter.encode(picture()), []
    for sigma in ("0.97", "0.9", "0.75"):
        set_value(page, "Sigma", sigma)
        expected = scene.segment(names, "ac", sigma=float(sigma))
        mask = image_of(page, "Mask")
        assert np.array_equal(np.asarray(mask), expected.labels.numpy())
        assert tuple(mask.getpalette()[:3]) == tuple(map(int, re.findall(r"\d+", before)))
        masks.append(np.asarray(mask))
    assert not np.array_equal(masks[0], masks[2]), "the value must have changed something"
    assert [url for url in requests if not url.startswith("blob:")] == [], "it must not ask the service"
    page.screenshot(path=SCREENSHOTS / "desktop.png")


def test_undo_and_redo(visit):
    page = visit()
    settle(page)
    upload(page, picture(), words="red circle")
    add(page, "blue ring")
    expect(page.locator("#chips li")).to_have_count(2)
    page.get_by_role("button", name="Remove red circle").click()
    expect(page.locator("#chips li")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#chips li")).to_have_count(2)
    page.locator("#stage").focus()
    page.keyboard.press("Control+z")
    expect(page.locator("#chips li")).to_have_count(1)
    assert chips(page) == ["red circle"]
    page.keyboard.press("Control+Shift+z")
    expect(page.locator("#chips li")).to_have_count(2)
    page.get_by_role("button", name="Remove all").click()
    expect(page.locator("#chips li")).to_have_count(0)
    expect(page.get_by_role("button", name="Redo")).to_be_disabled()


def test_browser_and_service_decide_alike_for_any_setting(visit, segmenter):
    page = visit()
    names = [*segmenter.vocabulary.names, NEW]
    decide = """async ({names, rule, values}) => {
        const { decide, unpack } = await import("/page/ranking.js");
        const { rules } = await (await fetch("/api/model")).json();
        const { parameter } = rules.find(({ name }) => name === rule);
        const sample = await (await fetch("/api/samples/1")).blob();
        const post = (path, body, kind) => fetch(path, {method: "POST", body, headers: {"Content-Type": kind}});
        const { scene } = await (await post("/api/scenes", sample, "image/png")).json();
        const answer = await post(`/api/scenes/${scene}/ranking`, JSON.stringify({names, rule}), "application/json");
        const ranking = unpack(await answer.arrayBuffer());
        return values.map((value) => Array.from(decide(ranking, parameter, value)));
    }"""
    random = np.random.default_rng(0)
    sample = generated(segmenter.model.recipe.data)[1]
    ranking = segmenter.encode(Image.open(io.BytesIO(sample.content))).ranking(names)
    for name, rule in decision.RULES.items():
        values = [None]
        if rule.parameter:
            grid = rule.parameter.grid(0.3)
            values = random.uniform(min(grid), max(grid), 5).tolist()
            borders = rule.turning(ranking).flatten()[::499]  # values at which some pixel turns
            values += borders[(borders > 0) & (borders <= rule.parameter.largest)].tolist()
            assert len(values) > 8
        found = page.evaluate(decide, {"names": names, "rule": name, "values": values})
        for value, labels in zip(values, found, strict=True):
            assert labels == rule.decide(ranking, value).flatten().tolist(), (name, value)


@pytest.mark.parametrize("zoomed", [False, True])
def test_a_pixel_is_explained_by_pointer_and_keyboard(visit, segmenter, zoomed):
    page = visit()
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    scene, own = segmenter.encode(picture()), segmenter.model.recipe.decision
    result = scene.segment(WORDS)
    distances = scene.distances(WORDS)
    turning = decision.RULES[own.rule].turning(scene.ranking(WORDS))[0]
    if zoomed:
        for _ in range(3):
            page.get_by_role("button", name="Zoom in").click()

    def check():
        x, y = (int(text) for text in re.findall(r"\d+", page.locator("#pixel-label").inner_text().split(":")[0]))
        first, second = distances[:, y, x].topk(2, largest=False).indices.tolist()
        expect(page.locator("#pixel-label")).to_have_text(f"x {x}, y {y}: {result.names[result.labels[y, x]]}")
        expect(page.locator("#pixel-classes li").nth(0)).to_contain_text(result.names[first])
        expect(page.locator("#pixel-classes li").nth(1)).to_contain_text(result.names[second])
        told = page.locator("#pixel-why").inner_text()
        kind = "new" if result.names[result.labels[y, x]] in result.unseen else "trained"
        assert told.endswith(f"the {kind} class is taken.")
        if told.startswith("Turns at sigma "):
            assert float(told.split()[3].rstrip(":")) == pytest.approx(float(turning[y, x]), rel=5e-3)
            assert f"it is set to {own.value:g}, " in told
        else:
            assert turning[y, x] == 0
        return x, y

    box = page.locator("#stage").bounding_box()
    seen = set()
    for across, down in ((0.1, 0.1), (0.5, 0.5), (0.9, 0.7)):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        seen.add(check())
    assert len(seen) == 3
    if not zoomed:
        page.mouse.move(*position(page, 30, 20, 96, 75))
        assert check() == (30, 20)
        page.locator("#stage").focus()
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("ArrowDown")
        assert check() == (31, 22)
        expect(page.locator("#status")).to_contain_text("x 31, y 22")
        page.screenshot(path=SCREENSHOTS / "pixel.png")


def test_one_slider_and_what_is_behind_it(visit, segmenter):
    page = visit()
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    slider = page.get_by_label("Fewer or more new classes")
    assert float(slider.input_value()) == pytest.approx(50 if segmenter.model.recipe.decision.value != 1 else 0)
    shares = []
    for end in ("0", "100"):
        slider.fill(end)
        shares.append(page.locator("#share").inner_text())
    assert shares[0] != shares[1]
    open_advanced(page)
    assert float(page.get_by_role("spinbutton", name="Sigma").input_value()) == pytest.approx(0.02)
    expect(page.locator("#curve-line")).to_have_attribute("points", re.compile(r"\d+ \d"))  # drawn after the picture
    line = page.locator("#curve-line").get_attribute("points").split()
    heights = [float(point.split(",")[1]) for point in line]
    assert len(line) == 101
    assert heights == sorted(heights, reverse=True), "more new classes to the right"
    scene = segmenter.encode(picture())
    result = scene.segment(WORDS, "ac", sigma=0.02)
    new = sum(result.areas()[name] for name in result.unseen)
    assert heights[-1] == pytest.approx(84 * (1 - new), abs=0.1)
    ends = slider.get_attribute("min"), slider.get_attribute("max")
    upload(page, picture(64), "other.png")
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ends, "its range is that of no picture"


def test_every_rule_shows_its_own_labels(visit, segmenter):
    page = visit()
    settle(page)
    upload(page, picture(), words=", ".join(WORDS))
    before, scene = chips(page), segmenter.encode(picture())
    strongest = page.evaluate("async () => (await (await fetch('/api/model')).json()).strongest")
    open_advanced(page)
    for rule in decision.RULES.values():
        page.get_by_role("radio", name=rule.name.upper()).check()
        settle(page)
        expect(page.locator("#rule-help")).to_contain_text(rule.about)
        assert chips(page) == before
        if rule.parameter is None:
            expect(page.locator("#value")).to_be_hidden()
            expect(page.locator("#more")).to_be_disabled()
            expected = scene.segment(WORDS, rule.name)
        else:
            page.locator("#more").fill("100")
            expected = scene.segment(WORDS, rule.name, **{rule.parameter.name: strongest[rule.parameter.name]})
        assert np.array_equal(np.asarray(image_of(page, "Mask")), expected.labels.numpy()), rule.name


def test_a_rule_chosen_while_classes_are_added_loses_neither(visit):
    page = visit()
    settle(page)
    held = []

    def hold(route):
        held.append(route)

    page.route("**/ranking", hold, times=1)
    open_advanced(page)
    add(page, NEW)
    page.wait_for_timeout(200)
    page.get_by_role("radio", name="CS").check()
    held[0].continue_()
    settle(page)
    expect(page.locator(f"#chips li[data-name='{NEW}'] .area")).not_to_be_empty()
    expect(page.get_by_role("spinbutton", name="Gamma")).to_be_visible()
    expect(page.get_by_role("radio", name="CS")).to_be_checked()


def test_a_rule_that_cannot_be_shown_is_not_chosen(visit):
    page = visit()
    settle(page)
    open_advanced(page)
    page.route("**/ranking", lambda route: route.fulfill(status=500, json={"message": "broken"}), times=1)
    page.get_by_role("radio", name="CS").click()  # check() would want it to stay chosen
    expect(page.locator("#problem-decide")).to_contain_text("broken")
    expect(page.get_by_role("radio", name="AC")).to_be_checked()
    expect(page.get_by_role("spinbutton", name="Sigma")).to_be_visible()


def test_mistakes_are_told_where_they_were_made(visit):
    page = visit()
    settle(page)
    before = chips(page)
    add(page, "purple elephannt")
    alert = page.locator("#problem-words")
    expect(alert).to_contain_text("do not know “elephannt”")
    assert chips(page) == before
    page.screenshot(path=SCREENSHOTS / "unknown-word.png")
    alert.get_by_role("button", name="elephant", exact=True).click()
    expect(page.locator("#chips li[data-name='purple elephant']")).to_have_count(1)
    expect(alert).to_be_hidden()
    page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.locator("#problem-photo")).to_contain_text("cannot read a.png")
    expect(page.locator("#thumbs li")).to_have_count(0)
    settle(page)


def test_a_picture_that_the_service_forgot_is_sent_again(visit):
    page = visit()
    settle(page)
    page.route("**/ranking", lambda route: route.fulfill(status=404, json={"message": "gone"}), times=1)
    add(page, NEW)
    expect(page.locator(f"#chips li[data-name='{NEW}'] .area")).not_to_be_empty()


def test_a_sample_brings_its_words_and_an_example(visit, segmenter):
    with serving(segmenter, samples=photos(segmenter)) as address:
        page = visit(address)
        settle(page)
        assert sorted(chips(page)) == ["building", "man", "sky", "tripod"]
        expect(page.locator("#samples button")).to_have_text(["scenery", "an example", "a new word", "things"])
        page.get_by_role("button", name="an example").click()
        expect(page.locator("#status")).to_contain_text("astronaut: ")
        assert sorted(chips(page)) == ["flag", "person"]
        expect(page.locator("#marks .mark")).to_have_count(1)
        expect(page.locator("#chips li[data-name='flag'] .badge")).to_have_text("1 mark")
        upload(page, picture())
        assert chips(page) == [], "a photo of one's own does not keep the words of a sample"
        add(page, "spoon")
        expect(page.locator("#chips li")).to_have_count(1)
        settle(page)
        upload(page, picture(), "again.png")
        assert chips(page) == ["spoon"], "but those that someone chose"


def test_names_stand_on_their_regions(visit, segmenter):
    page = visit()
    settle(page)
    words = [name for name in segmenter.vocabulary.names if name != "background"]
    upload(page, picture(), words=", ".join(words))
    set_value(page, "Sigma", "0.97")
    result = segmenter.encode(picture()).segment(words, "ac", sigma=0.97)
    page.wait_for_timeout(300)
    expect(page.locator("#tags span")).not_to_have_count(0)
    tags = page.evaluate("""() => { const { offsetWidth: w, offsetHeight: h } = document.getElementById("stage");
        return [...document.querySelectorAll("#tags span")]
        .map((tag) => [tag.textContent, parseFloat(tag.style.left) / w, parseFloat(tag.style.top) / h]) }""")
    assert tags
    for name, left, top in tags:
        x, y = int(left * 96), int(top * 75)
        assert result.names[result.labels[y, x]] == name
        around = result.labels[max(0, y - 2) : y + 3, x]
        assert (around == result.labels[y, x]).all(), "not at a border"
    page.get_by_label("Strength of the tint").fill("0")
    expect(page.locator("#tags")).to_be_hidden()
    compare = page.get_by_label("Compare with the original")
    compare.fill("50")
    expect(compare).to_have_attribute("aria-valuetext", "original on the left 50 %")
    expect(page.locator("#tint")).to_have_attribute("style", re.compile(r"clip-path: inset\(0px 0px 0px 50%\)"))


def test_very_many_classes_stay_usable(visit):
    page = visit()
    settle(page)
    many = [
        f"{tone} {shape}"
        for tone in ("red", "green", "blue", "yellow", "purple", "orange", "brown", "pink", "grey", "white")
        for shape in ("circle", "ring", "square", "star", "triangle", "horse", "car", "tree", "house", "chair")
    ]
    upload(page, picture(), words=", ".join(many))
    found, absent = (page.locator(f"{ids} li").count() for ids in ("#chips", "#absent-chips"))
    assert found + absent == 100
    assert 0 < found < 40, "what is not in the picture is folded away"
    expect(page.locator("#absent-count")).to_have_text(f"{absent} not in this picture")
    expect(page.locator("#absent-chips")).to_be_hidden()
    page.screenshot(path=SCREENSHOTS / "many.png")
    page.get_by_role("button", name="Keep those found").click()
    expect(page.locator("#chips li")).to_have_count(found)
