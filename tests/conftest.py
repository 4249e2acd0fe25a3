"""A problem so small that a whole training run takes a second or two, and what all tests share."""

from pathlib import Path

import pytest
import torch

from joem import progress
from joem.engine import Model
from joem.recipe import Recipe

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _repeatable():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with progress.hidden():
        yield


@pytest.fixture
def tiny() -> Recipe:
    """A recipe with a backbone of 0.1 million weights on sixteen small pictures, four steps in all."""
    return make_tiny()


@pytest.fixture(scope="session")
def shared_tiny() -> Recipe:
    """The same for fixtures that outlive a test."""
    return make_tiny()


def make_tiny(**changes) -> Recipe:
    """The tiny recipe, with some settings replaced."""
    base = Recipe.from_dict(
        {
            "data": {"size": 64, "train_count": 16, "val_count": 3, "crop": 64, "scale": [0.9, 1.1]},
            "model": {
                "backbone": "tu-test_efficientnet",
                "freeze_norm": False,
                "head": {"channels": 8, "rates": [1, 2, 3], "aspp_dropout": 0.1},
            },
            "train": {
                "epochs": 2,
                "batch_size": 8,
                "log_every": 1,
                "save_every": 1,
                "accelerator": "cpu",
                "visual": {"name": "adamw", "lr": 1e-3, "head_multiplier": 1.0},
            },
            "decision": {"rule": "ac", "sigma": 0.8},
        }
    )
    return base.changed(**changes) if changes else base


GENERATED = {"samples": 16, "noise": 6, "hidden": 12}
"""Small generators, for the methods that have one."""


def make_small(name: str, **method) -> Recipe:
    """Two steps per stage of a method, with dropout, so that the random numbers matter."""
    own = {**GENERATED} if name in {"zs3net", "zs3net_joem", "csrl", "cagnet"} else {}
    if name == "cagnet":
        own["alternate"] = 1
    model: dict = {"dropout": 0.2}
    if name == "blend":
        model = {"head": None, "freeze_backbone": True}
        own["experts"] = [
            {"kind": "cosine", "copies": 2, "hidden": 6, "channels": 4},
            {"kind": "mixture", "copies": 2, "hidden": 6, "channels": 4},
        ]
    return make_tiny(
        data={"train_count": 8, "val_count": 2, "crop": 32, "size": 32},
        model=model,
        train={"batch_size": 4, "epochs": 1, "save_every": 0},
        method={"name": name, **own, **method},
    )


def spread(model: Model, pixels: torch.Tensor) -> Model:
    """Put untrained prototypes among the features of a picture, so that many classes occur in it."""
    features = model.features(pixels)[0].flatten(1)
    with torch.no_grad():
        model.method.semantic.weight.mul_(features.std() / model.prototypes().std())
        model.method.semantic.bias.add_(features.mean(1) - model.prototypes().mean(0))
    return model
