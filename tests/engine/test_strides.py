"""Features of any stride go through stored maps, tiles and export."""

import pytest
import torch

from joem import Segmenter, engine, onnx, tiles


@pytest.mark.slow
def test_a_stride_of_32_goes_all_the_way(tiny, tmp_path, monkeypatch):
    recipe = tiny.changed(
        model={
            "stride": 32,
            "freeze_backbone": True,
            "head": {"name": "hypercolumn", "channels": 8, "hidden": 16},
        },
        train={"cache": str(tmp_path / "maps"), "pixels": 8, "epochs": 1},
    )
    model = engine.train(recipe, tmp_path / "run")
    assert model.method.trunk.strides[-3:] == (8, 16, 32)
    problem = engine.open_problem(recipe.data, needed=("val",))
    (found,) = engine.evaluate(model, problem, [recipe.decision])
    assert found.images == len(problem.val)
    loaded = Segmenter.load(tmp_path / "run")
    picture = torch.randint(0, 256, (3, 150, 200), dtype=torch.uint8)
    whole = loaded.encode(picture).features
    assert whole.shape[2:] == (19, 25)  # the finest of its maps has stride 8
    monkeypatch.setattr(tiles, "SIDE", 128)
    monkeypatch.setattr(tiles, "OVERLAP", 64)
    assert loaded.encode(picture).features.shape == whole.shape
    assert onnx.to_onnx(model, tmp_path / "model.onnx") < 1e-3
    exported = Segmenter.load(tmp_path / "model.onnx")
    assert exported.model.stride == 8
    different = (exported.encode(picture).segment().labels != loaded.encode(picture).segment().labels).float().mean()
    assert different < 1e-3
