from dataclasses import replace

import pytest
import torch
from PIL import Image

from conftest import make_tiny, spread
from joem import data, engine
from joem.decision import Decision, apollonius
from joem.engine import Model
from joem.errors import BadUsage
from joem.report import picture_grid as grids
from joem.report.picture_grid import Column, picture_grid
from joem.report.sheets import spread_unseen
from joem.vocabulary import VOID


@pytest.fixture
def problem():
    return engine.open_problem(make_tiny(data={"val_count": 30}).data)


@pytest.fixture
def column(problem):
    model = Model.create(make_tiny(), problem.vocabulary)
    spread(model, problem.val[0].image)
    return Column("one\nAC", model, Decision("ac", {"sigma": 0.9}))


def test_the_labels_are_those_of_the_rule_on_every_picture(column, problem):
    found = grids.labels_of(column, problem, [4, 1])
    model = column.model
    for labels, index in zip(found, (4, 1), strict=True):
        image = problem.val[index].image
        with torch.no_grad():
            features = model.features(image)
        unseen = problem.vocabulary.unseen_indices
        expected = apollonius(features, model.prototypes(), unseen, 0.9, size=image.shape[1:])[0]
        assert torch.equal(labels, expected)
    assert len(torch.unique(torch.stack(found))) > 1


def test_pictures_are_chosen_by_their_masks_alone(problem):
    vocabulary, candidates = problem.vocabulary, []
    for index in range(len(problem.val)):  # the definition, in a slow loop
        labels = problem.val.labels(index)
        counts = {label: int((labels == label).sum()) for label in vocabulary.unseen_indices}
        label = max(counts, key=lambda each: counts[each])
        if counts[label] >= 0.05 * int((labels != VOID).sum()):
            candidates.append((label, index))
    candidates = [index for _, index in sorted(candidates)]
    assert len(candidates) > 8
    step = len(candidates) / 4
    assert spread_unseen(problem, 4) == [candidates[int(step * (place + 0.5))] for place in range(4)]
    assert spread_unseen(problem, 1000) == candidates
    seen_only = data.restrict(problem.val, vocabulary.seen)
    for none in (
        replace(problem, val=data.relabel(seen_only, vocabulary.names)),
        replace(problem, vocabulary=vocabulary.with_unseen(())),
    ):
        with pytest.raises(BadUsage, match="No evaluation picture shows an unseen class"):
            spread_unseen(none)


def shown(monkeypatch, column, problem, **options):
    """The labels that are painted, the truth first, and the names in the legend."""
    painted, told = [], []
    overlay, legend = grids.overlay, grids.room_with_legend
    monkeypatch.setattr(grids, "overlay", lambda *parts, **more: painted.append(parts[1]) or overlay(*parts, **more))
    monkeypatch.setattr(grids, "room_with_legend", lambda *parts, **more: told.append(parts) or legend(*parts, **more))
    image = picture_grid([column], problem, [0], **options)
    ((_, _, entries, star),) = told
    return image, painted, [name for name, _ in entries], star


def test_the_legend_has_all_that_is_painted_with_the_vocabularys_colours(monkeypatch, column, problem):
    image, (truth, labels), names, star = shown(monkeypatch, column, problem)
    assert torch.equal(truth, problem.val.labels(0))
    present = sorted({*torch.unique(truth).tolist(), *torch.unique(labels).tolist()} - {VOID})
    assert names == [problem.vocabulary.starred[label] for label in present]
    assert star == any(label in problem.vocabulary.unseen_indices for label in present)
    assert image.width == 3 * 264 + 8
    colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
    assert {problem.vocabulary.colours[label] for label in present} <= colours


def test_the_background_is_masked_by_the_truth(monkeypatch, column, problem):
    background = problem.vocabulary.index(problem.vocabulary.background)
    kept = problem.val.labels(0) != background
    _, (truth, labels), names, _ = shown(monkeypatch, column, problem, mask_background=True)
    expected = grids.labels_of(column, problem, [0])[0]
    assert (labels[~kept] == VOID).all()
    assert torch.equal(labels[kept], expected[kept])
    assert torch.equal(truth[kept], problem.val.labels(0)[kept])
    without = replace(  # as in the SPNet setting, where the background is no class
        problem,
        vocabulary=problem.vocabulary.without_background(),
        val=data.relabel(problem.val, problem.vocabulary.without_background().names),
    )
    bare = Column("", Model.create(make_tiny(), without.vocabulary), Decision())
    _, (truth, labels), names, _ = shown(monkeypatch, bare, without, mask_background=True)
    assert torch.equal(labels == VOID, ~kept)
    assert "background" not in names
    assert (grids.labels_of(bare, without, [0])[0] != VOID).all()


def test_a_picture_has_its_name_in_it():
    plain = torch.full((3, 60, 90), 128, dtype=torch.uint8)
    image = grids._titled(plain, "2007_000033")
    assert isinstance(image, Image.Image)
    assert image.size == (256, 171)
    assert image.getpixel((200, 20)) == (128, 128, 128)
    assert len(image.crop((0, 140, 100, 171)).getcolors(1 << 16)) > 10
