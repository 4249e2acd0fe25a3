"""The page in a real browser; screenshots go to build/screenshots."""

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from browsing import add, chips, download, picture, settle, start, upload
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from joem import Segmenter, decision, engine
from joem.web.gallery import generated, photos

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NEW = "striped blue circle"


@pytest.fixture(scope="module")
def segmenter(shared_tiny, tmp_path_factory) -> Segmenter:
    torch.manual_seed(0)
    run = tmp_path_factory.mktemp("run")
    engine.train(shared_tiny, run)
    return Segmenter.load(run)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        installed = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        path = installed or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("no Chromium: install Debian's package chromium, or run `playwright install chromium`")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(segmenter):
    server, thread, address = start(segmenter)
    yield address
    server.should_exit = True
    thread.join()


@pytest.fixture
def visit(browser, address):
    """Open the page; afterwards, no script may have failed and nothing may have been asked of other machines."""
    contexts, errors = [], []

    def open_page(url=address, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((url, "blob:")) else errors.append(r.url))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # The browser itself reports refusals (4xx), which some tests provoke.
    assert [error for error in errors if "Failed to load resource" not in error] == []


def test_from_a_photo_and_words_to_a_mask(visit, segmenter):
    page = visit()
    settle(page)
    page.screenshot(path=SCREENSHOTS / "start.png")
    upload(page, picture())
    assert page.locator("#photo").evaluate("canvas => [canvas.width, canvas.height]") == [96, 75]
    add(page, f"{NEW}, brown horse")
    chip = page.locator(f"#chips li[data-name='{NEW}']")
    expect(chip.locator(".badge")).to_have_text("new")
    expect(page.locator("#chips li[data-name='red circle'] .badge")).to_have_text("trained")
    page.get_by_role("button", name="Remove yellow ring").click()
    expect(page.locator("#chips li[data-name='yellow ring']")).to_have_count(0)
    names = [name for name in segmenter.vocabulary.names if name != "yellow ring"] + [NEW, "brown horse"]
    assert sorted(chips(page)) == sorted(names)

    requests = []
    page.on("request", lambda request: requests.append(request.url))
    scene, masks = segmenter.encode(picture()), []
    for sigma in ("0.97", "0.9", "0.75"):
        page.get_by_label("Sigma").fill(sigma)
        expected = scene.segment(names, "ac", sigma=float(sigma))
        mask = download(page, "Mask")
        assert np.array_equal(np.asarray(mask), expected.labels.numpy())
        assert mask.getpalette()[: 3 * len(names)] == [channel for colour in expected.colours for channel in colour]
        masks.append(np.asarray(mask))
    assert not np.array_equal(masks[0], masks[2]), "the slider must have changed something"
    assert [url for url in requests if not url.startswith("blob:")] == [], "the slider must not ask the service"

    overlay = download(page, "Overlay")
    assert np.array_equal(np.asarray(overlay), np.asarray(expected.overlay()))
    page.screenshot(path=SCREENSHOTS / "desktop.png")


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
            values = random.uniform(min(grid), max(grid), 12).tolist()
            borders = rule.turning(ranking).flatten()[::97]  # values at which some pixel turns
            values += borders[(borders > 0) & (borders <= rule.parameter.largest)].tolist()
            assert len(values) > 20
        found = page.evaluate(decide, {"names": names, "rule": name, "values": values})
        for value, labels in zip(values, found, strict=True):
            assert labels == rule.decide(ranking, value).flatten().tolist(), (name, value)


def test_a_pixel_is_explained_by_pointer_keyboard_and_touch(visit, segmenter):
    page = visit(has_touch=True)
    settle(page)
    upload(page, picture())
    scene, own = segmenter.encode(picture()), segmenter.model.recipe.decision
    distances, labels = scene.distances(), scene.segment().labels
    turning = decision.RULES[own.rule].turning(scene.ranking())[0]
    box = page.locator("#stage").bounding_box()

    def check(x, y):
        first, second = distances[:, y, x].topk(2, largest=False).indices.tolist()
        names = segmenter.vocabulary.names
        expect(page.locator("#pixel-label")).to_have_text(f"x {x}, y {y}: {names[labels[y, x]]}")
        expect(page.locator("#pixel-classes li").nth(0)).to_contain_text(names[first])
        expect(page.locator("#pixel-classes li").nth(1)).to_contain_text(names[second])
        told = page.locator("#pixel-why").inner_text()
        kind = "trained" if names[labels[y, x]] in segmenter.vocabulary.seen else "new"
        assert told.startswith("Turns at sigma ")
        assert told.endswith(f": the slider is at {own.value:g}, so the {kind} class is taken.")
        assert float(told.split()[3].rstrip(":")) == pytest.approx(float(turning[y, x]), rel=5e-3)

    def position(x, y):
        return box["x"] + (x + 0.5) * box["width"] / 96, box["y"] + (y + 0.5) * box["height"] / 75

    for x, y in ((5, 5), (50, 40), (95, 74)):
        page.mouse.move(*position(x, y))
        check(x, y)
    page.touchscreen.tap(*position(30, 20))
    check(30, 20)
    page.locator("#stage").focus()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowDown")
    check(31, 22)
    expect(page.locator("#status")).to_contain_text("x 31, y 22")
    page.screenshot(path=SCREENSHOTS / "pixel.png")


