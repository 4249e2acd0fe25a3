"""A service on a real socket, and what a person does on its page."""

import io
import threading
import time

import uvicorn
from PIL import Image
from playwright.sync_api import expect

from joem.data.scenes import Scenes
from joem.web import create_app
from joem.web.gallery import generated

expect.set_options(timeout=30_000)  # a busy machine is slow, and that is no failure


def start(segmenter, token=None, samples=None):
    app = create_app(segmenter, token=token, samples=samples or generated(segmenter.model.recipe.data))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return server, thread, f"http://127.0.0.1:{port}/"


def settle(page):
    expect(page.locator("#stage")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#save-mask")).to_be_enabled()


def picture(size=96) -> Image.Image:
    return Image.fromarray(Scenes(3, size, seed=9)[2].image.permute(1, 2, 0).numpy()).crop((0, 0, size, size - 21))


def upload(page, image, name="photo.png"):
    file = io.BytesIO()
    image.save(file, "PNG")
    page.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": file.getvalue()})
    expect(page.locator("#status")).to_contain_text(f"{name}: ")
    settle(page)


def add(page, words):
    page.get_by_label("Add class names").fill(words)
    page.keyboard.press("Enter")


def download(page, button) -> Image.Image:
    with page.expect_download() as found:
        page.get_by_role("button", name=button, exact=True).click()
    assert found.value.suggested_filename == f"{button.lower()}.png"
    return Image.open(found.value.path())


def chips(page):
    return page.locator("#chips .name").all_inner_texts()
