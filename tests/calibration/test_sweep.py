from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import REAL_DATA, fresh_model
from joem import calibration, data, decision, engine, protocols, scores
from joem.calibration import Curve, Sweep
from joem.decision.rules import GAMMA, SIGMA, Rule
from joem.errors import BadUsage
from joem.vocabulary import VOID

GRIDS = {
    "cs": (0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5),
    "ac": (1.0, 0.9, 0.7, 0.5, 0.3, 0.1),
    "ratio": (1.0, 0.9, 0.7, 0.5, 0.3, 0.1),
    "probability": (0.0, 0.1, 0.5, 0.9, 1.0),
}


def again(sweep, ranking, truth):
    """The confusion matrix at every value, by deciding again for each."""
    for value in sweep.values:
        yield scores.confusion(truth, decision.get(sweep.rule).decide(ranking, value), sweep.count)


def check(sweep, ranking, truth, unseen):
    curve = sweep.curve(unseen)
    is_unseen = torch.zeros(sweep.count, dtype=torch.bool)
    is_unseen[list(unseen)] = True
    for index, matrix in enumerate(again(sweep, ranking, truth)):
        assert torch.equal(sweep.confusion(index), matrix)
        assert repr(curve.scores[index]) == repr(scores.scores(matrix, list(unseen)))
        assert curve.true_unseen[index] == matrix.diagonal()[is_unseen].sum()
        assert curve.seen_as_unseen[index] == matrix[~is_unseen][:, is_unseen].sum()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 6),
    st.integers(0, 6),
    st.sampled_from(["cs", "ac", "ratio"]),
    st.integers(0, 1000),
)
def test_a_sweep_equals_deciding_again_for_every_value(classes, unseen_count, rule, seed):
    generator = torch.Generator().manual_seed(seed)
    unseen = list(range(min(unseen_count, classes)))
    features = torch.randn(2, 3, 4, 5, generator=generator)
    prototypes = torch.randn(classes, 3, generator=generator)
    truth = torch.randint(0, classes, (2, 9, 7), generator=generator)
    truth[torch.rand(truth.shape, generator=generator) < 0.2] = VOID
    ranking = decision.rank(features, prototypes, unseen, size=(9, 7))
    sweep = Sweep(rule, GRIDS[rule], classes)
    for image in range(2):  # in two parts, as a dataset comes
        part = decision.Ranking(*(field[image : image + 1] for field in ranking))
        sweep.update(image, part, truth[image : image + 1])
    check(sweep, ranking, truth, unseen)


distance = st.one_of(
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 2.5, 3.0, float("inf")]), st.floats(0, 4, width=32)
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["cs", "ac", "ratio"]),
    st.sampled_from([torch.float32, torch.float64]),
    st.lists(st.tuples(distance, distance, distance), min_size=1, max_size=12),
)
def test_a_sweep_is_exact_where_distances_tie_with_the_grid(rule, dtype, pixels):
    near, further, unseen_near = (torch.tensor(column, dtype=dtype) for column in zip(*pixels, strict=True))
    near = torch.where((near == float("inf")) & (unseen_near == float("inf")), 1.0, near)  # some class is near
    ranking = decision.Ranking(
        torch.zeros(len(pixels), dtype=torch.int64), near, torch.maximum(near, further),
        torch.ones(len(pixels), dtype=torch.int64), unseen_near,
    )  # fmt: skip
    truth = torch.arange(len(pixels)) % 2
    sweep = Sweep(rule, GRIDS[rule], 2)
    sweep.update(0, ranking, truth)
    check(sweep, ranking, truth, [1])


@pytest.mark.parametrize("rule", ["cs", "ac", "ratio"])
def test_thousands_of_classes_need_no_square_table(rule):
    count = 5000  # a dense table for the grid would hold 175 million numbers
    features, prototypes = torch.randn(1, 8, 12, 12), torch.randn(count, 8)
    unseen = range(4000, count)
    truth = torch.randint(0, count, (1, 24, 24))
    ranking = decision.rank(features, prototypes, unseen, size=(24, 24))
    sweep = Sweep(rule, GRIDS[rule], count)
    sweep.update(0, ranking, truth)
    assert sweep._counts.values().numel() <= 2 * truth.numel()
    matrix = list(again(sweep, ranking, truth))[2]
    assert torch.equal(sweep.confusion(2), matrix)
    assert repr(sweep.curve(unseen).scores[2]) == repr(scores.scores(matrix, unseen))


def test_parts_counted_apart_add_up():
    ranking = decision.rank(torch.randn(4, 3, 5, 5), torch.randn(6, 3), [4, 5])
    truth = torch.randint(0, 6, (4, 5, 5))
    truth[0] = VOID  # a picture without a label
    whole, parts = Sweep("ac", GRIDS["ac"], 6), [Sweep("ac", GRIDS["ac"], 6) for _ in range(2)]
    whole.update(0, ranking, truth)
    for image in range(4):
        one = decision.Ranking(*(field[image : image + 1] for field in ranking))
        parts[image % 2].update(image, one, truth[image : image + 1])
    parts[0].merge(parts[1])
    assert parts[0].curve([4, 5]) == whole.curve([4, 5])
    with pytest.raises(BadUsage, match="same rule, grid and classes"):
        whole.merge(Sweep("ratio", GRIDS["ac"], 6))


