"""Pictures as they are at hand, and results as they are shown."""

import io
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from joem.errors import BadUsage, JoemError


@pytest.mark.parametrize(
    "bad", [np.zeros((4, 4, 2), np.uint8), torch.zeros(3, 4, 4), np.zeros((4, 4), np.int32), np.zeros(4, np.uint8), 7]
)
def test_things_that_are_no_picture_are_refused(segmenter, bad):
    with pytest.raises(BadUsage, match="A picture must be"):
        segmenter.encode(bad)


@pytest.mark.parametrize("empty", [np.zeros((0, 4, 3), np.uint8), torch.zeros(3, 0, 4, dtype=torch.uint8)])
def test_an_empty_picture_is_called_so(segmenter, empty):
    with pytest.raises(BadUsage, match="The picture is empty"):
        segmenter.encode(empty)


def test_a_picture_comes_as_it_is_at_hand(segmenter, picture):
    array = picture.permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    opaque = np.concatenate([array, np.full((64, 64, 1), 255, np.uint8)], axis=2)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (array, array / 255.0, opaque, file.getvalue(), io.BytesIO(file.getvalue())):
            assert torch.equal(segmenter.encode(same).pixels, picture)
    grey = array[:, :, 0]
    for same in (grey, grey[:, :, None]):
        assert torch.equal(segmenter.encode(same).pixels, torch.from_numpy(grey.copy()).expand(3, -1, -1))
    with pytest.raises(BadUsage, match="must be from 0 to 1, got 0 to 2"):
        segmenter.encode(np.linspace(0, 2, 12).reshape(2, 2, 3))


def test_one_call_a_line_and_a_picture_of_the_result(segmenter, picture):
    result = segmenter(picture, "red circle, cow", rule="nn")
    assert torch.equal(result.labels, segmenter.encode(picture).segment(["red circle", "cow"], "nn").labels)
    assert repr(result).startswith("Result(64 x 64: ")
    assert "\n" not in repr(result)
    assert Image.open(io.BytesIO(result._repr_png_())).format == "PNG"
    told = str(segmenter.encode(picture).explain(3, 4, "red circle, cow"))
    assert told.startswith("The pixel at x 3, y 4 is nearest to ")
    assert "NN " in told


def test_a_missing_file_is_named(segmenter):
    with pytest.raises(JoemError, match=r"no picture 'nowhere\.png'"):
        segmenter.encode("nowhere.png")
