"""Who may ask, what is told of the service, its samples and the command that starts it."""

import io
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import HERE, as_file, connect, encode, scene_image, send, untrained

from joem import Segmenter, cli
from joem.errors import BadUsage, JoemError
from joem.web import Limits, create_app
from joem.web.gallery import for_model, from_folder, photos


@pytest.fixture(scope="module")
def segmenter(shared_tiny) -> Segmenter:
    return untrained(shared_tiny)


@pytest.fixture
def client(segmenter):
    with connect(segmenter) as client:
        yield client


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


@pytest.mark.parametrize("token", ["", "pässwort", "two words", "new\nline"])
def test_a_token_that_headers_cannot_carry(segmenter, token):
    with pytest.raises(BadUsage, match="one word of ASCII"):
        create_app(segmenter, token=token)


def test_no_header_is_too_odd_to_be_refused(segmenter):
    with connect(segmenter, token="s3cret") as client:
        for sent in (b"Bearer s\xc3\xa93cret", b"Bearer \xff", b"Bearer", b"", b"bearer s3cret2"):
            assert client.get("/api/model", headers={"Authorization": sent}).status_code == 401
        assert client.get("/api/model", headers={"Authorization": "bearer s3cret"}).status_code == 200


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
    (tmp_path / "cow.jpg").rename(tmp_path / "a.jpg")
    (tmp_path / "b.tif").write_bytes(as_file(scene_image(), "TIFF"))  # which browsers do not show
    scan = from_folder(tmp_path, 5000)[1]
    assert (scan.title, scan.media_type) == ("b", "image/png")
    assert list(Image.open(io.BytesIO(scan.content)).get_flattened_data()) == list(scene_image().get_flattened_data())
    with pytest.raises(JoemError, match="no sample pictures"):
        from_folder(tmp_path / "none", 50)


def test_models_of_photos_are_shown_with_photos(segmenter):
    drawn, shown = for_model(segmenter), photos(segmenter)
    assert [", ".join(one.names) for one in drawn] == [one.title for one in drawn]
    assert shown[0][:2] == ("photographer", "image/jpeg")
    assert shown[0].names == ("man", "sky", "building", "tripod")
    model = segmenter.model
    of_photos = replace(model, recipe=replace(model.recipe, data=replace(model.recipe.data, kind="voc")))
    assert for_model(Segmenter(of_photos)) == shown
    with TestClient(create_app(segmenter, samples=shown), HERE) as client:
        listed = client.get("/api/samples").json()
        for one in listed:
            sent = send(client, client.get(one["url"]).content, "image/jpeg")
            answer = client.post(f"/api/scenes/{sent.json()['scene']}/segment", json={"names": one["names"]})
            assert answer.json()["names"] == [*one["names"], "background"]
    without_vectors = Segmenter(replace(model, missing="The file is gone."))
    assert [one.names for one in photos(without_vectors)] == [None] * len(listed)


def test_limits_are_checked():
    with pytest.raises(BadUsage, match=r"limits\.workers must be more than 0, got 0"):
        Limits(workers=0)
    with pytest.raises(BadUsage, match="255 at most, got 256"):
        Limits(classes=256)
    for seconds in (1e9, float("inf")):
        with pytest.raises(BadUsage, match=r"limits\.seconds can be 86400 \(a day\) at most"):
            Limits(seconds=seconds)
    with pytest.raises(BadUsage, match=r"limits\.header_seconds must be more than 0"):
        Limits(header_seconds=float("nan"))


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
        "--trusted-proxies",
        "10.0.0.1",
        "10.1.0.0/16",
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
                    assert httpx.get(f"{client.base_url}/health").status_code == 429
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert process.stderr.read() == ""


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
    (tmp_path / "accents").write_text("pässwort\n", encoding="utf-8")
    assert cli.main([*words, "--token-file", str(tmp_path / "accents")]) == 2
    assert "one word of ASCII" in capsys.readouterr().err
    assert cli.main([*words, "--limits.seconds", "1e9"]) == 2
    assert "a day" in capsys.readouterr().err
    assert cli.main([*words, "--trusted-proxies", "*"]) == 2
    assert "IP addresses or networks" in capsys.readouterr().err
    for module in ("joem.web.app", "joem.web.server"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(words) == 1
    assert 'pip install "joem[serve]"' in capsys.readouterr().err
