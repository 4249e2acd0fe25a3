"""Transductive self-training: pictures of unseen classes without labels, and which of their pixels get one."""

from dataclasses import replace

import pytest
import torch

from conftest import fresh_model, make_small
from joem import data, engine
from joem.engine import Model
from joem.errors import BadUsage
from joem.methods.self_training import agreeing, surest
from joem.models import Hypercolumns
from joem.vocabulary import VOID


def with_unseen(name, **method):
    """A recipe whose training pictures show unseen classes, and its data."""
    own = {"transductive": True, "unseen": [data.scenes.vocabulary().unseen[0]], "train_count": 16}
    recipe = make_small(name, self_training=0.25, **method).changed(data=own)
    problem = engine.open_problem(recipe.data)
    everything = engine.open_problem(recipe.data, every_mask=True)
    return recipe, replace(problem, train=everything.train)


def test_pictures_of_unseen_classes_come_without_a_label():
    _, problem = with_unseen("zs3net")
    found = data.seen_only(problem.train, problem.vocabulary, problem.rule)
    assert problem.rule == "unlabel"
    assert len(found) == len(problem.train)
    void = 0
    for index in range(len(found)):
        truth, given = problem.train.labels(index), found.labels(index)
        holds = torch.isin(truth, torch.tensor(problem.vocabulary.unseen_indices)).any()
        assert torch.equal(given, torch.full_like(truth, VOID) if holds else truth)
        assert torch.equal(found[index].labels, given)
        data.guard(given, problem.vocabulary)
        void += int(holds)
    assert 0 < void < len(found)
    assert (found.class_pixels()[:, list(problem.vocabulary.unseen_indices)] == 0).all()


@pytest.mark.parametrize("name", ["zs3net", "spnet"])
def test_transductive_training_is_recorded_in_the_model(name, tmp_path):
    recipe, problem = with_unseen(name)
    model = engine.train(recipe, tmp_path / "run", problem=problem)
    assert model.method.stages[-1] == "self_train"
    assert "unlabelled" in [each.how for each in Model.load(tmp_path / "run").teaching]


def test_pictures_without_labels_are_refused_where_nobody_labels_them():
    recipe = make_small("joem").changed(data={"transductive": True})
    with pytest.raises(BadUsage, match=r"joem does not label them itself: set --method\.self_training"):
        engine.train(recipe)


def test_the_surest_share_against_a_loop():
    torch.manual_seed(0)
    confidence, candidates = torch.rand(2, 5, 7), torch.rand(2, 5, 7) < 0.6
    values = sorted(
        (float(x) for x, c in zip(confidence.flatten(), candidates.flatten(), strict=True) if c), reverse=True
    )
    least = values[round(0.25 * len(values)) - 1]
    assert torch.equal(surest(confidence, candidates, 0.25), candidates & (confidence >= least))
    assert not surest(confidence, torch.zeros_like(candidates), 0.25).any()


def test_views_agree_where_a_mirror_image_and_scales_are_named_alike():
    pictures = torch.zeros(1, 3, 16, 16)
    pictures[..., 8:] = 1.0
    by_content = lambda view: (view[:, 0] > 0.5).long()  # noqa: E731
    by_place = lambda view: (torch.arange(view.shape[-1]) * 2 >= view.shape[-1]).long().expand(view[:, 0].shape)  # noqa: E731
    assert agreeing(by_content, pictures, by_content(pictures)).float().mean() > 0.8
    assert not agreeing(by_place, pictures, by_place(pictures)).any()
    columns = Hypercolumns(pictures[:, :1])
    alike = agreeing(lambda view: (view.values[:, 0] > 0.2).long(), columns, (columns.values[:, 0] > 0.2).long())
    assert not alike[0, :, 7].any()  # beside the other half
    assert alike[0, :, :6].all()


def test_strict_names_void_pixels_that_several_views_agree_on():
    model = fresh_model(make_small("spnet", self_training=0.5))
    method = model.method.eval()
    method.begin("self_train")
    images, labels = torch.randn(1, 3, 32, 32), torch.full((1, 32, 32), VOID)
    labels[:, :16] = 0
    with torch.no_grad():
        units = torch.nn.functional.normalize(method.vectors, dim=1)
        logits = torch.einsum("bchw,kc->bkhw", method.projection(method.encoded(images)), units)
        small = labels[:, :: 32 // logits.shape[2], :: 32 // logits.shape[3]]
        found = method._pseudo_labels(images, logits, small)
    new = (found != small).nonzero().tolist()
    assert all(int(small[tuple(at)]) == VOID for at in new)
    for b, y, x in new:
        best = max(model.vocabulary.unseen_indices, key=lambda label: float(logits[b, label, y, x]))
        assert int(found[b, y, x]) == best
    assert method.uses_unseen_words
