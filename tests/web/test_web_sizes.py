"""Answers for the page: masks and COCO at another size, scores in rankings, TIFF as PNG, several models."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from serving import HERE, as_file, connect, encode, scene_image, scored, send, unpack, untrained

from joem.errors import JoemError
from joem.scene import Scene
from joem.segmenter import Segmenter
from joem.web import Limits, create_app
from joem.web.gallery import from_folder, generated, own_samples
from joem.web.models import ServedModel, find_models

NAMES = ["red circle", "brown horse"]
SIZE = {"width": 150, "height": 130}


@pytest.fixture(scope="module")
def segmenter(shared_tiny):
    return scored(shared_tiny)


@pytest.fixture
def client(segmenter):
    with connect(segmenter, mask_pixels=20_000) as client:
        yield client


def enlarged(segmenter, **options):
    scene = segmenter.encode(scene_image())
    return Scene(segmenter, torch.zeros(3, 130, 150, dtype=torch.uint8), scene.features).segment(NAMES, **options)


@pytest.mark.parametrize("options", [{}, {"rule": "cs", "gamma": 0.002}, {"min_score": 0.35}])
def test_a_mask_of_another_size_is_decided_anew(client, segmenter, options):
    answer = client.post(f"{encode(client)}/mask", json={"names": NAMES, **SIZE, **options})
    assert answer.status_code == 200, answer.text
    mask, expected = Image.open(io.BytesIO(answer.content)), enlarged(segmenter, **options)
    assert np.array_equal(np.asarray(mask), expected.labels.numpy())
    assert mask.getpalette()[: 3 * len(expected.names)] == [one for colour in expected.colours for one in colour]


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"width": 200, "height": 101}, 413, "20,000 are allowed"),
        ({"width": 200}, 422, "both width and height"),
        ({"width": 0, "height": 5}, 422, "width"),
        ({**SIZE, "refine": True}, 422, "refine"),
    ],
)
def test_sizes_that_are_refused(client, sent, status, said):
    answer = client.post(f"{encode(client)}/mask", json={"names": NAMES, **sent})
    assert answer.status_code == status
    assert said in answer.text


def test_coco_is_that_of_python_enlarged(client, segmenter):
    key = encode(client)
    own = segmenter.encode(scene_image()).segment(NAMES).to_coco(file_name="a.png")
    found = client.post(f"{key}/coco", json={"names": NAMES, "file_name": "a.png"}).json()
    assert found == json.loads(json.dumps(own))
    found = client.post(f"{key}/coco", json={"names": NAMES, "file_name": "a.png", **SIZE}).json()
    assert found["images"] == [{"id": 1, "width": 150, "height": 130, "file_name": "a.png"}]
    for large, small in zip(found["annotations"], own["annotations"], strict=True):
        assert large["area"] == pytest.approx(small["area"] * 150 * 130 / 64**2)
        assert large["bbox"][2] == pytest.approx(small["bbox"][2] * 150 / 64, abs=0.01)
        for ring, before in zip(large["segmentation"], small["segmentation"], strict=True):
            assert ring[1::2] == pytest.approx([y * 130 / 64 for y in before[1::2]], abs=0.01)


def test_a_ranking_with_scores(client, segmenter):
    key, sent = encode(client), {"names": NAMES, "rule": "ac"}
    plain = unpack(client.post(f"{key}/ranking", json=sent).content)[1]
    content = client.post(f"{key}/ranking", json={**sent, "scores": True}).content
    pixels = 64 * 64
    start = 4 + int.from_bytes(content[:4], "little")
    planes = np.frombuffer(content, "<f4", 6 * pixels, start).reshape(6, -1)
    seen, unseen = np.frombuffer(content, "u1", 2 * pixels, start + 24 * pixels).reshape(2, -1)
    assert all(np.array_equal(one, other) for one, other in zip((*planes[:4], seen, unseen), plain, strict=True))
    result = segmenter.encode(scene_image()).segment(NAMES, "ac", sigma=0.9)
    taken = np.where(planes[3] > np.float32(0.9), planes[5], planes[4])
    assert taken == pytest.approx(result.scores().flatten().numpy(), rel=1e-6)


def test_no_scores_where_nobody_measured_them(shared_tiny):
    with connect(untrained(shared_tiny)) as client:
        answer = client.post(f"{encode(client)}/ranking", json={"names": NAMES, "scores": True})
        assert answer.status_code == 422
        assert "no calibrated score" in answer.text
        assert client.get("/api/model").json()["has_scores"] is False


def test_a_file_that_browsers_cannot_read_becomes_png(client):
    def sent(body, kind="image/tiff"):
        return client.post("/api/pictures", content=body, headers={"Content-Type": kind})

    answer = sent(as_file(scene_image(), "TIFF"))
    assert answer.headers["content-type"] == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), np.asarray(scene_image()))
    assert sent(b"no picture").status_code == 415
    assert sent(b"no picture", "text/plain").status_code == 415
    assert sent(as_file(Image.new("L", (2000, 1001)), "TIFF")).status_code == 413


def test_several_models(segmenter, shared_tiny):
    loaded = []
    torch.manual_seed(1)
    second = Segmenter(replace(segmenter.model))
    shown = generated(shared_tiny.data)[2]._replace(title="mine")

    def load():
        loaded.append(1)
        return ServedModel("second", second, [shown])

    app = create_app(segmenter, Limits(), samples=generated(shared_tiny.data), name="first", others={"second": load})
    with TestClient(app, HERE) as client:
        models = [{"name": "first", "is_default": True}, {"name": "second", "is_default": False}]
        assert client.get("/api/models").json() == models
        assert client.get("/api/model").json()["name"] == "first"
        assert loaded == []
        listed = client.get("/api/samples?model=second").json()
        assert [one["title"] for one in listed] == ["mine"]
        assert client.get(listed[0]["url"]).content == shown.content
        assert client.get("/api/model?model=second").json()["name"] == "second"
        assert loaded == [1], "once"
        assert "first, second" in client.get("/api/model?model=third").json()["message"]
        keys = [
            client.post(
                f"/api/scenes{query}", content=as_file(scene_image()), headers={"Content-Type": "image/png"}
            ).json()["scene"]
            for query in ("", "?model=first", "?model=second")
        ]
        assert keys[0] == keys[1] != keys[2]
        shown_there = {"zzq": [{"scene": keys[2], "points": [[1, 1]]}]}
        answer = client.post(f"/api/scenes/{keys[0]}/segment", json={"examples": shown_there})
        assert answer.status_code == 422
        assert "another model" in answer.text
        assert (
            client.post("/api/scenes?model=third", content=b"", headers={"Content-Type": "image/png"}).status_code
            == 404
        )


def test_what_a_model_was_taught(segmenter):
    with connect(segmenter) as client:
        told = client.get("/api/model").json()
        lines = {one["title"]: one["text"] for one in told["taught"]}
        assert lines["Masks of"] == ", ".join(segmenter.vocabulary.seen)
        assert "scenes" in lines["Pictures"]
        assert told["strongest"]["sigma"] == pytest.approx(0.02)
        assert told["strongest"]["gamma"] > 0
        assert len(told["colours"]) == 255


def test_models_and_their_samples_in_folders(segmenter, tmp_path):
    segmenter.save(tmp_path / "runs" / "a" / "model")
    segmenter.save(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "c.onnx").touch()
    (tmp_path / "runs" / "notes").mkdir()
    assert list(find_models(tmp_path / "runs")) == ["a", "b", "c"]
    with pytest.raises(JoemError, match="no models"):
        find_models(tmp_path / "runs" / "notes")
    folder = tmp_path / "runs" / "a" / "samples"
    assert own_samples(tmp_path / "runs" / "a") is None
    folder.mkdir()
    scene_image().save(folder / "one.png")
    (folder / "one.txt").write_text("red circle, sky\ngrass\n", encoding="utf-8")
    scene_image(1).save(folder / "two.png")
    found = from_folder(own_samples(tmp_path / "runs" / "a"), 10_000)
    assert [(one.title, one.names) for one in found] == [("one", ("red circle", "sky", "grass")), ("two", None)]


def test_the_same_file_is_one_scene(client):
    first = send(client, as_file(scene_image())).json()
    assert send(client, as_file(scene_image())).json() == first
