"""The definition of every rule: upsample in full, measure every distance, decide pixel by pixel."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from joem.decision import compiled

TIE = 1e-4  # relative difference below which two distances count as a tie


@pytest.fixture(scope="module", params=["compiled", "torch"], autouse=True)
def both_ways(request):
    """Every test of a module that imports this is run with the compiled kernel, and with torch alone."""
    if request.param == "compiled":
        if compiled._library() is None:
            pytest.skip("no C compiler")
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_library", lambda: None)
        yield


def defined_distances(features: Tensor, prototypes: Tensor, size: Sequence[int] | None) -> Tensor:
    """(B,Ho,Wo,K) in float64, straight from the definition."""
    size = tuple(features.shape[2:]) if size is None else size
    upsampled = F.interpolate(features.float(), size=size, mode="bilinear", align_corners=False).double()
    return (upsampled.permute(0, 2, 3, 1).unsqueeze(3) - prototypes.double()).square().sum(-1).sqrt()


def defined_label(
    d: list[float],
    unseen: set[int],
    rule: str,
    gamma: float = 0,
    sigma: float = 1,
    squared: bool = False,
    discount: float = 0,
) -> int | None:
    """The label of one pixel; None where it hangs on a tie."""

    def tied(classes: list[int]) -> bool:
        return any(d[b] - d[a] <= tolerance for a, b in pairwise(classes))

    tolerance = TIE * min(d)
    if rule == "cs":
        d = [x - gamma * (c in unseen) for c, x in enumerate(d)]
    order = sorted(range(len(d)), key=lambda c: d[c])
    if rule in {"nn", "cs"}:
        return None if tied(order[:2]) else order[0]
    if rule == "ac":
        contenders, is_tied = order[:2], tied(order[:3])
    else:
        seen_order, unseen_order = [c for c in order if c not in unseen], [c for c in order if c in unseen]
        contenders, is_tied = seen_order[:1] + unseen_order[:1], tied(seen_order[:2]) or tied(unseen_order[:2])
    if is_tied:
        return None
    if len(contenders) == 1 or contenders[0] in unseen or contenders[1] not in unseen:
        return contenders[0]
    if rule == "probability":
        known = [*seen_order[:2], unseen_order[0]]
        shares = [math.exp((min(d) ** 2 - d[c] ** 2) / 2) for c in known]
        lead = (shares[0] - shares[-1]) / sum(shares)
        return None if abs(lead - discount) <= 1e-4 else contenders[lead < discount]
    ratio = (d[contenders[0]] / d[contenders[1]]) ** (2 if squared else 1)
    return None if abs(ratio - sigma) <= TIE else contenders[ratio > sigma]


def assert_as_defined(labels: Tensor, distances: Tensor, unseen: set[int], rule: str, **knobs: float) -> float:
    """Compare every pixel that hangs on no tie and give the share of these."""
    assert labels.dtype == torch.long
    assert labels.shape == distances.shape[:-1]
    expected = [defined_label(d, unseen, rule, **knobs) for d in distances.flatten(0, -2).tolist()]
    found = labels.flatten().tolist()
    assert [f if e is not None else None for f, e in zip(found, expected, strict=True)] == expected
    return sum(e is not None for e in expected) / len(expected)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Squares are compared because near zero the root of a rounding error is no rounding error."""
    torch.testing.assert_close(found.double().square(), expected.square(), rtol=1e-5, atol=1e-5)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, list[int], tuple[int, int] | None]:
    torch.manual_seed(draw(st.integers(0, 10_000)))
    side, classes = st.integers(1, 6), draw(st.integers(1, 8))
    batch, channels, height, width = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(side), draw(side)
    size = draw(st.none() | st.tuples(st.integers(1, 13), st.integers(1, 13)))
    unseen = draw(st.sets(st.integers(0, classes - 1)))
    return torch.randn(batch, channels, height, width), torch.randn(classes, channels), sorted(unseen), size
