"""A problem so small that a whole training run takes a second or two."""

from pathlib import Path

import pytest
import torch

from joem.engine.model import Model
from joem.recipe import DataSettings, ModelSettings, OptimiserSettings, Recipe, TrainSettings

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _repeatable():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def tiny() -> Recipe:
    """A recipe to change at will."""
    return make_tiny()


@pytest.fixture(scope="session")
def shared_tiny() -> Recipe:
    """The same for fixtures that outlive a test; nobody may change it."""
    return make_tiny()


def make_tiny() -> Recipe:
    """A recipe with a backbone of 0.1 million weights on sixteen small pictures, four steps in all."""
    return Recipe(
        data=DataSettings(size=64, train_count=16, val_count=3, crop=64, scale=(0.9, 1.1)),
        model=ModelSettings(
            backbone="tu-test_efficientnet", channels=8, rates=(1, 2, 3), freeze_norm=False, aspp_dropout=0.1
        ),
        train=TrainSettings(
            epochs=2,
            batch_size=8,
            log_every=1,
            save_every=1,
            accelerator="cpu",
            visual=OptimiserSettings(name="adamw", lr=1e-3, head_multiplier=1.0),
        ),
    )


def spread(model: Model, pixels: torch.Tensor) -> Model:
    """Put untrained prototypes among the features of a picture, so that many classes occur in it."""
    features = model.features(pixels)[0].flatten(1)
    with torch.no_grad():
        model.method.semantic.weight.mul_(features.std() / model.prototypes().std())
        model.method.semantic.bias.add_(features.mean(1) - model.prototypes().mean(0))
    return model
