import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import calibration, data, decision, engine, scores
from joem.calibration import Curve, Sweep
from joem.data.scenes import Scenes
from joem.engine import Problem
from joem.errors import BadUsage
from joem.vocabulary import VOID, Vocabulary


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
    values = (0.0, 0.3, 0.9, 2.0) if rule == "cs" else (1.0, 0.9, 0.55, 0.1)
    ranking = decision.rank(features, prototypes, unseen, size=(9, 7))
    sweep = Sweep(rule, values, classes)
    for image in range(2):  # in two parts, as a dataset comes
        sweep.update(decision.Ranking(*(field[image : image + 1] for field in ranking)), truth[image : image + 1])
    for value, matrix in zip(values, sweep.confusions(), strict=True):
        labels = decision.decide(ranking, rule, gamma=value, sigma=value)
        assert torch.equal(matrix, scores.confusion(truth, labels, classes))


def test_a_grid_must_run_away_from_nearest_neighbour():
    with pytest.raises(BadUsage, match="sigma must fall"):
        Sweep("ac", (0.5, 1.0), 3)
    with pytest.raises(BadUsage, match="gamma must rise"):
        Sweep("cs", (0.0, 0.0), 3)


def curve(*hious):
    points = tuple(scores.Scores(50, 50, hiou, 50, 50, ()) for hiou in hious)
    values = (1.0, 0.9, 0.8, 0.7)[: len(hious)]
    return Curve("ac", values, points, torch.zeros(len(hious), 1, 1))


def test_the_best_point_is_the_highest_and_the_first_of_equals():
    assert curve(40, 60, 60, 50).best == 1
    assert curve(40, 60, 60, 50).parameter == "sigma"


def test_the_least_correction_within_a_point_is_chosen():
    assert calibration._least_correction([curve(40, 59.5, 60, 50)]) == 0.9
    assert calibration._least_correction([curve(40, 58, 60, 50)]) == 0.8
    assert calibration._least_correction([curve(40, 58, 60, 50), curve(40, 62, 50, 50)]) == 0.9


def test_gamma_grid_ends_where_every_pixel_is_unseen(tiny):
    model = engine.Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    grid = calibration.gamma_grid(model)
    prototypes, unseen = model.prototypes(), model.vocabulary.unseen_indices
    features = torch.randn(1, prototypes.shape[1], 8, 8) * 3
    labels = decision.calibrated_stacking(features, prototypes, unseen, grid[-1] + 1e-3)
    assert torch.isin(labels, torch.tensor(unseen)).all()
    assert grid[0] == 0


def test_folds_never_show_an_unseen_class_and_partition_the_seen_ones():
    vocabulary = Vocabulary(
        ("background", "red circle", "blue circle", "red cross", "blue cross"), ("blue cross",), "background"
    )
    pictures = Scenes(60, 64, classes=vocabulary.names[1:])
    problem = Problem(vocabulary, "exclude", (), pictures, pictures)
    folds = calibration.fold_problems(problem, 3, seed=0)
    held_out = [name for fold in folds for name in fold.vocabulary.unseen]
    assert sorted(held_out) == ["blue circle", "red circle", "red cross"]
    for fold in folds:
        assert "blue cross" not in fold.vocabulary.names
        assert fold.vocabulary.background == "background"
        for part in (fold.train, fold.val):
            for index in range(len(part)):
                assert part.labels(index).max() < 4
                assert part[index].labels.max() < 4
        assert data.class_presence(fold.val)[:, fold.vocabulary.index(fold.vocabulary.unseen[0])].all()
    with pytest.raises(BadUsage, match="2 to 3 folds, got 4"):
        calibration.fold_problems(problem, 4, seed=0)


def test_cross_validation_trains_without_the_unseen_classes(tiny, monkeypatch):
    problem = engine.open_problem(tiny.data)
    tiny.train.epochs = 1
    met = []
    original = calibration.train

    def train(recipe, *, problem, progress):
        met.append(problem.vocabulary)
        return original(recipe, problem=problem, progress=progress)

    monkeypatch.setattr(calibration, "train", train)
    tiny.train.batch_size = 2
    choice = calibration.cross_validate(tiny, problem, folds=6, used=2, progress=False)
    assert len(met) == len(choice.folds) == 2
    for vocabulary in met:
        assert not set(vocabulary.names) & set(problem.vocabulary.unseen)
    assert choice.sigma in calibration.SIGMAS
    assert choice.gamma >= 0
    assert set(choice.to_dict()) == {"sigma", "gamma", "folds"}


def test_by_default_as_many_classes_are_held_out_as_are_unseen():
    names = tuple(f"c{i}" for i in range(20))
    assert calibration._proportional_folds(Vocabulary(names, names[:4])) == 5
    assert calibration._proportional_folds(Vocabulary(names)) == 20
