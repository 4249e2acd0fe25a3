"""Pixels that share features, against the sum over pairs written out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from joem.methods.regions import RegionSettings, share_features


def by_pairs(features, prototypes, seen, rest, settings):
    """v' pixel by pixel, pair by pair, in double precision."""
    result = features.clone().double()
    for picture, values in enumerate(features.double().flatten(2).transpose(1, 2)):
        distances = torch.cdist(values, prototypes.double(), compute_mode="donot_use_mm_for_euclid_dist")
        chances = (-settings.scale * distances[:, seen].square()).softmax(dim=1)
        things = []
        for row in distances:
            nearer = [float(d) - (0 if index in seen else settings.gamma) for index, d in enumerate(row)]
            others = [d for index, d in enumerate(nearer) if index not in rest]
            things.append(not rest or (bool(others) and min(others) < min(nearer[index] for index in rest)))
        for i, value in enumerate(values):
            if not things[i]:
                continue
            total, weight = torch.zeros_like(value), 0.0
            for j in range(len(values)):
                if things[j]:
                    alike = sum(math.sqrt(float(p * q)) for p, q in zip(chances[i], chances[j], strict=True))
                    total, weight = total + alike * values[j], weight + alike
            row, column = divmod(i, features.shape[3])
            result[picture, :, row, column] = (1 - settings.share) * value + settings.share * total / weight
    return result


@given(data=st.data())
def test_shared_features_are_the_sum_over_pairs(data):
    draw = data.draw
    batch, channels, height, width = (draw(st.integers(1, most)) for most in (2, 4, 4, 5))
    count = draw(st.integers(1, 5))
    seen = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    rest = sorted(draw(st.sets(st.integers(0, count - 1), max_size=2)))
    settings = RegionSettings(draw(st.floats(0, 1)), draw(st.floats(0.1, 10)), draw(st.floats(0, 1)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    features = torch.randn(batch, channels, height, width, generator=generator)
    prototypes = torch.randn(count, channels, generator=generator)
    found = share_features(features, prototypes, seen, rest, settings)
    assert torch.allclose(found.double(), by_pairs(features, prototypes, seen, rest, settings), atol=1e-4)


def test_a_thing_is_named_as_a_whole_and_background_stays():
    """Two pixels of three are nearer to the unseen class; the third follows them, the background does not."""
    prototypes = torch.tensor([[-5.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # background, seen, unseen
    features = torch.tensor([[-5.0, 0.0], [0.0, -0.8], [0.0, -0.8], [0.0, 0.1]]).T.reshape(1, 2, 1, 4)
    shared = share_features(features, prototypes, [0, 1], [0], RegionSettings(share=0.8, scale=1.0))
    before, after = (torch.cdist(v[0, :, 0].T, prototypes).argmin(dim=1).tolist() for v in (features, shared))
    assert before == [0, 2, 2, 1]
    assert after == [0, 2, 2, 2]
    assert torch.equal(shared[..., 0], features[..., 0])


def test_pixels_that_are_surely_of_different_classes_share_nothing():
    prototypes = torch.tensor([[0.0], [10.0]])
    features = torch.tensor([0.1, -0.2, 9.9, 10.3]).reshape(1, 1, 1, 4)
    shared = share_features(features, prototypes, [0, 1], [], RegionSettings(share=1.0))
    assert shared.flatten().tolist() == pytest.approx([-0.05, -0.05, 10.1, 10.1], abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_keep_their_type(dtype):
    features = torch.randn(1, 3, 2, 2).to(dtype)
    assert share_features(features, torch.randn(2, 3), [0], [1], RegionSettings()).dtype == dtype
