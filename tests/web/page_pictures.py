"""Make the pictures of the page that docs/ shows: `python tests/web/page_pictures.py`, with the model in the box.

`serve.png` is the page as it opens; `page-1.webp` to `page-4.webp` are the walk in docs/serve.md, from a photo of one's
own to a class by a click to the mask that was saved.
"""

import io
from importlib.resources import files
from pathlib import Path

from browsing import add, browser_at_hand, download, position, serving, settle
from PIL import Image
from playwright.sync_api import expect

from joem import Segmenter
from joem.web.gallery import photos

DOCS = Path(__file__).parents[2] / "docs"
SCREEN = {"viewport": {"width": 1180, "height": 760}}
PHOTO = files("joem.web") / "photos" / "astronaut.jpg"
FLAG = (60, 100)


def shot(page, name):
    """Keep what the page shows now."""
    page.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if name.endswith(".png"):
        picture.quantize(224, dither=Image.Dither.NONE).save(DOCS / name, optimize=True)
    else:
        picture.save(DOCS / name, quality=82, method=6)


def walk(page):
    """From a photo to a mask."""
    settle(page)
    page.locator("#samples img[src]").nth(3).wait_for()
    page.mouse.move(5, 5)
    shot(page, "serve.png")
    page.locator("#file").set_input_files({"name": "me.jpg", "mimeType": "image/jpeg", "buffer": PHOTO.read_bytes()})
    expect(page.locator("#status")).to_contain_text("me.jpg: ")
    shot(page, "page-1.webp")
    add(page, "person")
    expect(page.locator("#words")).to_have_value("")
    settle(page)
    page.mouse.click(*position(page, *FLAG, 448, 448))
    page.keyboard.type("flag")
    shot(page, "page-2.webp")
    page.keyboard.press("Enter")
    expect(page.locator("#chips li[data-name='flag'] .area")).to_contain_text("%")
    settle(page)
    shot(page, "page-3.webp")
    mask = Image.open(io.BytesIO(download(page, "Mask")))
    mask.convert("RGB").save(DOCS / "page-4.webp", lossless=True)


def main():
    """Make them all."""
    model = Segmenter.load()
    with serving(model, samples=photos(model)) as address, browser_at_hand() as browser:
        page = browser.new_context(**SCREEN).new_page()
        page.goto(address)
        walk(page)


if __name__ == "__main__":
    main()
