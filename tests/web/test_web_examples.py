"""Classes by points and examples over REST: the same labels as in Python, and clear refusals."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from serving import as_file, connect, scene_image, scored, send

NAMES = ["background", "red circle", "brown horse"]


@pytest.fixture(scope="module")
def segmenter(shared_tiny):
    return scored(shared_tiny)


@pytest.fixture
def client(segmenter):
    with connect(segmenter) as client:
        yield client


def labels(answer) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    return np.asarray(Image.open(io.BytesIO(answer.content)))


def mask_file(size) -> str:
    marked = np.zeros(size, np.uint8)
    marked[10:30, 5:25] = 1
    return base64.b64encode(as_file(Image.fromarray(marked))).decode()


def test_points_and_a_least_score_give_the_labels_of_python(client, segmenter):
    picture = scene_image()
    key = send(client, as_file(picture)).json()["scene"]
    points, options = {"zzq": [(5, 6), (40, 40, False)]}, {"min_score": 0.3, "rule": "nn"}
    answer = client.post(f"/api/scenes/{key}/mask", json={"names": NAMES, "points": points, **options})
    expected = segmenter(picture, NAMES, points=points, **options)
    assert expected.names[-1] == "other"
    assert np.array_equal(labels(answer), expected.labels.numpy())
    found = client.post(f"/api/scenes/{key}/segment", json={"names": NAMES, "points": points, **options}).json()
    assert found["names"] == list(expected.names)
    assert found["scores"] == pytest.approx(expected.class_scores(), nan_ok=True)


def test_an_example_on_another_picture_is_one_here(client, segmenter):
    first, second = scene_image(0), scene_image(1)
    keys = [send(client, as_file(picture)).json()["scene"] for picture in (first, second)]
    shown = {"zzq": [{"scene": keys[0], "mask": mask_file(first.size[::-1])}, {"scene": keys[0], "points": [[50, 50]]}]}
    answer = client.post(f"/api/scenes/{keys[1]}/mask", json={"names": NAMES, "examples": shown})
    marked = np.zeros(first.size[::-1], bool)
    marked[10:30, 5:25] = True
    taught = segmenter.with_examples("zzq", [(first, marked), (first, [(50, 50)])])
    assert np.array_equal(labels(answer), taught(second, [*NAMES, "zzq"]).labels.numpy())


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"points": {"zzq": [[900, 1]]}}, 422, "columns"),
        ({"points": {"zzq": []}}, 422, "points"),
        ({"points": {"zzq": [[1]]}}, 422, "points"),
        ({"examples": {"zzq": [{"scene": "0" * 64, "points": [[1, 1]]}]}}, 404, "not kept"),
        ({"examples": {"zzq": [{"scene": "KEY", "mask": "no base64!"}]}}, 422, "base64"),
        ({"examples": {"zzq": [{"scene": "KEY", "mask": "AAAA"}]}}, 415, "no picture"),
        ({"examples": {"zzq": [{"scene": "KEY"}]}}, 422, "mask or points"),
        ({"min_score": 2}, 422, "min_score"),
    ],
)
def test_bad_examples_are_refused(client, sent, status, said):
    key = send(client, as_file(scene_image())).json()["scene"]
    for listed in sent.get("examples", {}).values():
        for example in listed:
            example["scene"] = key if example["scene"] == "KEY" else example["scene"]
    answer = client.post(f"/api/scenes/{key}/segment", json=sent)
    assert answer.status_code == status, answer.text
    assert said in answer.text


def test_the_ranking_and_the_explanation_know_points(client, segmenter):
    picture = scene_image()
    key = send(client, as_file(picture)).json()["scene"]
    sent = {"names": NAMES, "points": {"zzq": [[5, 6]]}}
    assert client.post(f"/api/scenes/{key}/ranking", json=sent).status_code == 200
    told = client.post(f"/api/scenes/{key}/explain", json={**sent, "x": 5, "y": 6}).json()
    own = segmenter.encode(picture).explain(5, 6, [*NAMES, "zzq"], points={"zzq": [(5, 6)]})
    assert told["winners"] == own.winners