def test_rules_and_comparison(visit):
    page = visit()
    settle(page)
    page.get_by_role("radio", name="CS").check()
    expect(page.get_by_label("Sigma")).to_be_hidden()
    settle(page)
    everything_new = page.get_by_label("Gamma").get_attribute("max")
    page.get_by_label("Gamma").fill(everything_new)
    expect(page.locator("#share")).to_contain_text("New classes cover")
    page.get_by_role("radio", name="NN").check()
    expect(page.get_by_label("Gamma")).to_be_hidden()
    expect(page.locator("#rule-help")).to_have_text(re.compile("Nearest neighbour"))
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="CS")).to_be_checked()
    compare = page.get_by_label("Compare with the original")
    compare.fill("50")
    assert page.locator("#tint").evaluate("canvas => canvas.style.clipPath") == "inset(0px 0px 0px 50%)"
    expect(compare).to_have_attribute("aria-valuetext", "original on the left 50 %")
    page.screenshot(path=SCREENSHOTS / "compare.png")


@pytest.mark.parametrize("rule", decision.RULES.values(), ids=lambda rule: rule.name)
def test_another_rule_shows_its_own_labels_and_keeps_the_chips(visit, segmenter, rule):
    page = visit()
    settle(page)
    upload(page, picture())
    before, scene = chips(page), segmenter.encode(picture())
    page.get_by_role("radio", name=rule.name.upper()).check()
    settle(page)
    expect(page.locator("#rule-help")).to_contain_text(rule.about)
    assert chips(page) == before
    assert np.array_equal(np.asarray(download(page, "Mask")), scene.segment(rule=rule.name).labels.numpy())
    if rule.parameter is None:
        expect(page.locator("#value")).to_be_hidden()
        return
    slider = page.get_by_label(rule.parameter.name.capitalize())
    ends = [float(slider.get_attribute(end)) for end in ("min", "max")]
    neutral, strongest = ends if rule.parameter.rises else reversed(ends)
    assert neutral == rule.parameter.neutral
    slider.fill(str(strongest))
    expected = scene.segment(rule=rule.name, **{rule.parameter.name: strongest})
    assert np.array_equal(np.asarray(download(page, "Mask")), expected.labels.numpy())
    assert np.array_equal(np.asarray(download(page, "Overlay")), np.asarray(expected.overlay()))


def test_a_rule_chosen_while_classes_are_added_loses_neither(visit):
    page = visit()
    settle(page)
    held = []

    def hold(route):
        held.append(route)

    page.route("**/ranking", hold, times=1)
    add(page, NEW)
    page.wait_for_timeout(200)
    page.get_by_role("radio", name="CS").check()
    held[0].continue_()
    expect(page.locator(f"#chips li[data-name='{NEW}']")).to_have_count(1)
    settle(page)
    expect(page.get_by_label("Gamma")).to_be_visible()
    expect(page.get_by_role("radio", name="CS")).to_be_checked()


def test_a_rule_that_cannot_be_shown_is_not_chosen(visit):
    page = visit()
    settle(page)
    page.route("**/ranking", lambda route: route.fulfill(status=500, json={"message": "broken"}), times=1)
    page.get_by_role("radio", name="CS").click()  # check() would want it to stay chosen
    expect(page.get_by_role("alert")).to_contain_text("broken")
    expect(page.get_by_role("radio", name="AC")).to_be_checked()
    expect(page.get_by_label("Sigma")).to_be_visible()


