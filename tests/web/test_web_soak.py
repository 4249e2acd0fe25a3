"""The long run of benchmarks/soak.py, for seconds."""

import sys
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from PIL import Image
from serving import as_file, untrained

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def soak(monkeypatch):
    if sys.platform != "linux":
        pytest.skip("memory of another process is read from /proc")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    import soak

    return soak


def test_clients_get_what_python_gives(soak, shared_tiny, tmp_path):
    model = str(untrained(shared_tiny).save(tmp_path / "model"))
    outcome = soak.soak(model, clients=2, minutes=1 / 3)
    log, memory, exit_code, peak = outcome
    assert log.faults == []
    assert exit_code == 0
    assert log.counts["requests"] > log.counts["compared"] > 0
    assert len(memory) == 5
    assert peak >= max(memory) >= min(memory) > 50
    assert outcome.change == pytest.approx(max(memory[1:]) / min(memory[1:]) - 1)


def test_wrong_answers_are_seen(soak, shared_tiny, monkeypatch):
    monkeypatch.setattr(soak, "DRAWN", 1)
    reference = soak.Reference(untrained(shared_tiny))
    known = reference.pictures[-1]
    asked = {"names": ["red circle", "cow"], "rule": "ac", "sigma": 0.9}
    result = known.scene.segment(**asked)

    def difference(form, status=200, asked=asked, **content):
        return reference.difference(known, form, asked, httpx.Response(status, **content))

    right, labels = result.to_dict(), result.labels.numpy().astype(np.uint8)
    assert difference("segment", json=right) is None
    assert difference("segment", json={**right, "areas": {}}).startswith("areas: {} instead of {'red circle': ")
    assert difference("segment", 404, json={}).startswith("404")
    assert difference("mask", content=as_file(result.mask())) is None
    labels[0, 0] = 7
    assert difference("mask", content=as_file(Image.fromarray(labels))) == f"1 of {labels.size} labels"
    unknown = {**asked, "rule": "none"}
    assert "instead of \"Unknown rule 'none'" in difference("segment", 422, unknown, json={"message": "?"})
    assert "200 None instead of" in difference("segment", asked=unknown, json=right)
