from dataclasses import replace

import pytest
import torch

from joem import engine
from joem.decision import RULES
from joem.engine import Model
from joem.errors import BadUsage
from joem.methods import METHODS
from joem.methods.classifier import ClassifierMethod
from joem.report import embedding
from joem.vocabulary import VOID


@pytest.fixture
def model(tiny):
    return Model.create(tiny, engine.open_problem(tiny.data).vocabulary)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_figures(tiny, name):
    headless = {"head": None, "freeze_backbone": True} if name == "blend" else {}
    recipe = tiny.changed(method={"name": name}, model=headless)
    problem = engine.open_problem(recipe.data)
    drawn = embedding.draw(Model.create(recipe, problem.vocabulary), problem)
    without_row_for_void = {"boundary"} if issubclass(METHODS[name], ClassifierMethod) else set()
    assert set(drawn) == set(embedding.CAPTIONS) - without_row_for_void


def test_the_plane_of_two_prototypes_keeps_both_distances():
    points, start, end = torch.randn(50, 7), torch.randn(7), torch.randn(7)
    flat = embedding._beside_axis(points, start, end)
    span = (end - start).norm()
    torch.testing.assert_close(flat.norm(dim=1), (points - start).norm(dim=1))
    torch.testing.assert_close((flat - torch.tensor([span, 0.0])).norm(dim=1), (points - end).norm(dim=1))


def lines_between(model, pair=None):
    """What is drawn between two prototypes, by label, and the distances of a line's points to both."""
    prototypes = model.prototypes()
    features = torch.randn(300, prototypes.shape[1])
    (figure,) = embedding.apollonius(model, features, torch.zeros(300, dtype=torch.int64), pair)
    (axes,) = figure.axes
    span = max(star.get_xdata()[0] for star in axes.lines if star.get_marker() == "*")

    def distances(name):
        names = [line.get_label() for line in axes.lines if line.get_label().startswith(tuple(map(str.upper, RULES)))]
        (line,) = [line for line, label in zip(axes.collections, names, strict=True) if label.startswith(name)]
        points = torch.cat([torch.tensor(path.vertices) for path in line.get_paths()])
        return points.norm(dim=1), (points - torch.tensor([span, 0.0])).norm(dim=1)

    return axes, span, distances


def test_the_lines_that_are_drawn_are_where_the_rules_decide(model):
    gamma = 0.3 * float(torch.pdist(model.prototypes()).min())
    model.recipe = replace(model.recipe, decision=model.recipe.decision.replace(sigma=0.6, gamma=gamma))
    _, span, distances = lines_between(model)
    seen, unseen = distances("AC")  # a circle
    torch.testing.assert_close(seen / unseen, torch.full_like(seen, 0.6), rtol=1e-3, atol=0)
    seen, unseen = distances("CS")  # a hyperbola
    torch.testing.assert_close(unseen - seen, torch.full_like(seen, gamma), rtol=0, atol=1e-3 * span)
    seen, unseen = distances("NN")
    torch.testing.assert_close(unseen, seen, rtol=1e-3, atol=0)


def test_rules_that_correct_nothing_or_everything_have_no_line(model):
    reach = float(torch.pdist(model.prototypes()).max())
    model.recipe = replace(model.recipe, decision=model.recipe.decision.replace(sigma=1.0, gamma=2 * reach))
    axes, _, _ = lines_between(model)
    assert len(axes.collections) == 1  # nearest neighbour


def test_the_two_classes_of_the_circle_can_be_chosen(model):
    pair = (model.vocabulary.seen[-1], model.vocabulary.unseen[0])
    axes, span, _ = lines_between(model, pair)
    ends = model.prototypes(pair)
    assert span == pytest.approx(float((ends[0] - ends[1]).norm()), rel=1e-5)
    assert {text.get_text() for text in axes.texts} == {pair[0], f"{pair[1]} *"}
    with pytest.raises(BadUsage, match="Unknown seen class"):
        lines_between(model, pair[::-1])


