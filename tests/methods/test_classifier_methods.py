"""Systems with a classifier or a projection as nearest-prototype problems."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import fresh_model, make_small
from joem import engine, methods
from joem.methods.classifier import ClassifierMethod, as_prototypes


@given(st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=30)
def test_prototypes_of_a_classifier_decide_as_its_logits(seed):
    random = torch.Generator().manual_seed(seed)
    weights, biases = torch.randn(5, 3, generator=random).double(), torch.randn(5, generator=random).double()
    points = 3 * torch.randn(40, 3, generator=random).double()
    found = torch.cdist(F.pad(points, (0, 1)), as_prototypes(weights, biases)).argmin(dim=1)
    assert torch.equal(found, (points @ weights.T + biases).argmax(dim=1))


@pytest.mark.parametrize("name", [name for name, each in methods.METHODS.items() if issubclass(each, ClassifierMethod)])
def test_the_nearest_prototype_is_the_largest_logit_of_the_method(name):
    model = fresh_model(make_small(name))
    method, pictures = model.method.eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features, logits = method.features(pictures), method.classifier(method.encoded(pictures))
        apart = torch.cdist(features.movedim(1, -1).flatten(0, 2).double(), model.prototypes().double())
    assert torch.equal(apart.argmin(dim=1), logits.movedim(1, -1).flatten(0, 2).argmax(dim=1))


def test_spnet_decides_by_products_and_devise_by_cosines():
    for name in ("spnet", "devise"):
        model = fresh_model(make_small(name))
        method, pictures = model.method.eval(), torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            features = method.features(pictures).movedim(1, -1).flatten(0, 2)
            plain = method.projection(method.encoded(pictures)).movedim(1, -1).flatten(0, 2)
        rows = model.prototypes()
        torch.testing.assert_close(rows, model.vectors / model.vectors.norm(dim=1, keepdim=True))
        found = torch.cdist(features.double(), rows.double()).argmin(dim=1)
        assert torch.equal(found, (plain.double() @ rows.double().T).argmax(dim=1))


def test_uncertainty_trains_and_takes_a_new_class():
    recipe = make_small("spnet", uncertainty=True)
    problem = engine.open_problem(recipe.data)
    model = engine.train(recipe, problem=problem)
    assert not model.method.needs_maps
    before = model.method.log_variance.weight.detach()
    assert before.abs().sum() > 0
    larger = engine.add_class(model, "orange dog", problem)
    assert torch.isfinite(larger.prototypes()).all()
