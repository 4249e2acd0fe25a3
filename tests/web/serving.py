"""A service on a small untrained model, and how tests ask it."""

import io
import json
import struct
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image

from joem import Segmenter, engine
from joem.data.scenes import Scenes
from joem.decision import Score
from joem.model import Model
from joem.web import Limits, create_app
from joem.web.gallery import generated
from joem.web.server import configure, listen

NAMES = ["background", "red circle", "blue ring", "brown horse"]
HERE = "http://localhost"
KINDS = {"png": "PNG", "jpeg": "JPEG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF"}


def untrained(recipe) -> Segmenter:
    torch.manual_seed(0)
    return Segmenter(Model.create(recipe, engine.open_problem(recipe.data).vocabulary))


def scored(recipe) -> Segmenter:
    """An untrained model that has a score."""
    score = Score((0.5, -1.0, 4.0), (0.1, -1.5, 3.0))
    return untrained(replace(recipe, decision=replace(recipe.decision, score=score)))


@contextmanager
def connect(segmenter, token=None, **limits):
    app = create_app(segmenter, Limits(**limits), token, generated(segmenter.model.recipe.data))
    with TestClient(app, HERE, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(app, limits, proxies=()):
    """The app on a real socket."""
    listener = listen("127.0.0.1", 0, limits.seconds)
    server = uvicorn.Server(configure(app, limits, proxies))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield server, listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def slow(segmenter, monkeypatch):
    """A segmenter that encodes only when told."""
    go, encode = threading.Event(), segmenter.encode
    monkeypatch.setattr(segmenter, "encode", lambda image: go.wait(20) and encode(image))
    try:
        yield go
    finally:
        go.set()


def later(function, *arguments):
    """Call a function in a thread; the list it returns gets the answer."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    return thread, found


def wait_until_inside(client, count):
    for _ in range(2000):
        if f"joem_requests {count:.1f}" in client.get("/metrics").text:
            return
        threading.Event().wait(0.005)
    pytest.fail(f"there never were {count} requests under way")


def scene_image(index=0, size=64):
    return Image.fromarray(Scenes(index + 1, size)[index].image.permute(1, 2, 0).numpy())


def as_file(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def send(client, body, kind="image/png", **options):
    return client.post("/api/scenes", content=body, headers={"Content-Type": kind}, **options)


def encode(client, image=None):
    answer = send(client, as_file(image or scene_image()))
    assert answer.status_code == 200, answer.text
    return f"/api/scenes/{answer.json()['scene']}"


def unpack(content):
    """The description of the form in docs/serve.md, in numpy."""
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    pixels, start = header["width"] * header["height"], 4 + length
    planes = [np.frombuffer(content, "<f4", pixels, start + 4 * pixels * i) for i in range(4)]
    planes += [np.frombuffer(content, "u1", pixels, start + 16 * pixels + pixels * i) for i in range(2)]
    assert len(content) == start + 18 * pixels
    return header, planes
