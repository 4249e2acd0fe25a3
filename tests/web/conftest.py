"""A model that has learned a little, and a browser, for the tests of the page."""

import pytest
import torch
from browsing import browser_at_hand, serving, visiting

from joem import Segmenter, engine


@pytest.fixture(scope="session")
def trained(shared_tiny, tmp_path_factory) -> Segmenter:
    torch.manual_seed(0)
    run = tmp_path_factory.mktemp("run")
    engine.train(shared_tiny, run)
    return Segmenter.load(run)


@pytest.fixture(scope="module")
def browser():
    with browser_at_hand() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(trained):
    with serving(trained) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    with visiting(browser, address) as visit:
        yield visit
