import asyncio
import io
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from contextlib import contextmanager
from dataclasses import replace

import httpx2 as httpx
import numpy as np
import pytest
import schemathesis
import torch
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from joem import Segmenter, cli, decision, engine
from joem.data.scenes import Scenes
from joem.engine.model import Model
from joem.errors import BadUsage, JoemError
from joem.segmenter import Scene
from joem.web import Limits, create_app, pictures
from joem.web.cache import SceneCache
from joem.web.guard import Answer, Door, Guard
from joem.web.metrics import Metrics
from joem.web.problems import Refusal
from joem.web.samples import for_model, from_folder, generated, photos
from joem.web.server import _listen
from joem.web.service import Service
from joem.web.work import Workers

NAMES = ["background", "red circle", "blue ring", "brown horse"]
HERE = "http://localhost"
KINDS = {"png": "PNG", "jpeg": "JPEG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP"}


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    torch.manual_seed(0)
    return Segmenter(Model.create(shared_tiny, engine.open_problem(shared_tiny.data).vocabulary))


@pytest.fixture
def client(segmenter):
    with connect(segmenter) as client:
        yield client


@contextmanager
def connect(segmenter, token=None, **limits):
    app = create_app(segmenter, Limits(**limits), token, generated(segmenter.model.recipe.data))
    with TestClient(app, HERE, raise_server_exceptions=False) as client:
        yield client


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
    planes = [np.frombuffer(content, "<f4", pixels, start + 4 * pixels * i) for i in range(3)]
    planes += [np.frombuffer(content, "u1", pixels, start + 12 * pixels + pixels * i) for i in range(2)]
    assert len(content) == start + 14 * pixels
    return header, planes


# ---- answers


@pytest.mark.parametrize("rule", list(decision.RULES))
def test_labels_are_those_that_python_gives(client, segmenter, rule):
    image = scene_image(size=96).crop((0, 0, 90, 61))
    wish = {"rule": rule, "sigma": 0.93, "gamma": 0.05}
    expected = segmenter.encode(image).segment(NAMES, **wish)
    at = encode(client, image)
    with Image.open(io.BytesIO(client.post(f"{at}/mask", json={"names": NAMES, **wish}).content)) as mask:
        assert np.array_equal(np.asarray(mask), expected.labels.numpy())
        assert mask.getpalette()[:12] == [channel for colour in expected.colours for channel in colour]
    told = client.post(f"{at}/segment", json={"names": NAMES, **wish}).json()
    assert told == {**expected.to_dict(), "colours": [list(colour) for colour in expected.colours]}
    overlay = client.post(f"{at}/overlay", json={"names": NAMES, **wish})
    assert overlay.headers["content-type"] == "image/png"
    assert overlay.content == as_file(expected.overlay())


def test_names_and_rule_are_the_models_unless_given(client, segmenter):
    expected = segmenter.encode(scene_image()).segment()
    assert client.post(f"{encode(client)}/segment", json={}).json()["areas"] == expected.areas()


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read(client, segmenter, kind):
    body = as_file(scene_image(), KINDS[kind])
    at = f"/api/scenes/{send(client, body, f'image/{kind}').json()['scene']}"
    expected = segmenter.encode(Image.open(io.BytesIO(body))).segment(NAMES)
    assert client.post(f"{at}/segment", json={"names": NAMES}).json()["areas"] == expected.areas()


def test_a_turned_photo_is_set_upright(client):
    exif = Image.Exif()
    exif[0x0112] = 6
    body = as_file(scene_image().crop((0, 0, 64, 40)), "JPEG", exif=exif)
    answer = send(client, body, "image/jpeg").json()
    assert (answer["width"], answer["height"]) == (40, 64)


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (130, 2)])
def test_odd_sizes(client, size):
    at = encode(client, Image.new("RGB", size, (200, 30, 30)))
    header, _ = unpack(client.post(f"{at}/ranking", json={"names": NAMES}).content)
    assert (header["width"], header["height"]) == size


