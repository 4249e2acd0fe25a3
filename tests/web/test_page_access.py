"""Everybody can use the page: assistive technology, small screens, tokens, several models."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from browsing import DESKTOP, PHONE, SCREENSHOTS, add, open_advanced, picture, position, serving, settle, upload
from playwright.sync_api import expect

from joem.web.gallery import generated
from joem.web.models import ServedModel

NEW = "striped blue circle"
AXE = "axe-core@4.11.0"


@pytest.fixture(scope="session")
def axe(tmp_path_factory) -> str:
    """The script of axe-core, kept beside other things that are downloaded; the registry is asked once."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "joem-tests"
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not file.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm, which installs axe-core: install Node.js")
        made = subprocess.run(
            [npm, "install", "--prefix", folder, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", AXE],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if made.returncode:
            pytest.skip(f"axe-core cannot be installed: {made.stderr[-300:]}")
    return file.read_text(encoding="utf-8")


def violations(page, axe):
    page.evaluate(axe)  # the policy of the page lets no script in, but that of a debugger
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(one["id"], node["html"][:200], node["failureSummary"]) for one in found for node in one["nodes"]]


@pytest.mark.parametrize("screen", [DESKTOP, PHONE, {"color_scheme": "dark"}], ids=["desktop", "phone", "dark"])
def test_axe_finds_nothing(visit, axe, screen):
    page = visit(**screen)
    settle(page)
    assert violations(page, axe) == []
    upload(page, picture(), words=f"red circle, blue ring, {NEW}")
    open_advanced(page)
    page.get_by_text("Link and code").click()
    page.get_by_text("About the model").click()
    add(page, "elephannt")
    expect(page.locator("#problem-words")).to_be_visible()
    page.locator("#stage").scroll_into_view_if_needed()
    where = position(page, 40, 30, 96, 75)
    page.touchscreen.tap(*where) if screen is PHONE else page.mouse.click(*where)
    expect(page.locator("#naming")).to_be_visible()
    assert violations(page, axe) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dark", {"color_scheme": "dark"}),
        ("phone", PHONE),
        ("phone-dark", {"viewport": {"width": 320, "height": 640}, "is_mobile": True, "color_scheme": "dark"}),
    ],
)
def test_every_screen_has_room(visit, name, options):
    page = visit(**options)
    settle(page)
    add(page, NEW)
    expect(page.locator(f"#chips li[data-name='{NEW}'] .area")).not_to_be_empty()
    open_advanced(page)
    page.get_by_text("Link and code").click()
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "nothing may stick out at the side"


def test_everything_can_be_reached_with_keys(visit):
    page = visit()
    settle(page)
    open_advanced(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.value"))
    assert {"stage", "tool-name", "tool-move", "zoom-in", "compare", "opacity", "file", "words", "clear"} <= reached
    assert {"more", "value", "ac", "background", "save-mask", "save-overlay", "save-coco", "save-cut"} <= reached


def test_a_token_is_asked_for_and_used(visit, trained):
    with serving(trained, token="s3cret") as address:
        page = visit(address)
        for token in ("wrong", "s3cret"):
            expect(page.get_by_role("dialog")).to_be_visible()
            page.get_by_label("Token", exact=True).fill(token)
            page.keyboard.press("Enter")
        settle(page)
        expect(page.locator("#samples img[src]")).to_have_count(6)


def test_models_are_chosen_and_tell_what_they_were_taught(visit, trained):
    own = [generated(trained.model.recipe.data)[3]._replace(title="mine", about="my own", names=("blue ring",))]
    others = {"second": lambda: ServedModel("second", trained, own)}
    with serving(trained, name="first", others=others) as address:
        page = visit(address)
        settle(page)
        page.locator("#model").select_option("second")
        expect(page.locator("#status")).to_contain_text("mine: ")
        expect(page.locator("#samples button")).to_have_text(["my own"])
        expect(page.locator("#chips .name")).to_have_text(["blue ring"])
        page.get_by_text("About the model").click()
        expect(page.locator("#taught")).to_contain_text("red circle")
        upload(page, picture(), words="red circle")
        page.locator("#model").select_option("first")
        expect(page.locator("#samples button")).to_have_count(6)
        settle(page)
        expect(page.locator("#chips .name")).to_have_text(["red circle"])
