"""What runs where nothing learns makes what the plain layers make."""

import copy
import pickle
import platform

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from joem.models import FeatureMaps, HypercolumnHead, ImageNetClassifier, inference
from joem.models.backbones.efficientnet_lite import Conv2dSame, _fused
from joem.models.inference import RELU, RELU6, Derived, FusedConv2d, replaced

SIZES = st.integers(1, 23)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.tuples(SIZES, SIZES),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([(1, 5, 7), (6, 6, 6), (3, 9, 6)]),
    st.sampled_from([None, RELU, RELU6]),
    st.booleans(),
    st.integers(0, 10**6),
)
@torch.no_grad()
def test_a_fused_convolution_is_the_operations_one_after_another(
    batch, size, kernel, stride, dilation, channels, limits, adds, seed
):
    torch.manual_seed(seed)
    groups, inputs, outputs = channels
    weight, bias = torch.randn(outputs, inputs // groups, kernel, kernel), torch.randn(outputs)
    where = (stride, dilation * (kernel // 2), dilation, groups)
    fused = FusedConv2d(weight, bias, limits, *((each, each) for each in where[:3]), groups)
    for height, width in (size, (size[1] + 3, size[0])):  # weights are kept for the first size
        x = torch.randn(batch, inputs, height, width)
        expected = F.conv2d(x, weight, bias, *where)
        added = torch.randn_like(expected) if adds else None
        expected = expected if added is None else expected + added
        expected = expected if limits is None else expected.clamp(*limits)
        for form in (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
            torch.testing.assert_close(form(x, added), expected, atol=1e-4, rtol=1e-4)
        exact = fused.double()(x.double(), None if added is None else added.double())
        torch.testing.assert_close(exact.float(), expected, atol=1e-4, rtol=1e-4)
        fused.float()


@settings(max_examples=40, deadline=None)
@given(SIZES, SIZES, st.sampled_from([3, 5]), st.sampled_from([(1, 3, 8), (6, 6, 6)]), st.integers(0, 10**6))
@torch.no_grad()
def test_the_padding_at_the_end_stays_there(height, width, kernel, channels, seed):
    torch.manual_seed(seed)
    groups, inputs, outputs = channels
    plain = Conv2dSame(inputs, outputs, kernel, 2, groups=groups, bias=False)
    norm = torch.nn.BatchNorm2d(outputs).eval()
    norm.running_mean.normal_()
    x = torch.randn(2, inputs, height, width)
    torch.testing.assert_close(_fused(plain, norm, RELU6)(x), F.relu6(norm(plain(x))), atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64" or not torch.backends.mkldnn.is_available(), reason="no oneDNN")
def test_torch_has_the_operations():
    assert inference._has_fused()


@torch.no_grad()
def test_without_the_operations_the_plain_ones_do_the_work(monkeypatch):
    x, fused = torch.randn(1, 4, 5, 6), FusedConv2d(torch.randn(3, 4, 1, 1), torch.randn(3), RELU)
    expected = fused(x)
    monkeypatch.setattr(FusedConv2d, "fused", None)
    inference._has_fused.cache_clear()
    assert not inference._has_fused()
    torch.testing.assert_close(fused(x), expected)
    monkeypatch.undo()
    inference._has_fused.cache_clear()


@pytest.mark.parametrize("strides", [(8, 16, 16), (8, 16, 32), (4, 8), (14,)])
@pytest.mark.parametrize("relu", [False, True])
@torch.no_grad()
def test_a_head_for_inference_makes_the_same_features(strides, relu):
    torch.manual_seed(0)
    maps = [torch.randn(2, 2 + i, -(-61 // stride), -(-97 // stride)) for i, stride in enumerate(strides)]
    head = HypercolumnHead([each.shape[1] for each in maps], strides, channels=4, hidden=6, relu=relu, copies=3).eval()
    head.layers[0].running_mean.normal_()
    head.layers[0].running_var.uniform_(0.1, 3)
    inputs = FeatureMaps(maps, strides)
    torch.testing.assert_close(head.for_inference()(inputs), head(inputs), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_classifier_for_inference_makes_the_same_logits():
    torch.manual_seed(0)
    classifier, last = ImageNetClassifier(5, [3, 4, 8]), torch.randn(2, 5, 3, 7)
    for each in classifier.buffers():
        each.normal_()
    torch.testing.assert_close(classifier.for_inference()(last), classifier(last), atol=1e-3, rtol=1e-4)


def test_what_is_derived_is_kept_until_a_weight_changes_or_moves():
    layer, derived, made = torch.nn.BatchNorm1d(2), Derived(), []

    def count():
        made.append(1)
        return len(made)

    assert [derived.of([layer], count) for _ in range(2)] == [1, 1]
    with torch.no_grad():
        layer.weight.add_(1)
    assert derived.of([layer], count) == 2
    layer.running_mean = torch.ones(2)
    assert derived.of([layer], count) == 3
    assert copy.deepcopy(derived).of([layer], count) == 4
    assert derived.of([layer], count) == 3


def test_other_parts_leave_the_module_as_it_is():
    whole = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    other = replaced(whole, **{"1": torch.nn.Tanh()})
    assert isinstance(other[1], torch.nn.Tanh)
    assert isinstance(whole[1], torch.nn.ReLU)
    assert other[0] is whole[0]