def test_one_pass_gives_the_scores_and_the_area_under_the_curve(tiny):
    torch.manual_seed(0)
    model, problem = fresh_model(tiny), engine.open_problem(tiny.data)
    decisions = [decision.Decision("nn"), decision.Decision("ac", {"sigma": 0.8})]
    found, area = calibration.evaluate(model, problem, decisions)
    plain = engine.evaluate(model, problem, decisions)
    assert all(torch.equal(one.confusion, other.confusion) for one, other in zip(found, plain, strict=True))
    assert area == calibration.sweep(model, problem, ["cs"])["cs"].area
    none = replace(problem, vocabulary=problem.vocabulary.with_unseen(()))
    assert calibration.evaluate(model, none, decisions[:1])[1] is None


@pytest.mark.parametrize("label", [-1, 3, 254])
def test_a_truth_outside_the_classes_is_an_error(label):
    ranking = decision.rank(torch.randn(1, 2, 1, 1), torch.randn(3, 2), [2])
    with pytest.raises(BadUsage, match="expected 0 to 2 or void"):
        Sweep("cs", (0.0,), 3).update(0, ranking, torch.tensor([[[label]]]))


@pytest.mark.real
@pytest.mark.skipif(not REAL_DATA.exists(), reason="needs PASCAL VOC")
@pytest.mark.parametrize("rule", ["cs", "ac", "ratio"])
def test_a_sweep_is_exact_on_real_pictures(rule):
    vocabulary = protocols.get("voc-zs3-4").vocabulary
    pictures = data.open("voc", str(REAL_DATA), "val")
    prototypes = torch.randn(21, 3) * 40 + 127  # colours stand for the classes: many pixels on every side
    sweep, rankings, truths = Sweep(rule, GRIDS[rule], 21), [], []
    for index in range(3):
        sample = pictures[index]
        ranking = decision.rank(sample.image[None].float(), prototypes, vocabulary.unseen_indices)
        sweep.update(index, ranking, sample.labels[None])
        rankings.append([field.flatten() for field in ranking])
        truths.append(sample.labels.flatten())
    ranking = decision.Ranking(*(torch.cat(fields) for fields in zip(*rankings, strict=True)))
    check(sweep, ranking, torch.cat(truths), vocabulary.unseen_indices)


def test_a_grid_must_run_away_from_nearest_neighbour():
    with pytest.raises(BadUsage, match="sigma must fall"):
        Sweep("ac", (0.5, 1.0), 3)
    with pytest.raises(BadUsage, match="gamma must rise"):
        Sweep("cs", (0.0, 0.0), 3)
    with pytest.raises(BadUsage, match=r"gamma must be in \[0,infinity\)"):
        Sweep("cs", (-1.0, 0.0), 3)
    with pytest.raises(BadUsage, match=r"Unknown rule to sweep 'nn'\. Available options are: cs, ac, ratio"):
        Sweep("nn", (0.0,), 3)


def curve(*hious):
    points = tuple(scores.Scores(50, 50, hiou, 50, 50, ()) for hiou in hious)
    values = (1.0, 0.9, 0.8, 0.7)[: len(hious)]
    return Curve("ac", values, points, (0,) * len(hious), (0,) * len(hious))


def test_the_best_point_is_the_highest_and_the_first_of_equals():
    assert curve(40, 60, 60, 50).best == 1
    assert curve(40, 60, 60, 50).parameter == "sigma"


def test_gamma_grid_ends_where_every_pixel_is_unseen(tiny):
    model = fresh_model(tiny)
    grid = calibration.new_sweeps(model, engine.open_problem(tiny.data), ["cs"])["cs"].values
    prototypes, unseen = model.prototypes(), model.vocabulary.unseen_indices
    features = torch.randn(1, prototypes.shape[1], 8, 8) * 3
    labels = decision.calibrated_stacking(features, prototypes, unseen, grid[-1] + 1e-3)
    assert torch.isin(labels, torch.tensor(unseen)).all()
    assert grid[0] == 0


def test_grids_may_be_given_by_parameter(tiny):
    problem = engine.open_problem(tiny.data)
    found = calibration.new_sweeps(fresh_model(tiny), problem, grids={"sigma": (1.0, 0.5)})
    assert found["ac"].values == found["ratio"].values == (1.0, 0.5)
    assert len(found["cs"].values) == 49


@pytest.mark.parametrize("parameter", [GAMMA, SIGMA])
def test_a_new_rule_is_swept_as_it_decides(parameter, monkeypatch):
    toy = Rule("toy", "toy", "Half of the margin.", lambda ranking: ranking.unseen_distance / 2, parameter)
    monkeypatch.setitem(decision.RULES, "toy", toy)
    ranking = decision.rank(torch.randn(2, 3, 5, 5), torch.randn(6, 3), [4, 5])
    truth = torch.randint(0, 6, (2, 5, 5))
    sweep = Sweep("toy", parameter.grid(2.0), 6)
    sweep.update(0, ranking, truth)
    check(sweep, ranking, truth, [4, 5])
    curve = sweep.curve([4, 5])
    assert repr(Curve.from_dict(curve.to_dict())) == repr(curve)
