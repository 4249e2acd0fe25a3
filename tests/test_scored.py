"""How sure a result is: scores against their definition, "other" below a least score, what a model without says."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import spread
from joem import Segmenter, calibration, cli, engine
from joem.calibration.score_fit import logistic
from joem.data.scenes import Scenes
from joem.decision import Decision, Score
from joem.errors import BadUsage
from joem.model import Model

SCORE = Score((0.5, -1.0, 4.0), (0.1, -1.5, 3.0))


@pytest.fixture
def picture():
    return Scenes(1, 64)[0].image


@pytest.fixture
def segmenter(tiny, picture) -> Segmenter:
    recipe = replace(tiny, decision=replace(tiny.decision, score=SCORE))
    return Segmenter(spread(Model.create(recipe, engine.open_problem(tiny.data).vocabulary), picture))


@pytest.mark.parametrize("names", ["red circle, brown horse", "brown horse, green dog", "red circle"])
@pytest.mark.parametrize("background", [True, False])
def test_scores_are_those_of_the_definition(segmenter, picture, names, background):
    scene = segmenter.encode(picture)
    result = scene.segment(names, background=background)
    asked = scene.distances(list(result.names), background=False)
    trained = scene.distances(list(segmenter.vocabulary.seen), background=False)
    scores = result.scores()
    for y in range(0, 64, 7):
        for x in range(0, 64, 7):
            label = int(result.labels[y, x])
            rivals = [asked[k, y, x] for k in range(len(result.names)) if k != label]
            rivals += [trained[k, y, x] for k, name in enumerate(segmenter.vocabulary.seen) if name not in result.names]
            a, b, c = SCORE.new if result.names[label] in result.unseen else SCORE.trained
            d = asked[label, y, x]
            expected = 1 / (1 + math.exp(-(a + b * d + c * (min(rivals) - d))))
            assert scores[y, x] == pytest.approx(expected, abs=2e-4)


def test_pixels_below_the_least_score_become_other(segmenter, picture):
    scene = segmenter.encode(picture)
    plain = scene.segment("red circle, brown horse")
    scores = plain.scores()
    middle = float(scores.median())
    cut = scene.segment("red circle, brown horse", min_score=middle)
    assert cut.names == (*plain.names, "other")
    assert torch.equal(cut.labels, torch.where(scores < middle, len(plain.names), plain.labels))
    assert {each["name"] for each in cut.to_coco()["categories"]} <= {"red circle", "brown horse"}
    assert torch.equal(scene.segment("red circle, brown horse", min_score=0.0).labels, plain.labels)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_a_least_score_outside_0_to_1_is_refused(segmenter, picture, wrong):
    with pytest.raises(BadUsage, match="from 0 to 1"):
        segmenter.encode(picture).segment(min_score=wrong)


def test_a_model_that_was_never_calibrated_says_what_to_do(segmenter, picture):
    segmenter.model.recipe = replace(segmenter.model.recipe, decision=Decision("nn"))
    scene = segmenter.encode(picture)
    with pytest.raises(BadUsage, match="joem tune"):
        scene.segment(min_score=0.5)
    result = scene.segment("red circle")
    with pytest.raises(BadUsage, match="joem tune"):
        result.scores()
    assert result.class_scores() == {"red circle": None, "background": None}


def test_the_score_goes_with_the_recipe_and_the_model(segmenter, tmp_path):
    loaded = Segmenter.load(segmenter.save(tmp_path / "m"))
    assert loaded.model.recipe.decision.score == SCORE
    assert loaded.model.recipe.decision.replace("cs", gamma=0.3).score == SCORE


@pytest.mark.parametrize("wrong", [{}, {"trained": [1, 2, 3]}, {"trained": [1, 2], "new": [1, 2, 3]}, "high"])
def test_a_score_that_is_none_is_refused(wrong):
    with pytest.raises(BadUsage, match="score"):
        Decision.from_dict({"rule": "nn", "score": wrong})


def test_the_command_line_writes_scores_and_others(segmenter, picture, tmp_path, capsys):
    photo = tmp_path / "photo.png"
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(photo)
    model = segmenter.save(tmp_path / "model")
    words = ["predict", str(photo), "--model", str(model), "--classes", "red circle", "--min-score", "0.6"]
    assert cli.main([*words, "--save", "scores", "coco", "--out", str(tmp_path / "out"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    expected = segmenter(photo, "red circle", min_score=0.6)
    assert found["names"] == ["red circle", "background", "other"]
    stored = np.load(tmp_path / "out" / "photo" / "scores.npz")
    assert np.array_equal(stored["labels"], expected.labels.numpy())
    np.testing.assert_allclose(stored["scores"], expected.scores().numpy(), atol=1e-5)
    assert stored["names"].tolist() == found["names"]
    assert (tmp_path / "out" / "photo" / "coco.json").is_file()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_the_fit_is_where_the_likelihood_is_flat(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.cat([torch.ones(300, 1), torch.randn(300, 2, generator=generator)], 1).double()
    truth = torch.randn(3, generator=generator).double()
    y = (torch.rand(300, generator=generator) < torch.sigmoid(x @ truth)).double()
    found = logistic(x, y)
    gradient = x.T @ (y - torch.sigmoid(x @ found)) - 1e-4 * found
    assert gradient.abs().max() < 1e-6


def test_a_fold_gives_pixels_and_those_a_score(tiny):
    problem = engine.open_problem(tiny.data)
    model = spread(Model.create(tiny, problem.vocabulary), problem.val[0].image)
    rows = calibration.ask_pixels(model, problem)
    assert len(rows) == 3 * 10 * len(problem.val)
    prototypes = model.prototypes(problem.vocabulary.names)
    for seen, second, unseen, other_of_seen, other_of_unseen, right_seen, right_unseen in rows:
        assert seen <= second
        assert other_of_seen <= max(second, unseen) + 1e-5
        assert other_of_unseen <= seen + 1e-5
        assert {right_seen, right_unseen} <= {0.0, 1.0}
        assert right_seen + right_unseen <= 1
    assert prototypes.shape[0] == len(problem.vocabulary)
    score = calibration.fit_score(rows, Decision("cs", {"gamma": 0.5}))
    assert score is None or all(map(math.isfinite, (*score.trained, *score.new)))
