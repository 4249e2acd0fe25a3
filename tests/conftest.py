"""A problem so small that a whole training run takes a second or two, and what all tests share."""

import gc
from pathlib import Path

import pytest
import torch

from joem import Segmenter, engine, progress
from joem.data.scenes import Scenes
from joem.engine import Model
from joem.engine.training import Run
from joem.methods import get
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


@pytest.fixture(scope="session")
def trained(shared_tiny, tmp_path_factory) -> Segmenter:
    """A model that has learned a little, for the tests of the page."""
    torch.manual_seed(0)
    run = tmp_path_factory.mktemp("run")
    engine.train(shared_tiny, run)
    return Segmenter.load(run)


@pytest.fixture(scope="module")
def browser():
    """A browser, for the tests of the page."""
    from browsing import browser_at_hand  # of tests/web

    with browser_at_hand() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(trained):
    """Where the page of that model is served."""
    from browsing import serving

    with serving(trained) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """A way to open the page."""
    from browsing import visiting

    with visiting(browser, address) as visit:
        yield visit


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


def make_run(recipe: Recipe) -> Run:
    """A run that has not begun, to take single steps with."""
    fabric = engine.launched(recipe.train, get(recipe.method.name).rests)
    return Run(recipe, engine.open_problem(recipe.data), fabric, None)


def fresh_model(recipe: Recipe) -> Model:
    """An untrained model of a recipe."""
    return Model.create(recipe, engine.open_problem(recipe.data).vocabulary)


def weights(model: Model) -> dict[str, torch.Tensor]:
    """All tensors of a model, as they are now."""
    return {key: value.clone() for key, value in model.method.state_dict().items()}


def assert_same_weights(one: Model, other: Model) -> None:
    """Both models have the same tensors, bit for bit."""
    found, expected = weights(one), weights(other)
    assert found.keys() == expected.keys()
    for key in expected:
        assert torch.equal(found[key], expected[key]), key


def stop_after(patch: pytest.MonkeyPatch, step: int) -> None:
    """Interrupt every run after that step, as Ctrl-C does."""
    original = Run.train_step

    def train_step(run, images, labels):
        run.stop = run.step + 1 == step
        return original(run, images, labels)

    patch.setattr(Run, "train_step", train_step)


@pytest.fixture
def without_company(monkeypatch):
    """Names are taken out without the rule that asks a sentence encoder for a thousand vectors, which is slow."""
    from joem.semantics import giveaways

    monkeypatch.setattr(giveaways, "_company", lambda names: set())
    giveaways.giveaways.cache_clear()
    yield
    giveaways.giveaways.cache_clear()


def pytest_collection_finish(session):
    """What is loaded by now stays: looking through it for garbage again and again takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure(config):
    """Give it back, or libraries complain at the end that something of theirs was left over."""
    gc.unfreeze()


@pytest.fixture
def picture() -> torch.Tensor:
    return Scenes(1, 64)[0].image


@pytest.fixture
def segmenter(tiny, picture) -> Segmenter:
    """An untrained model whose features of the picture are spread over its prototypes."""
    return Segmenter(spread(Model.create(tiny, engine.open_problem(tiny.data).vocabulary), picture))
