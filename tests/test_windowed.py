"""Pictures too large to hold all that is computed of them: the same results, window by window."""

import subprocess
import sys

import pytest
import torch
from PIL import Image

from conftest import fresh_model, spread
from joem import Segmenter, decision, engine, windowed
from joem.data.scenes import Scenes
from joem.decision import search
from joem.model import Model


@pytest.fixture
def segmenter(tiny) -> Segmenter:
    scored = tiny.changed(decision={"score": {"trained": [0, -1, 1], "new": [1, -1, 2]}})
    model = Model.create(scored, engine.open_problem(tiny.data).vocabulary)
    return Segmenter(spread(model, Scenes(1, 64)[0].image))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("points", [None, {"flag": [(3, 4), (50, 60)]}])
@pytest.mark.parametrize("names", [None, "red circle|red star, cow, green dog", ["zebra", "rocket", "sofa"]])
def test_a_picture_in_windows_gives_the_same_result(segmenter, monkeypatch, names, points, kept):
    options = {"points": points, "rule": "cs", "gamma": 0.1}
    whole = segmenter.encode(Scenes(1, 64)[0].image).segment(names, **options)
    expected, scores, least = whole.to_dict(), whole.scores(), whole.at_least(0.6).areas()
    monkeypatch.setattr(search, "WINDOW", 64 * 7)
    monkeypatch.setattr(windowed, "KEPT", 64 * 64 if kept else 0)
    monkeypatch.setattr("joem.result._ROWS", 5)
    assert len(decision.windows((64, 64))) == 10
    part = segmenter.encode(Scenes(1, 64)[0].image).segment(names, **options)
    assert (part.compact.dtype, part.labels.dtype, whole.compact.dtype) == (torch.uint8, torch.int64, torch.int64)
    assert (part.labels != whole.labels).float().mean() < 1e-3  # rounding decides ties
    assert part.names == whole.names
    for key in ("areas", "confidences", "scores"):
        assert part.to_dict()[key] == pytest.approx(expected[key], abs=1e-3), key
    torch.testing.assert_close(part.scores(), scores, atol=1e-3, rtol=1e-3)
    assert part.at_least(0.6).areas() == pytest.approx(least, abs=1e-3)


def test_a_ranking_is_kept_up_to_a_size(segmenter, monkeypatch):
    ranked = []
    rank = decision.rank
    monkeypatch.setattr(decision, "rank", lambda *given: ranked.append(given[3]) or rank(*given))
    monkeypatch.setattr(search, "WINDOW", 64 * 32)
    scene = segmenter.encode(Scenes(1, 64)[0].image)
    for gamma in (0.1, 0.2):
        scene.segment("cow", "cs", gamma=gamma)
    assert ranked == [(64, 64)]
    monkeypatch.setattr(windowed, "KEPT", 64 * 64 - 1)
    scene.segment("cow", "cs", gamma=0.3)
    assert [(each.top, each.bottom) for each in ranked[1:]] == [(0, 32), (32, 64)]


PREDICT = """
import resource, sys
from joem import cli
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = cli.main(sys.argv[1:])
print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_a_small_file_of_a_large_picture_takes_little_memory(tiny, tmp_path):
    model = fresh_model(tiny).save(tmp_path / "model")
    Image.new("RGB", (4200, 4200)).save(tmp_path / "large.png")  # 17.6 million pixels, 53 KB
    words = ["predict", tmp_path / "large.png", "--model", model, "--classes", "cow, dog", "--out", tmp_path / "out"]
    ended = subprocess.run(
        [sys.executable, "-c", PREDICT, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    code, grown = map(int, ended.stdout.split()[-2:])
    assert code == 0
    assert Image.open(tmp_path / "out/large/mask.png").size == (4200, 4200)
    assert grown < 1300, f"{grown} MiB"