def test_figures_without_unseen_classes_leave_out_the_circle(model):
    model.vocabulary = model.vocabulary.with_unseen(())
    features = torch.randn(20, model.prototypes().shape[1])
    assert embedding.apollonius(model, features, torch.zeros(20, dtype=torch.int64)) == []


def test_the_plane_brings_each_cloud_to_its_prototype_whatever_all_features_have_in_common():
    torch.manual_seed(0)
    prototypes, labels = torch.randn(6, 8), torch.arange(6).repeat_interleave(20)
    features = 0.2 * prototypes[labels] + 5 * torch.ones(8)  # another scale, and far away
    stars, dots = embedding._common_plane(prototypes, features, labels, range(6))
    torch.testing.assert_close(dots, stars[labels], rtol=0, atol=1e-4)


def test_virtual_prototypes_follow_the_definition():
    prototypes = torch.tensor([[0.0], [4.0], [100.0]])  # the last one for void
    labels = torch.tensor([[0, 1], [0, 1]])
    assert embedding.virtual_prototypes(labels, prototypes, (4, 4), r=1)[0, 0].tolist() == [0, 0, 4, 4]
    assert embedding.virtual_prototypes(labels, prototypes, (4, 4), r=2)[0, 0].tolist() == [0, 1, 3, 4]
    void = torch.full((2, 2), VOID)
    assert (embedding.virtual_prototypes(void, prototypes, (4, 4), r=2) == 100).all()


def test_features_at_boundaries_have_their_distances_to_both_targets(model, tiny):
    """Against a slow loop over pixels: dashed lines lead to the prototype of the label, solid ones to the blend."""
    problem = engine.open_problem(tiny.data)
    (axes,) = embedding.boundary_pull(model, problem, r=4).axes
    names = model.vocabulary.names
    first, second = (names.index(line.get_label()) for line in axes.lines if line.get_marker() == "*")
    prototypes = model.prototypes()
    span, own, virtual = (prototypes[first] - prototypes[second]).norm(), [], []
    table = torch.cat([prototypes, torch.full_like(prototypes[:1], 1e6)])  # void is far away
    for index in range(len(problem.val)):
        sample = problem.val[index]
        with torch.no_grad():
            features = model.features(sample.image)[0]
        blended = embedding.virtual_prototypes(sample.labels, table, features.shape[1:], r=4)
        sharp = embedding.virtual_prototypes(
            sample.labels, torch.arange(len(table)).float()[:, None], features.shape[1:], 1
        )
        for row in range(features.shape[1]):
            for column in range(features.shape[2]):
                target, label = blended[:, row, column], int(sharp[0, row, column])
                to_first, to_second = ((target - prototypes[end]).norm() / span for end in (first, second))
                between = abs(float(to_first + to_second) - 1) < 1e-3 and 0.1 < float(to_first) < 0.9
                if between and label in (first, second):
                    feature = features[:, row, column]
                    own.append(float((feature - prototypes[label]).norm() / span))
                    virtual.append(float((feature - target).norm() / span))
    told = [line.get_label() for line in axes.lines if " on average" in line.get_label()]
    means = [torch.tensor(each).mean() for each in (own, virtual)]
    assert own
    assert told == [
        f"to its own prototype: {means[0]:.2f} on average",
        f"to its virtual prototype: {means[1]:.2f} on average",
    ]
    with pytest.raises(BadUsage, match="with r = 1"):
        embedding.boundary_pull(model, problem, r=1)


def test_other_centres_can_be_drawn(model):
    features, labels = torch.randn(60, model.prototypes().shape[1]), torch.arange(60) % len(model.vocabulary)
    centres = torch.randn_like(model.prototypes())
    figures = embedding.space(model, features, labels, centres, "ZS3Net: ")
    assert [figure.axes[0].get_title() for figure in figures] == ["ZS3Net: seen classes", "ZS3Net: unseen classes"]
    stars, _ = embedding._common_plane(centres, features, labels, model.vocabulary.seen_indices)
    drawn = [line.get_xydata()[0].tolist() for line in figures[1].axes[0].lines if line.get_markersize() == 13]
    torch.testing.assert_close(torch.tensor(drawn, dtype=stars.dtype), stars[list(model.vocabulary.unseen_indices)])