def test_the_ranking_decides_as_the_service_does(client, segmenter):
    at = encode(client)
    header, (seen_distance, second, unseen_distance, seen, unseen) = unpack(
        client.post(f"{at}/ranking", json={"names": NAMES}).content
    )
    assert header["names"] == NAMES
    assert header["unseen"] == ["blue ring", "brown horse"]
    assert header["colours"][0] == [60, 60, 60]
    scene = segmenter.encode(scene_image())
    for sigma in np.linspace(0.5, 1, 40):
        taken = (unseen_distance < second) & (seen_distance > np.float32(sigma) * unseen_distance)
        expected = scene.segment(NAMES, "ac", sigma=float(sigma)).labels.numpy().ravel()
        assert np.array_equal(np.where(taken, unseen, seen), expected)
    for gamma in np.linspace(0, 0.5, 40):
        taken = unseen_distance - np.float32(gamma) < seen_distance
        expected = scene.segment(NAMES, "cs", gamma=float(gamma)).labels.numpy().ravel()
        assert np.array_equal(np.where(taken, unseen, seen), expected)


@pytest.mark.parametrize(
    ("names", "missing"),
    [(["background", "red circle"], {"unseen"}), (["cow"], {"seen", "second"}), (["red circle", "cow"], {"second"})],
)
def test_a_ranking_without_some_kind_of_class(client, names, missing):
    _, (seen_distance, second, unseen_distance, seen, unseen) = unpack(
        client.post(f"{encode(client)}/ranking", json={"names": names}).content
    )
    assert np.isinf(seen_distance).all() == (seen == 255).all() == ("seen" in missing)
    assert np.isinf(second).all() == ("second" in missing)
    assert np.isinf(unseen_distance).all() == (unseen == 255).all() == ("unseen" in missing)


def test_a_pixel_is_explained(client, segmenter):
    scene = segmenter.encode(scene_image())
    distances, labels = scene.distances(NAMES), scene.segment(NAMES).labels
    at = encode(client)
    for x, y in ((0, 0), (63, 63), (20, 33)):
        found = client.post(f"{at}/explain", json={"names": NAMES, "x": x, "y": y}).json()
        (first, second), places = (part.tolist() for part in distances[:, y, x].topk(2, largest=False))
        assert [found[which]["name"] for which in ("first", "second")] == [NAMES[place] for place in places]
        assert [found[which]["trained"] for which in ("first", "second")] == [place < 2 for place in places]
        assert found["ratio"] == pytest.approx(first / second, rel=1e-4)
        assert found["winners"]["ac"] == NAMES[labels[y, x]]
    assert client.post(f"{at}/explain", json={"names": ["cow"], "x": 0, "y": 0}).json()["second"] is None
    outside = client.post(f"{at}/explain", json={"x": 64, "y": 0})
    assert outside.status_code == 422
    assert "64" in outside.json()["message"]


def test_a_picture_is_encoded_once(client, segmenter, monkeypatch):
    encode(client)
    monkeypatch.setattr(type(segmenter.model.method), "features", lambda *_: pytest.fail("encoded again"))
    at = encode(client)
    for rule in decision.RULES:
        assert client.post(f"{at}/segment", json={"names": ["purple cow", "sky"], "rule": rule}).status_code == 200


def test_what_the_model_knows(client, segmenter):
    model = client.get("/api/model").json()
    assert model["names"] == list(segmenter.vocabulary.names)
    assert model["trained"] == list(segmenter.vocabulary.seen)
    assert model["decision"]["rule"] == "ac"
    assert model["limits"]["pixels"] == Limits().pixels


# ---- refusals


