"""Labels at another size are those of a scene of that size, however they are cut into bands."""

from dataclasses import replace

import pytest
import torch

from joem import Segmenter, bands, engine
from joem.data.scenes import Scenes
from joem.decision import Score, search
from joem.errors import BadUsage
from joem.model import Model
from joem.scene import Scene

NAMES = ["red circle", "brown horse", "blue ring", "purple star"]


@pytest.fixture(scope="module")
def scene(shared_tiny) -> Scene:
    score = Score((0.5, -1.0, 4.0), (0.1, -1.5, 3.0))
    recipe = replace(shared_tiny, decision=replace(shared_tiny.decision, score=score))
    torch.manual_seed(0)
    segmenter = Segmenter(Model.create(recipe, engine.open_problem(recipe.data).vocabulary))
    return segmenter.encode(Scenes(1, 64)[0].image)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rule": "cs", "gamma": 0.002},
        {"rule": "ac", "sigma": 0.97, "min_score": 0.4},
        {"background": False, "min_score": 0.3},
        {"points": {"flag": [(5, 6), (40, 40, False)]}},
    ],
)
def test_bands_are_the_labels_of_a_larger_scene(scene, options, monkeypatch):
    size = (173, 201)
    monkeypatch.setattr(search, "WINDOW", 20 * size[1] + 7)
    found = bands.segment(scene, size, NAMES, **options)
    rows = list(found.rows)
    assert len(rows) == 9
    pixels = torch.zeros(3, *size, dtype=torch.uint8)
    points = options.pop("points", None)
    if points:  # on the larger picture, at the middle of the same pixels
        points = {
            name: [((2 * x + 1) * 201 // 128, (2 * y + 1) * 173 // 128, *rest) for x, y, *rest in listed]
            for name, listed in points.items()
        }
    whole = Scene(scene.segmenter, pixels, scene.features).segment(NAMES, points=points, **options)
    assert found.names == whole.names
    assert torch.equal(torch.cat(rows), whole.labels.long())


def test_a_score_that_nobody_measured_is_refused(scene):
    model = scene.segmenter.model
    plain = replace(model, recipe=replace(model.recipe, decision=replace(model.recipe.decision, score=None)))
    with pytest.raises(BadUsage, match="no calibrated score"):
        bands.segment(replace(scene, segmenter=Segmenter(plain)), (10, 10), NAMES, min_score=0.5)
