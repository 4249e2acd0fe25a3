"""The novelty expert against its equations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experts import KNOWN, SHARED, VOCABULARY, WORDS, build, random_view

from joem.methods.experts import Novelty, NoveltySettings, View
from joem.methods.experts.novelty import residual
from joem.models import FeatureMaps, hypercolumn

SIZE = 15  # three times the last map's five channels


def expert(directions=4, attention=0.0):
    return Novelty(NoveltySettings(directions=directions, attention=attention), SHARED)


def samples(count=6, pixels=20, rank=3):
    """Looks of pictures that fill few directions, and a little of the others."""
    basis = torch.randn(rank, SIZE)
    return [torch.randn(pixels, rank) @ basis + 0.05 * torch.randn(pixels, SIZE) + 1.0 for _ in range(count)]


def axes_by_numpy(rows, count):
    """The first principal directions of rows, by their singular values."""
    return np.linalg.svd(np.asarray(rows, dtype=float), full_matrices=True)[2][:count]


def residual_by_loop(pixel, axes):
    """What is left of a pixel without its part along every axis."""
    left = np.asarray(pixel, dtype=float).copy()
    for axis in axes:
        left -= float(np.dot(axis, pixel)) * axis
    return math.sqrt(float((left**2).sum()))


@given(st.integers(2, 5), st.integers(8, 12), st.integers(1, 6), st.integers(0, 2**16))
@settings(deadline=None, max_examples=20)
def test_novelty_follows_its_equation(pictures, pixels, directions, seed):
    torch.manual_seed(seed)
    shown, view, own = samples(pictures, pixels), random_view(), expert(directions)
    own.learn_looks(shown)
    rows = torch.cat(shown).double().numpy()
    mean, deviation = rows.mean(axis=0), rows.std(axis=0, ddof=1)
    halves = [(torch.cat(shown[start::2]).double().numpy() - mean) / deviation for start in (0, 1)]
    axes = axes_by_numpy(np.concatenate(halves), directions)
    of_others = [
        residual_by_loop(pixel, axes_by_numpy(fitted, directions))
        for fitted, held in (halves, halves[::-1])
        for pixel in held
    ]
    middle, spread = np.mean(of_others), np.std(of_others, ddof=1)
    looks = view.columns.values[:, -SIZE:].double().numpy()
    found = own.features(view)
    for b, x in np.ndindex(2, 5):
        pixel = (looks[b, :, 0, x] - mean) / deviation
        novelty = np.clip((residual_by_loop(pixel, axes) - middle) / spread, -4, 4) - 1
        assert float(found[b, 0, 0, x]) == pytest.approx(novelty / 2, abs=2e-3)


def test_what_training_pixels_never_showed_is_nearer_to_words_without_masks():
    torch.manual_seed(0)
    own, shown = expert(), samples()
    own.learn_looks(shown[:-1])
    familiar, strange = shown[-1], shown[-1] + 3 * torch.randn(20, SIZE)
    assert residual(own._standardised(strange), own.axes).min() > residual(own._standardised(familiar), own.axes).max()
    seen, unseen = own.prototypes(KNOWN, KNOWN)[[1, 2], 0].tolist()
    assert (seen, unseen) == (-1.0, 1.0)


def test_the_difference_of_squared_distances_is_twice_the_novelty():
    torch.manual_seed(0)
    own, view = expert(), random_view()
    own.learn_looks(samples())
    squares = (own.features(view) - own.prototypes(KNOWN, KNOWN)[:, :, None]).square()  # (B,K,1,W) of one channel
    difference = squares[:, VOCABULARY.index("horse")] - squares[:, VOCABULARY.index("cow")]
    torch.testing.assert_close(difference, 2 * own.novelty(view)[:, 0])


def test_only_the_words_of_classes_with_masks_are_known():
    words = WORDS.vectors(("horse", "zebra", "background", "cow"))
    assert expert().prototypes(words, KNOWN)[:, 0].tolist() == [-1.0, 1.0, -1.0, 1.0]


def test_before_it_is_fitted_it_says_nothing():
    assert expert().features(random_view()).abs().max() == 0


def test_attention_mixes_positions_that_look_alike():
    torch.manual_seed(0)
    own, alone = expert(attention=30.0), expert()
    for each in (own, alone):
        torch.manual_seed(1)
        each.learn_looks(samples())
    view = random_view(batch=1, width=3)
    view.columns.values.mul_(0.05).add_(1.0)  # near the training pixels, so that nothing is cut off
    view.columns.values[..., 1] = view.columns.values[..., 0]  # two positions look the same
    view.columns.values[:, -5:, :, 1] += 0.02  # in other pictures' company
    mixed, plain = own.novelty(view)[0, 0, 0], alone.novelty(view)[0, 0, 0]
    assert float(plain[0]) != pytest.approx(float(plain[1]), abs=1e-3)
    assert float(mixed[0]) == pytest.approx(float(plain[:2].mean()), abs=0.05)
    assert float(mixed[0]) == pytest.approx(float(mixed[1]), abs=1e-5)


def test_maps_and_gathered_hypercolumns_look_the_same():
    torch.manual_seed(0)
    maps = FeatureMaps([torch.randn(1, 3, 8, 8), torch.randn(1, 4, 4, 4), torch.randn(1, 5, 4, 4)], (8, 16, 16))
    basis = hypercolumn.basis(maps)
    own = Novelty(NoveltySettings(), SHARED._replace(strides=(8, 16, 16)))
    looks = own.looks(View(basis, maps.maps[-1], (8, 8)))
    gathered = hypercolumn.gather(basis)[:, -SIZE:]
    wide = torch.nn.functional.interpolate(looks, (8, 8), mode="bilinear", align_corners=False)
    torch.testing.assert_close(wide, gathered)


def test_a_blend_lets_it_know_the_training_pixels():
    blend = build(({"kind": "cosine", "hidden": 4, "channels": 3}, {"kind": "novelty", "directions": 2}))
    assert blend.wants_looks
    looks = blend.looks(torch.randn(1, 3, 64, 64))
    blend.learn_looks(list(torch.randn(4, 9, looks.shape[1])))
    assert float(blend.experts[1].sharpness) > 0
    assert not build(({"kind": "cosine", "hidden": 4, "channels": 3},)).wants_looks
