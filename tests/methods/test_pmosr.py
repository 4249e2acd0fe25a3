"""PMOSR-style: the nearest prototype is the largest logit of seen classes and of unseen ones behind a detector."""

import pytest
import torch
import torch.nn.functional as F

from conftest import fresh_model, make_small
from joem import decision


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    found = fresh_model(make_small("pmosr", naming=0.05))
    with torch.no_grad():
        found.method.detector.bias.fill_(0.3)
    return found


def test_distances_are_those_of_the_logits(model):
    method, names = model.method.eval(), (*model.vocabulary.names, "orange dog")
    vectors = torch.cat([model.vectors, torch.randn(1, model.vectors.shape[1])])
    with torch.no_grad():
        images = torch.randn(1, 3, 32, 32)
        v = F.normalize(method.encoded(images), dim=1)[0].flatten(1).T
        mu = F.normalize(method.semantic(vectors), dim=1)
        rejected = v @ method.detector.weight[0] + method.detector.bias
        logits = torch.stack(
            [
                v @ mu[index] if name in model.vocabulary.seen else rejected + 0.05 * (v @ mu[index])
                for index, name in enumerate(names)
            ],
            dim=1,
        )
        distances = decision.distances(method.features(images), method.prototypes(vectors, names))[0].flatten(1).T
    squares = distances.square() + 2 * logits
    torch.testing.assert_close(squares, squares[:, :1].expand_as(squares), atol=1e-4, rtol=1e-4)


def test_unseen_names_are_compared_only_where_a_pixel_is_rejected(model):
    """With a small share of naming, which unseen names there are does not change what is taken for seen."""
    method, unseen = model.method.eval(), model.vocabulary.unseen_indices
    with torch.no_grad():
        images = torch.randn(1, 3, 32, 32)
        v = F.normalize(method.encoded(images), dim=1)
        lead = method.detector(v.movedim(1, -1))[..., 0]
        known = F.normalize(method.semantic(model.vectors), dim=1)[list(model.vocabulary.seen_indices)]
        best = torch.einsum("bchw,kc->bkhw", v, known).amax(dim=1)
        labels = decision.nearest(method.features(images), model.prototypes())
        named = torch.isin(labels, torch.tensor(unseen))
    clear = (lead - best).abs() > 0.06
    assert torch.equal(named[clear], (lead > best)[clear])
