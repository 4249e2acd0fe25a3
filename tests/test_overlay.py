import numpy as np
import pytest
import torch

from joem.overlay import overlay
from joem.vocabulary import VOID, colours


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (3, 40, 60), dtype=torch.uint8)


def halves(top, bottom):
    labels = torch.full((40, 60), bottom)
    labels[:20] = top
    return labels


@pytest.mark.parametrize("count", [2, 255, 256, 257, 300, 1000])
def test_any_number_of_names_has_its_colours(pixels, count):
    names = [f"n{index}" for index in range(count)]
    own = colours(names)
    found = np.asarray(overlay(pixels, halves(count - 1, 0), names, own, opacity=1.0, legend=False))
    assert tuple(found[5, 5]) == own[count - 1]
    assert tuple(found[35, 5]) == own[0]
    assert tuple(found[20, 5]) == (255, 255, 255)  # the outline between them


def test_void_stays_as_it_is(pixels):
    names = ["a", "b"]
    image = overlay(pixels, halves(255, 1), names, colours(names), opacity=0.5, legend=False)
    assert np.array_equal(np.asarray(image)[:20], pixels[:, :20].permute(1, 2, 0).numpy())


def test_the_legend_is_below_and_names_what_occurs(pixels):
    names = ["background", "a rather long name of a class", "cow"]
    one, two, starred = (
        overlay(pixels, labels, names, colours(names), unseen)
        for labels, unseen in ((halves(0, 0), ()), (halves(0, 1), ()), (halves(0, 1), ("cow", names[1])))
    )
    assert 40 < one.height < two.height < starred.height  # the star is explained
    assert two.width > 60  # as wide as its longest name
    plain = overlay(pixels, halves(0, 1), names, colours(names), legend=False)
    left = (two.width - 60) // 2
    assert np.array_equal(np.asarray(two)[:40, left : left + 60], np.asarray(plain))


@pytest.mark.parametrize("legend", [True, False])
def test_an_overlay_in_bands_is_the_same(monkeypatch, legend):
    pixels, labels = torch.randint(0, 256, (3, 40, 60), dtype=torch.uint8), torch.randint(0, 4, (40, 60))
    labels[5:9] = VOID
    arguments = (pixels, labels, ["a", "b", "c", "d"], colours("abcd"), ["b"])
    whole = np.asarray(overlay(*arguments, legend=legend))
    monkeypatch.setattr("joem.overlay._BAND", 60 * 7)
    assert np.array_equal(np.asarray(overlay(*arguments, legend=legend)), whole)
    for row, column in () if legend else ((20, 30), (21, 0), (0, 59)):  # the pixel above or left differs
        above, left = labels[max(row - 1, 0), column], labels[row, max(column - 1, 0)]
        edge = bool((above != labels[row, column]) | (left != labels[row, column]))
        assert (tuple(whole[row, column]) == (255, 255, 255)) == edge
