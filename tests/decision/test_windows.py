"""Some rows of an image at a time."""

import pytest
import torch
from hypothesis import given, settings
from slow_decisions import problems

from joem import decision
from joem.decision import search


@settings(deadline=None, max_examples=40)
@given(problems())
def test_the_windows_of_a_ranking_are_its_rows(problem):
    features, prototypes, unseen, size = problem
    height, width = size or features.shape[2:]
    whole = decision.rank(features, prototypes, unseen, size)
    for top, bottom in ((0, 1), (height // 2, height)):
        window = decision.Window(height, width, top, bottom)
        for part, all_of_it in zip(decision.rank(features, prototypes, unseen, window), whole, strict=True):
            assert part.shape == (len(features), bottom - top, width)
            if part.dtype == torch.int64:
                assert torch.equal(part, all_of_it[:, window.rows])
            else:
                torch.testing.assert_close(part, all_of_it[:, window.rows], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (100, 3)])
def test_windows_cover_every_row_once(size, monkeypatch):
    monkeypatch.setattr(search, "WINDOW", 11)
    rows = [row for window in decision.windows(size) for row in range(window.top, window.bottom)]
    assert rows == list(range(size[0]))