def test_mistakes_are_told_and_mended(visit):
    page = visit()
    settle(page)
    before = chips(page)
    add(page, "purple elephannt")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("do not know “elephannt”", timeout=10_000)
    assert chips(page) == before
    page.screenshot(path=SCREENSHOTS / "unknown-word.png")
    alert.get_by_role("button", name="elephant", exact=True).click()
    expect(page.locator("#chips li[data-name='purple elephant']")).to_have_count(1)
    expect(alert).to_be_hidden()
    page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(alert).to_contain_text("cannot read this file")
    page.get_by_role("button", name="Only found ones").click()
    expect(page.locator("#chips .absent")).to_have_count(0)
    page.get_by_role("button", name="Model’s classes").click()
    expect(page.locator("#chips li")).to_have_count(len(before))


def test_a_large_photo_is_reduced(visit, segmenter):
    page = visit()
    settle(page)
    upload(page, picture().resize((2400, 1200)), "large.png")
    width, height = page.locator("#photo").evaluate("canvas => [canvas.width, canvas.height]")
    assert width * height <= 1 << 20
    assert width / height == pytest.approx(2, abs=0.01)
    mask = download(page, "Mask")
    assert mask.size == (width, height)


def test_a_picture_that_the_service_forgot_is_sent_again(visit, segmenter, browser, tmp_path):
    page = visit()
    settle(page)
    page.route("**/ranking", lambda route: route.fulfill(status=404, json={"message": "gone"}), times=1)
    add(page, NEW)
    expect(page.locator(f"#chips li[data-name='{NEW}']")).to_have_count(1)


def test_a_sample_brings_its_words_and_a_photo_of_ones_own_does_not_keep_them(visit, segmenter):
    server, thread, address = start(segmenter, samples=photos(segmenter))
    try:
        page = visit(address)
        settle(page)
        assert sorted(chips(page)) == ["background", "person", "tripod"]
        page.get_by_role("button", name="coffee").click()
        expect(page.locator("#status")).to_contain_text("coffee: ")
        assert sorted(chips(page)) == ["background", "cup"]
        upload(page, picture())
        assert sorted(chips(page)) == sorted(segmenter.vocabulary.names)
        page.get_by_role("button", name="coffee").click()
        expect(page.locator("#status")).to_contain_text("coffee: ")
        add(page, "spoon")
        expect(page.locator("#chips li[data-name='spoon']")).to_have_count(1)
        upload(page, picture(), "again.png")
        assert sorted(chips(page)) == ["background", "cup", "spoon"]
    finally:
        server.should_exit = True
        thread.join()


def test_names_stand_on_their_regions(visit, segmenter):
    page = visit()
    settle(page)
    upload(page, picture())
    page.get_by_label("Sigma").fill("0.97")
    labels = segmenter.encode(picture()).segment(rule="ac", sigma=0.97).labels
    tags = page.evaluate("""() => [...document.querySelectorAll("#tags span")]
        .map((tag) => [tag.textContent, parseFloat(tag.style.left), parseFloat(tag.style.top)])""")
    assert tags
    for name, left, top in tags:
        x, y = int(left * 96 / 100), int(top * 75 / 100)
        assert segmenter.vocabulary.names[labels[y, x]] == name
        around = labels[max(0, y - 2) : y + 3, x]
        assert (around == labels[y, x]).all(), "not at a border"
    page.get_by_label("Strength of the tint").fill("0")
    expect(page.locator("#tags")).to_be_hidden()


def test_a_token_is_asked_for_and_used(visit, segmenter):
    server, thread, address = start(segmenter, token="s3cret")
    try:
        page = visit(address)
        for token in ("wrong", "s3cret"):
            expect(page.get_by_role("dialog")).to_be_visible()
            page.get_by_label("Token", exact=True).fill(token)
            page.keyboard.press("Enter")
        settle(page)
        expect(page.locator("#samples img")).to_have_count(6)
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}),
        ("phone-dark", {"viewport": {"width": 320, "height": 640}, "is_mobile": True, "color_scheme": "dark"}),
    ],
)
def test_every_screen_has_room(visit, name, options):
    page = visit(**options)
    settle(page)
    add(page, NEW)
    expect(page.locator(f"#chips li[data-name='{NEW}']")).to_have_count(1)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "nothing may stick out at the side"


def test_everything_has_a_name_and_can_be_reached(visit):
    page = visit()
    settle(page)
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, img")]
        .filter((one) => !(one.ariaLabel || one.labels?.length || one.textContent.trim() || one.alt))
        .filter((one) => !one.querySelector("img[alt]"))
        .map((one) => one.outerHTML)""")
    assert unnamed == []
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.value"))
    assert {"stage", "compare", "opacity", "file", "words", "reset", "found", "ac", "value"} <= reached
    assert {"save-mask", "save-overlay"} <= reached