def huge_png(width, height):
    """A PNG file that promises many pixels and holds few bytes."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = struct.pack(">I", 1000) + b"IDAT" + bytes(40)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + data


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b"no picture", "image/png", 415, "no picture of a known kind"),
        (b"", "image/png", 415, "0 bytes"),
        (b"x", "text/plain", 415, "send the picture itself"),
        (as_file(scene_image())[:900], "image/png", 400, "damaged"),
        (as_file(scene_image(), "TIFF"), "image/png", 415, "JPEG, PNG"),
        (as_file(Image.new("L", (2001, 1000))), "image/png", 413, "2001 x 1000"),
        (huge_png(12_000, 12_000), "image/png", 413, "12000 x 12000"),
        (huge_png(60_000, 60_000), "image/png", 413, "far more"),
        (b"x" * 10_000_001, "image/png", 413, "10,000,000 bytes"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_pictures_that_are_refused(client, segmenter, monkeypatch, body, kind, status, message):
    monkeypatch.setattr(segmenter, "encode", lambda _: pytest.fail("encoded"))
    answer = send(client, body, kind)
    assert answer.status_code == status
    assert message in answer.json()["message"]


def test_a_body_of_unknown_length_is_bounded_too(client):
    answer = send(client, (b"x" * 1_000_000 for _ in range(20)))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("wish", "status", "message"),
    [
        (b"{", 400, "not JSON in UTF-8"),
        (b'{"names": ["caf\xe9"]}', 400, "not JSON in UTF-8"),
        (b'{"names": ["caf\\udce9"]}', 422, "readable text"),
        (b"[]", 422, "body"),
        ({"names": []}, 422, "at least 1 item"),
        ({"names": ["cow", "cow"]}, 422, "these repeat: cow"),
        ({"names": ["cow", " "]}, 422, "must hold a word"),
        ({"names": ["x" * 81]}, 422, "longer than the 80"),
        ({"names": [f"word {i}" for i in range(256)]}, 422, "at most 255 items"),
        ({"names": ["|".join(f"{i}{j}" for j in "abcdefghij") for i in range(26)]}, 422, "260 class names"),
        ({"names": ["|"]}, 422, "must hold a word"),
        ({"rule": "no"}, 422, "rule"),
        ({"sigma": 0}, 422, "sigma"),
        ({"gamma": -1}, 422, "gamma"),
        ({"path": "/etc/passwd"}, 422, "path"),
        ({"rule": 1, "sigma": 7, "gamma": -1, "names": [1]}, 422, "And 1 more."),
        (b"{}" + b" " * 200_000, 413, "200,000 bytes"),
    ],
)
def test_wishes_that_are_refused(client, wish, status, message):
    at = encode(client)
    headers = {"Content-Type": "application/json"}
    answer = client.post(
        f"{at}/segment", **({"content": wish, "headers": headers} if isinstance(wish, bytes) else {"json": wish})
    )
    assert answer.status_code == status, answer.text
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"names": [1] * 60_000}, "names"),
        ({str(i): 1 for i in range(15_000)}, "15000 keys, there are only names, rule, sigma, gamma"),
        ({"k" * 190_000: 1}, "k" * 40 + ": "),
    ],
)
def test_many_mistakes_have_a_short_answer(client, wish, message):
    answer = client.post(f"{encode(client)}/segment", json=wish)
    assert answer.status_code == 422
    assert message in answer.json()["message"]
    assert len(answer.content) < 200


def test_an_unknown_word_is_named_with_words_like_it(client):
    answer = client.post(f"{encode(client)}/ranking", json={"names": ["background", "red elephannt"]})
    assert answer.status_code == 422
    assert answer.json()["word"] == "elephannt"
    assert "elephant" in answer.json()["near"]
    assert "'elephannt'" in answer.json()["message"]


def test_unknown_scenes_routes_and_methods(client):
    answer = client.post("/api/scenes/0000/segment", json={})
    assert answer.status_code == 404
    assert "send the picture again" in answer.json()["message"]
    assert client.get("/api/samples/99").json() == {"message": "There are 6 samples, counted from 0."}
    for path in ("/nothing", "/page/../app.py", "/page/%2e%2e/app.py"):
        missing = client.get(path)
        assert missing.status_code == 404
        assert "nothing at this address" in missing.json()["message"]
    assert client.delete("/api/model").status_code == 405
    assert "does not take this method" in client.delete("/api/model").json()["message"]
    assert client.delete("/api/model").headers["allow"] == "GET"


def test_a_failure_inside_is_told_without_details(client, segmenter, monkeypatch):
    monkeypatch.setattr(segmenter, "encode", lambda _: 1 / 0)
    answer = send(client, as_file(scene_image()))
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["message"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'route="/api/scenes",status="500"' in client.get("/metrics").text


# ---- concurrent work and time


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


def test_health_answers_while_it_works(segmenter, monkeypatch):
    with connect(segmenter, workers=1) as client, slow(segmenter, monkeypatch) as go:
        thread, found = later(send, client, as_file(scene_image()))
        wait_until_inside(client, 1)
        assert client.get("/health").json() == {"status": "ok"}
        assert not found
        go.set()
        thread.join()
        assert found[0].status_code == 200
        wait_until_inside(client, 0)


@pytest.mark.parametrize(("limits", "status"), [({"per_client": 2}, 429), ({"queue": 2}, 503)])
def test_too_much_at_once_is_refused(segmenter, monkeypatch, limits, status):
    with connect(segmenter, workers=1, **limits) as client, slow(segmenter, monkeypatch) as go:
        under_way = [later(send, client, as_file(scene_image(i))) for i in range(2)]
        wait_until_inside(client, 2)
        refused = send(client, as_file(scene_image(2)))
        assert refused.status_code == status
        assert refused.headers["retry-after"] == "1"
        assert "under way" in refused.json()["message"]
        go.set()
        for thread, found in under_way:
            thread.join()
            assert found[0].status_code == 200


def test_work_that_takes_too_long(segmenter, monkeypatch):
    begun, read = [], pictures.read_picture
    monkeypatch.setattr("joem.web.service.read_picture", lambda *given: begun.append(1) or read(*given))
    with connect(segmenter, workers=1, seconds=0.2) as client, slow(segmenter, monkeypatch) as go:
        for thread, found in [later(send, client, as_file(scene_image(i))) for i in range(2)]:
            thread.join()
            assert found[0].status_code == 504
            assert "0.2 s" in found[0].json()["message"]
        go.set()
        assert send(client, as_file(scene_image(2))).status_code == 200
    assert len(begun) == 2  # what still waited when its time was over was dropped


def test_a_body_that_comes_too_slowly():
    async def drip():
        await asyncio.sleep(5)

    async def app(scope, receive, send):
        with pytest.raises(Refusal) as refusal:
            await receive()
        assert refusal.value.status_code == 408

    limits = Limits(seconds=0.05)
    guard = Guard(app, Door(limits), limits, Metrics())
    scope = {"type": "http", "method": "POST", "path": "/api/scenes", "headers": [(b"host", b"localhost")]}
    asyncio.run(guard(scope, drip, None))


def test_an_answer_goes_in_pieces():
    sent, content = [], bytes(range(256)) * 2500

    async def send(message):
        sent.append(message)

    asyncio.run(Answer(send, 1)({"type": "http.response.body", "body": content}))
    assert b"".join(message["body"] for message in sent) == content
    assert max(len(message["body"]) for message in sent) == 256 * 1024
    assert [message.get("more_body", False) for message in sent] == [True, True, True, False]


@contextmanager
def listening(app, seconds):
    """The app on a real socket."""
    listener = _listen("127.0.0.1", 0, seconds)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield server, listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux lets go of closed connections")
def test_a_client_that_never_reads_counts_and_is_dropped(segmenter, monkeypatch):
    monkeypatch.setattr(Service, "ranking", lambda *_: bytes(28_000_000))
    app = create_app(segmenter, Limits(seconds=2))
    with listening(app, 2) as (server, address), httpx.Client(base_url=f"http://127.0.0.1:{address[1]}") as client:
        headers = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2"
        request = f"POST {encode(client)}/ranking HTTP/1.1\r\n{headers}\r\n\r\n{{}}"
        with socket.create_connection(address) as silent:
            silent.sendall(request.encode())
            wait_until_inside(client, 1)
            wait_until_inside(client, 0)
            client.close()
            for _ in range(2000):
                if not server.server_state.connections:
                    break
                threading.Event().wait(0.005)
            assert not server.server_state.connections


def test_closing_finishes_what_runs_and_drops_what_waits():
    workers, started, go, done = Workers(Limits(workers=1)), threading.Event(), threading.Event(), []

    def work():
        started.set()
        go.wait(10)
        done.append(1)

    async def main():
        running, waiting = (asyncio.ensure_future(workers.run(work)) for _ in range(2))
        await asyncio.to_thread(started.wait, 10)
        threading.Timer(0.1, go.set).start()
        await asyncio.to_thread(workers.close)
        await asyncio.wait([running, waiting])
        assert waiting.cancelled()

    asyncio.run(main())
    assert done == [1]


def a_scene(numbers):
    return Scene(None, torch.zeros(0, dtype=torch.uint8), torch.zeros(numbers))


def test_the_cache_keeps_what_was_used_last_within_its_bytes():
    cache = SceneCache(1000)
    for key in "abc":
        cache.put(key, a_scene(80))
    cache.get("a")
    cache.put("d", a_scene(80))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    assert cache.bytes == 960
    cache.put("d", a_scene(80))
    assert cache.bytes == 960
    cache.put("e", a_scene(500))  # larger than all room there is: kept, alone
    assert (len(cache), cache.bytes) == (1, 2000)
    cache.put("f", a_scene(10))
    assert (len(cache), cache.bytes) == (1, 40)


def test_a_scene_that_was_let_go_can_be_sent_again(segmenter):
    with connect(segmenter, cache_bytes=1) as client:
        first = encode(client, scene_image(0))
        encode(client, scene_image(1))
        assert client.post(f"{first}/segment", json={}).status_code == 404
        assert encode(client, scene_image(0)) == first
        assert client.post(f"{first}/segment", json={}).status_code == 200


# ---- who may ask, and what is told


def test_a_token_is_asked_for(segmenter):
    with connect(segmenter, token="s3cret") as client:
        for path in ("/api/model", "/api/samples/0", "/metrics"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
                refused = client.get(path, headers=headers)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
            assert client.get(path, headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert send(client, b"").status_code == 401
        for path in ("/", "/health", "/page/main.js", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert "HTTPBearer" in client.get("/openapi.json").json()["components"]["securitySchemes"]


def test_headers_keep_other_sites_out(client):
    for path in ("/", "/api/model", "/page/main.js", "/nothing"):
        answer = client.get(path, headers={"Origin": "http://elsewhere.example"})
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8000", 200),
        ("192.168.1.5:8000", 200),
        ("joem.lan:8000", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("[localhost]", 421),
        ("", 421),
    ],
)
def test_only_its_own_names_are_answered(segmenter, host, status):
    client = TestClient(create_app(segmenter, hosts=["Joem.lan"]))
    for path in ("/", "/health", "/api/model"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == status
        assert answer.headers["x-content-type-options"] == "nosniff"
    refused = client.post("/api/scenes", headers={"Host": "evil.example"})
    assert "'evil.example': start it with --allowed-hosts" in refused.json()["message"]


def test_the_page_needs_nothing_from_elsewhere(client):
    for path in ("/", "/page/main.js", "/page/style.css", "/page/stage.js", "/page/service.js"):
        text = client.get(path).text
        assert "http://" not in text
        assert "https://" not in text


def test_metrics(client):
    at = encode(client)
    encode(client)
    client.post(f"{at}/segment", json={"sigma": 7})
    client.request("MADEUP", "/made/up")
    text = client.get("/metrics").text
    assert 'joem_scenes_total{how="encoded"} 1.0' in text
    assert 'joem_scenes_total{how="kept"} 1.0' in text
    assert 'joem_request_seconds_count{method="POST",route="/api/scenes/{key}/segment",status="422"} 1.0' in text
    assert "joem_cache_scenes 1.0" in text
    assert "made" not in text.lower()


def test_samples(client, tmp_path):
    listed = client.get("/api/samples").json()
    assert len(listed) == 6
    assert all("striped blue circle" in one["title"] for one in listed)
    assert Image.open(io.BytesIO(client.get(listed[2]["url"]).content)).size == (64, 64)
    (tmp_path / "cow.jpg").write_bytes(as_file(scene_image(), "JPEG"))
    assert [(one.title, one.media_type) for one in from_folder(tmp_path, 5000)] == [("cow", "image/jpeg")]
    with pytest.raises(JoemError, match=r"cow\.jpg cannot be a sample.*64 x 64"):
        from_folder(tmp_path, 50)
    with pytest.raises(JoemError, match="no sample pictures"):
        from_folder(tmp_path / "none", 50)


def test_models_of_photos_are_shown_with_photos(segmenter):
    drawn, shown = for_model(segmenter), photos(segmenter)
    assert [one.names for one in drawn] == [None] * 6
    assert shown[0][:2] == ("photographer", "image/jpeg")
    assert shown[0].names == ("background", "person", "tripod")
    model = segmenter.model
    of_photos = replace(model, recipe=replace(model.recipe, data=replace(model.recipe.data, kind="voc")))
    assert for_model(Segmenter(of_photos)) == shown
    with TestClient(create_app(segmenter, samples=shown), HERE) as client:
        listed = client.get("/api/samples").json()
        for one in listed:
            sent = send(client, client.get(one["url"]).content, "image/jpeg")
            answer = client.post(f"/api/scenes/{sent.json()['scene']}/segment", json={"names": one["names"]})
            assert answer.json()["names"] == one["names"]
    without_vectors = Segmenter(replace(model, missing="The file is gone."))
    assert [one.names for one in photos(without_vectors)] == [None] * len(listed)


def test_limits_are_checked():
    with pytest.raises(BadUsage, match=r"limits\.workers must be more than 0, got 0"):
        Limits(workers=0)
    with pytest.raises(BadUsage, match="255 at most, got 256"):
        Limits(classes=256)


# ---- the command


def test_serve_and_stop(segmenter, tmp_path):
    segmenter.save(tmp_path / "model")
    (tmp_path / "token").write_text("s3cret\n")
    words = [
        "--model",
        tmp_path / "model",
        "--port",
        "0",
        "--token-file",
        tmp_path / "token",
        "--limits.pixels",
        "4096",
        "--limits.connections",
        "2",
        "--allowed-hosts",
        "joem.lan",
        "joem.example",
    ]
    command = [sys.executable, "-m", "joem", "serve", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            told = process.stdout.readline()
            assert told.startswith("joem is at http://127.0.0.1:"), process.stderr.read()
            with httpx.Client(base_url=told.split()[3], headers={"Authorization": "Bearer s3cret"}) as client:
                assert client.get("/api/model").json()["limits"]["pixels"] == 4096
                assert "server" not in client.get("/health").headers
                statuses = {"joem.lan": 200, "joem.example:80": 200, "evil.example": 421}
                assert {host: client.get("/", headers={"Host": host}).status_code for host in statuses} == statuses
                assert encode(client)
                address = (client.base_url.host, client.base_url.port)
                with socket.create_connection(address), socket.create_connection(address):
                    assert httpx.get(f"{client.base_url}/health").status_code == 503
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read().split() == ["WARNING:", "Exceeded", "concurrency", "limit."]


def test_bad_ways_to_serve(segmenter, tmp_path, capsys, monkeypatch):
    segmenter.save(tmp_path / "model")
    words = ["serve", "--model", str(tmp_path / "model")]
    assert cli.main([*words, "--limits.workers", "0"]) == 2
    assert "limits.workers must be more than 0" in capsys.readouterr().err
    assert cli.main([*words, "--port", "70000"]) == 1
    assert "Cannot listen on 127.0.0.1, port 70000" in capsys.readouterr().err
    assert cli.main([*words, "--token-file", str(tmp_path / "none")]) == 1
    assert "Cannot read the token file" in capsys.readouterr().err
    (tmp_path / "empty").write_text(" \n")
    assert cli.main([*words, "--token-file", str(tmp_path / "empty")]) == 2
    assert "is empty" in capsys.readouterr().err
    for module in ("joem.web.app", "joem.web.server"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(words) == 1
    assert 'pip install "joem[serve]"' in capsys.readouterr().err


# ---- the OpenAPI description

for name, kind in KINDS.items():
    schemathesis.openapi.media_type(
        f"image/{name}", st.integers(0, 3).map(scene_image).map(lambda image, kind=kind: as_file(image, kind))
    )


CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_the_description_is_true(segmenter, mode):
    hosts = ["testserver"]  # what schemathesis takes for the name of an app
    app = create_app(segmenter, samples=generated(segmenter.model.recipe.data), hosts=hosts)
    with TestClient(app, HERE) as client:
        # A scene that exists among those asked for, or there would be little but 404s.
        key = send(client, as_file(scene_image())).json()["scene"]
        for path in app.openapi()["paths"].values():
            for parameter in path.get("post", {}).get("parameters", []):
                parameter["schema"]["enum"] = [key, key, key, "unknown"]
        statuses = set()
        for found in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
            operation = found.ok()
            if mode is schemathesis.GenerationMode.NEGATIVE and not operation.path.startswith("/api/scenes/"):
                continue  # nothing to get wrong in what is sent

            @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                statuses.add(case.call_and_validate(checks=CHECKS).status_code)

            check()
        assert statuses >= ({200, 422} if mode is schemathesis.GenerationMode.POSITIVE else {422})
