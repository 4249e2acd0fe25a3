"""Several processes that serve one model: any of them answers for any scene."""

import json
import os
import subprocess
import sys

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import HERE, NAMES, as_file, scene_image, send

from joem import cli
from joem.errors import BadUsage
from joem.web import Scale, create_app
from joem.web.shared_pictures import PictureStore


class Together(PictureStore):
    secret = b"one for all"


def test_another_process_answers_for_a_scene_and_nobody_else_can(trained):
    shared = Together(10**6)
    one, other, apart = (
        TestClient(create_app(trained, shared=each), base_url=HERE) for each in (shared, shared, Together(10**6))
    )
    key = send(one, as_file(scene_image())).json()["scene"]
    asked = {"names": NAMES, "rule": "nn"}
    expected = trained.encode(scene_image()).segment(NAMES, "nn")
    for client in (other, one, other):
        for call in ("segment", "ranking", "mask", "overlay", "coco"):
            assert client.post(f"/api/scenes/{key}/{call}", json=asked).status_code == 200
        found = client.post(f"/api/scenes/{key}/segment", json=asked).json()
        assert found["areas"] == pytest.approx(expected.areas())
    assert one.post(f"/api/scenes/{key}/explain", json={"names": NAMES, "x": 1, "y": 2}).status_code == 200
    scenes = [line for line in other.get("/metrics").text.splitlines() if line.startswith("joem_scenes_total")]
    assert any("encoded" in line and line.endswith(" 1.0") for line in scenes)  # once, however often it was asked
    refused = apart.post(f"/api/scenes/{key}/segment", json=asked)
    assert (refused.status_code, "send the picture again" in refused.json()["message"]) == (404, True)


def test_an_example_may_be_on_a_picture_that_another_process_encoded(trained):
    shared = Together(10**6)
    one, other = (TestClient(create_app(trained, shared=shared), base_url=HERE) for _ in range(2))
    first = send(one, as_file(scene_image())).json()["scene"]
    second = send(other, as_file(scene_image().transpose(Image.Transpose.FLIP_LEFT_RIGHT))).json()["scene"]
    examples = {"thing": [{"scene": first, "points": [[3, 4]]}]}
    asked = {"names": ["background"], "examples": examples}
    assert other.post(f"/api/scenes/{second}/segment", json=asked).status_code == 200


def test_scales_that_make_no_sense_are_refused(capsys):
    for given in ({"replicas": 0}, {"replicas": 3, "most": 2}, {"requests": 0.0}, {"gpus": -1.0}):
        with pytest.raises(BadUsage):
            Scale(**given)
    assert Scale(2).options()["num_replicas"] == 2
    between = Scale(1, 4, 3.0, 0.5).options()
    assert between["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 3.0}
    assert between["ray_actor_options"]["num_gpus"] == 0.5
    assert cli.main(["serve", "--scale.replicas", "2"]) == 2
    assert "add --engine ray" in capsys.readouterr().err
    assert cli.main(["serve", "--engine", "ray", "--trusted-proxies", "127.0.0.1"]) == 2


KILLED = """
import json, os, signal, sys, time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen
import ray
from ray import serve
from joem import Segmenter
from joem.web import Limits, Scale
from joem.web.replicas import deploy

model, picture, notes = map(Path, sys.argv[1:])
ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
         object_store_memory=10**8, logging_level="ERROR")

class Noting(Segmenter):
    def encode(self, *given):
        with (notes / "encoded").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        return super().encode(*given)

def load():
    (notes / f"replica-{os.getpid()}").touch()
    return Noting.load(model)

address = deploy(load, Scale(2), port=0, limits=Limits(seconds=60))

def post(path, body, kind):
    for _ in range(100):  # what the killed replica was answering is lost, and asked again
        try:
            with urlopen(Request(address + path, body, {"Content-Type": kind}), timeout=90) as answer:
                return answer.read()
        except (HTTPError, URLError, ConnectionError) as error:
            assert getattr(error, "code", 503) >= 500, error.read()
            time.sleep(0.2)

assert len(list(notes.glob("replica-*"))) == 2
key = json.loads(post("/api/scenes", picture.read_bytes(), "image/png"))["scene"]
(first,) = (notes / "encoded").read_text().split()
os.kill(int(first), signal.SIGKILL)
asked = json.dumps({"names": ["background", "red circle", "blue ring"], "rule": "nn"}).encode()
answers = [json.loads(post(f"/api/scenes/{key}/segment", asked, "application/json"))["areas"] for _ in range(6)]
encoded = (notes / "encoded").read_text().split()
assert len(set(encoded)) > 1, encoded
(notes / "answers").write_text(json.dumps(answers))
serve.shutdown()
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif("JOEM_CLUSTER" not in os.environ, reason="a Ray cluster takes a minute to start: make cluster")
def test_with_one_of_two_replicas_killed_its_scenes_are_still_answered_for(trained, tmp_path):
    pytest.importorskip("ray")
    model, notes, picture = trained.save(tmp_path / "model"), tmp_path / "notes", tmp_path / "picture.png"
    notes.mkdir()
    scene_image().save(picture)
    command = [sys.executable, "-c", KILLED, *map(str, (model, picture, notes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    answers = json.loads((notes / "answers").read_text())
    expected = trained.encode(scene_image()).segment(["background", "red circle", "blue ring"], "nn").areas()
    assert len(answers) == 6
    for areas in answers:
        assert areas == pytest.approx(expected)
