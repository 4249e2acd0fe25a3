"""A service on a real socket, and what a person does on its page."""

import io
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from joem.data.scenes import Scenes
from joem.web import create_app
from joem.web.gallery import generated

expect.set_options(timeout=30_000)  # a busy machine is slow, and that is no failure

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@contextmanager
def browser_at_hand():
    with sync_playwright() as playwright:
        installed = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        path = installed or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("no Chromium: install Debian's package chromium, or run `playwright install chromium`")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def serving(segmenter, token=None, samples=None, **options):
    """The address of a service."""
    app = create_app(segmenter, None, token, samples or generated(segmenter.model.recipe.data), **options)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def visiting(browser, address):
    """Gives what opens the page; afterwards, no script may have failed and nothing been asked of other machines."""
    contexts, errors = [], []

    def open_page(url=address, hash="", **options):
        context = browser.new_context(**{**DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((url, "blob:")) else errors.append(r.url))
        page.goto(url + hash)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # The browser itself reports refusals (4xx), which some tests provoke.
    assert [error for error in errors if "Failed to load resource" not in error] == []


def settle(page):
    """Wait until what was asked for is shown."""
    expect(page.locator("#stage")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#save-mask")).to_be_enabled()


def picture(size=96) -> Image.Image:
    return Image.fromarray(Scenes(3, size, seed=9)[2].image.permute(1, 2, 0).numpy()).crop((0, 0, size, size - 21))


def as_file(image, name="photo.png", kind="PNG"):
    file = io.BytesIO()
    image.save(file, kind)
    return {"name": name, "mimeType": f"image/{kind.lower()}", "buffer": file.getvalue()}


def upload(page, image, name="photo.png", words=None, kind="PNG"):
    """Choose a photo of one's own, and name what is on it."""
    page.locator("#file").set_input_files(as_file(image, name, kind))
    expect(page.locator("#status")).to_contain_text(f"{name}: ")
    expect(page.locator("#stage")).to_have_attribute("aria-busy", "false")
    if words:
        add(page, words)
        expect(page.locator("#words")).to_have_value("")
        settle(page)


def add(page, words):
    page.get_by_label("What is in the picture?").fill(words)
    page.keyboard.press("Enter")


def position(page, x, y, width, height):
    """Where a pixel of a photo is on the screen, while all of it is shown."""
    box = page.locator("#stage").bounding_box()
    scale = min(box["width"] / width, box["height"] / height)
    left, top = (box["width"] - scale * width) / 2, (box["height"] - scale * height) / 2
    return box["x"] + left + (x + 0.5) * scale, box["y"] + top + (y + 0.5) * scale


def download(page, button) -> bytes:
    with page.expect_download() as found:
        page.get_by_role("button", name=button, exact=True).click()
    return Path(found.value.path()).read_bytes()


def image_of(page, button) -> Image.Image:
    return Image.open(io.BytesIO(download(page, button)))


def open_advanced(page):
    if not page.locator("#rules").is_visible():
        page.get_by_text("Advanced", exact=True).click()


def set_value(page, name, value):
    """Set the parameter of the rule by its number."""
    open_advanced(page)
    page.get_by_role("spinbutton", name=name).fill(str(value))


def chips(page):
    return page.locator("#chips .name, #absent-chips .name").all_inner_texts()
