import numpy as np
import pytest
import torch
from small_data import MEAN, STD, failure

from joem import data
from joem.errors import BadUsage
from joem.vocabulary import VOID


def blocks(height, width, side=12):
    """Labels in large blocks, with some void, and an image that shows label k in the colour of k."""
    rows, columns = np.arange(height)[:, None] // side, np.arange(width)[None] // side
    labels = torch.tensor((rows * 3 + columns * 5) % 7)
    image = torch.stack([labels * 30 + 10, 250 - labels * 20, labels * 11]).to(torch.uint8)
    return image, labels


def colours_of(image):
    """The label whose colour every pixel of a normalised image shows, and how far off it is."""
    pixels = image * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    table = torch.stack([torch.arange(7) * 30 + 10, 250 - torch.arange(7) * 20, torch.arange(7) * 11])
    distance = (pixels[:, None] - table[:, :, None, None]).abs().amax(dim=0)
    return distance.min(dim=0)


@pytest.mark.parametrize("size", [(61, 47), (40, 83), (7, 90)])
@pytest.mark.parametrize("flip", [True, False])
def test_without_scaling_every_pixel_keeps_its_colour_and_label_together(size, flip):
    image, labels = blocks(*size)
    transform = data.training(48, mean=MEAN, std=STD, scale=(1, 1), flip=flip)
    for _ in range(8):
        new_image, new_labels = transform(image, labels)
        assert new_image.shape == (3, 48, 48)
        assert new_image.dtype == torch.float32
        assert new_labels.shape == (48, 48)
        assert new_labels.dtype == torch.int64
        assert type(new_image) is type(new_labels) is torch.Tensor
        inside = new_labels != VOID
        assert inside.sum() == min(size[0], 48) * min(size[1], 48)
        assert (new_image[:, ~inside] == 0).all()  # padding is the mean colour
        distance, shown = colours_of(new_image)
        assert torch.equal(shown[inside], new_labels[inside])
        assert distance[inside].max() < 0.01


@pytest.mark.parametrize("factor", [0.5, 0.77, 1.5, 2.3])
def test_scaled_image_and_labels_stay_aligned(factor):
    image, labels = blocks(61, 53)
    height, width = round(61 * factor), round(53 * factor)
    crop = max(height, width)
    transform = data.training(crop, mean=MEAN, std=STD, scale=(factor, factor))
    new_image, new_labels = transform(image, labels)
    inside = new_labels != VOID
    assert inside.sum() == height * width
    # Away from borders between blocks the colour is pure, and must be the one of the label.
    reach = 2 if factor <= 1 else 3
    near = torch.stack(
        [new_labels.roll((y, x), (0, 1)) for y in range(-reach, reach + 1) for x in range(-reach, reach + 1)]
    )
    pure = (near == new_labels).all(dim=0) & inside
    distance, shown = colours_of(new_image)
    assert pure.sum() > 0.1 * inside.sum()
    assert torch.equal(shown[pure], new_labels[pure])
    assert distance[pure].max() < 1.5


@pytest.mark.parametrize("factor", [0.31, 0.73, 1.37, 1.9])
def test_scaling_does_not_shift_labels_against_the_image(factor):
    labels = (torch.arange(100)[:, None] + torch.arange(100) >= 100).long()
    image = (labels * 255).to(torch.uint8).expand(3, -1, -1)
    side = round(100 * factor)
    transform = data.training(side, mean=(0,) * 3, std=(255,) * 3, scale=(factor, factor), flip=False)
    new_image, new_labels = transform(image, labels)
    shift = (new_image[0].sum() - new_labels.sum()) / side  # across the edge, in pixels of the result
    assert abs(shift) < 0.5


def test_flips_happen_half_of_the_time_and_scales_fill_their_range():
    torch.manual_seed(0)
    image, labels = blocks(48, 48)
    flip = data.training(48, mean=MEAN, std=STD, scale=(1, 1))
    flipped = sum(torch.equal(flip(image, labels)[1], labels.flip(1)) for _ in range(200))
    assert 70 < flipped < 130
    scale = data.training(100, mean=MEAN, std=STD, scale=(0.5, 2.0))
    sides = [int((scale(image, labels)[1] != VOID).sum()) ** 0.5 / 48 for _ in range(200)]
    assert 0.5 <= min(sides) < 0.6
    assert 1.9 < max(sides) <= 2.0
    never = data.training(48, mean=MEAN, std=STD, scale=(1, 1), flip=False)
    assert all(torch.equal(never(image, labels)[1], labels) for _ in range(20))


def test_crops_come_from_everywhere():
    torch.manual_seed(0)
    labels = torch.arange(16).reshape(4, 4)
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    transform = data.training(1, mean=MEAN, std=STD, scale=(1, 1))
    assert {transform(image, labels)[1].item() for _ in range(300)} == set(range(16))


def test_the_smallest_pictures_pass():
    transform = data.training(3, mean=MEAN, std=STD, scale=(0.1, 0.1))
    image, labels = transform(*blocks(1, 1))
    assert image.shape == (3, 3, 3)
    assert (labels == 0).sum() == 4


@pytest.mark.parametrize("arguments", [{"crop": 0}, {"scale": (0, 1)}, {"scale": (2, 1)}])
def test_impossible_crops_and_scales_are_errors(arguments):
    message = failure(data.training, **{"crop": 8, **arguments}, mean=MEAN, std=STD, kind=BadUsage)
    assert "crop >= 1 and 0 < low <= high" in message


@pytest.mark.parametrize("size", [(30, 50), (50, 30), (90, 70)])
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_a_base_size_is_that_of_the_shorter_side_whatever_the_picture_has(size, factor):
    image, labels = blocks(*size)
    transform = data.training(100, mean=MEAN, std=STD, scale=(factor, factor), base=24, pad="black")
    new_image, new_labels = transform(image, labels)
    inside = new_labels != VOID
    height, width = (int(inside.any(dim=axis).sum()) for axis in (1, 0))
    assert min(height, width) == 24 * factor
    assert max(height, width) == round(24 * factor * max(size) / min(size))
    black = torch.tensor([-mean / std for mean, std in zip(MEAN, STD, strict=True)])
    torch.testing.assert_close(new_image[:, ~inside], black[:, None].expand(-1, int((~inside).sum())))
