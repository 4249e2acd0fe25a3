"""What the service refuses, and how it says so."""

import struct
import zlib

import pytest
from PIL import Image
from serving import as_file, connect, encode, scene_image, send, untrained

from joem import Segmenter
from joem.web import schemas


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


@pytest.fixture
def client(segmenter):
    with connect(segmenter) as client:
        yield client


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
        (as_file(scene_image(), "PCX"), "image/png", 415, "JPEG, PNG"),
        (as_file(Image.new("L", (2001, 1000))), "image/png", 413, "2001 x 1000"),
        (huge_png(12_000, 12_000), "image/png", 413, "12000 x 12000"),
        (huge_png(60_000, 60_000), "image/png", 413, "more than"),
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
    ("sent", "status", "message"),
    [
        (b"{", 400, "not JSON in UTF-8"),
        (b'{"names": ["caf\xe9"]}', 400, "not JSON in UTF-8"),
        (b'{"names": ["caf\\udce9"]}', 422, "readable text"),
        (b"[]", 422, "body"),
        ({"names": []}, 422, "at least 1 item"),
        ({"names": ["cow", " "]}, 422, "must hold a word"),
        ({"names": ["x" * 301]}, 422, "longer than the 300"),
        ({"names": [f"word {i}" for i in range(256)]}, 422, "at most 255 items"),
        ({"names": ["|".join(f"{i}{j}" for j in "abcdefghij") for i in range(26)]}, 422, "260 class names"),
        ({"names": ["|"]}, 422, "must hold a word"),
        ({"rule": "no"}, 422, "rule"),
        ({"sigma": 0}, 422, "sigma"),
        ({"gamma": -1}, 422, "gamma"),
        ({"gamma": 1e300}, 422, "gamma"),
        ({"path": "/etc/passwd"}, 422, "path"),
        ({"rule": 1, "sigma": 7, "gamma": -1, "names": [1]}, 422, "And 1 more."),
        (b"{}" + b" " * 200_000, 413, "200,000 bytes"),
    ],
)
def test_requests_that_are_refused(client, sent, status, message):
    at = encode(client)
    headers = {"Content-Type": "application/json"}
    answer = client.post(
        f"{at}/segment", **({"content": sent, "headers": headers} if isinstance(sent, bytes) else {"json": sent})
    )
    assert answer.status_code == status, answer.text
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"names": [1] * 60_000}, "names"),
        (
            {str(i): 1 for i in range(15_000)},
            f"15000 keys, there are only {', '.join(schemas.with_rules(schemas.DecisionRequest).model_fields)}",
        ),
        ({"k" * 190_000: 1}, "k" * 40 + ": "),
    ],
)
def test_many_mistakes_have_a_short_answer(client, sent, message):
    answer = client.post(f"{encode(client)}/segment", json=sent)
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
