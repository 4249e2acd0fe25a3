"""Heads of timm's classifiers at every position, against the classifiers themselves."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from joem.errors import BadUsage, JoemError
from joem.models import TimmClassifier, build_backbone
from joem.settings import ModelSettings
from tiny_towers import stir

COUNT = 30


@pytest.mark.parametrize(
    "name",
    ["test_efficientnet", "test_convnext", "test_resnet", "test_mobilenetv4", "tiny_vit", "tiny_swin", "lcnet_035"],
)
@torch.no_grad()
def test_every_position_is_classified_as_if_it_were_the_picture(name, tmp_path):
    if name == "test_mobilenetv4" and not timm.is_model(name):
        pytest.skip("this timm does not have it")
    torch.manual_seed(0)
    whole = stir(timm.create_model(name, num_classes=COUNT)).eval()
    save_file(whole.state_dict(), file := tmp_path / "whole.safetensors")
    settings = ModelSettings(backbone=f"tu-{name}", weights=str(file), stride=32)
    classifier = TimmClassifier(settings.backbone, COUNT, range(0, COUNT, 3)).eval()
    classifier.take_weights(settings)
    picture = torch.randn(1, 3, 64, 64)
    backbone = build_backbone(settings.backbone, settings.weights, 32).eval()
    found = classifier(backbone(picture).maps[-1])
    final = whole.forward_features(picture)
    if final.dim() == 3:
        alone = final[0, whole.num_prefix_tokens :][:, None].expand(-1, 1 + whole.num_prefix_tokens, -1)
    elif name == "tiny_swin":
        alone = final.reshape(-1, 1, 1, final.shape[-1])
    else:
        alone = final.flatten(2)[0].T[:, :, None, None]
    expected = whole.forward_head(alone)[:, ::3]
    torch.testing.assert_close(found.flatten(2)[0].T, expected, rtol=1e-4, atol=1e-5)
    assert not classifier.state_dict()
    kept = TimmClassifier(settings.backbone, COUNT, [0], saved=True)
    assert kept.state_dict()
    assert not list(kept.parameters())


def test_what_is_no_classifier_is_told(tmp_path):
    classifier = TimmClassifier("tu-test_resnet", COUNT, [0, 1])
    with pytest.raises(BadUsage, match=r"set --model\.weights imagenet or a file"):
        classifier.take_weights(ModelSettings(weights="none"))
    save_file(timm.create_model("test_resnet", num_classes=5).state_dict(), file := tmp_path / "other.safetensors")
    with pytest.raises(JoemError, match=r"is no classifier of 30 names: .*of another shape"):
        classifier.take_weights(ModelSettings(weights=str(file)))
