"""Large pictures on their way into the backbone."""

import pytest
import torch

from joem.models import trunk


@pytest.mark.parametrize(("side", "size"), [(32, (301, 203)), (320, (400, 700)), (32, (17, 300)), (64, (20, 30))])
def test_a_picture_normalised_in_bands_is_the_same_to_the_last_bit(monkeypatch, side, size):
    class Nothing(torch.nn.Module):
        channels, strides = (3,), (1,)

        def forward(self, pictures):
            return pictures

    model = trunk.Trunk(Nothing(), (120.0, 121.0, 122.0), (58.0, 57.0, 59.0), side)
    picture = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    whole = model(model.normalised(picture)[None])
    monkeypatch.setattr(trunk, "_LARGE", 500)
    assert min(model.normalised(picture).shape[1:]) <= side
    assert torch.equal(model(model.normalised(picture)[None]), whole)
    assert torch.equal(model(model.normalised(picture.expand(2, -1, -1, -1)))[1:], whole)
