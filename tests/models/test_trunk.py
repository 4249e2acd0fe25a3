"""Large pictures on their way into the backbone."""

import pytest
import torch

from joem.models import build_trunk, trunk
from joem.settings import ModelSettings


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


def test_the_form_for_inference_is_kept_until_a_weight_changes():
    model = build_trunk(ModelSettings(backbone="tu-tf_efficientnet_lite0", side=32)).eval()
    quick, pictures = model.for_inference(), torch.randn(1, 3, 40, 50)
    assert model.for_inference() is quick
    assert set(model.state_dict()) == set(build_trunk(ModelSettings(backbone="tu-tf_efficientnet_lite0")).state_dict())
    with torch.no_grad():
        torch.testing.assert_close(quick(pictures).maps, model(pictures).maps, rtol=1e-3, atol=1e-5)
        next(model.backbone.parameters()).mul_(2)
        torch.testing.assert_close(model.for_inference()(pictures).maps, model(pictures).maps, rtol=1e-3, atol=1e-5)
    assert model.for_inference() is not quick
