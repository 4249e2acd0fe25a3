from collections import Counter

import pytest
import torch

from joem import calibration, data
from joem.calibration import folds
from joem.data.scenes import Scenes
from joem.engine import Problem
from joem.errors import BadUsage, JoemError
from joem.methods.blend import Blend
from joem.recipe import load as load_recipe
from joem.semantics.giveaways import giveaways
from joem.vocabulary import Vocabulary


def test_folds_never_show_an_unseen_class_and_partition_the_seen_ones():
    vocabulary = Vocabulary(
        ("background", "red circle", "blue circle", "red cross", "blue cross"), ("blue cross",), "background"
    )
    pictures = Scenes(60, 64, classes=vocabulary.names[1:])
    problem = Problem(vocabulary, "exclude", pictures, pictures)
    found = calibration.fold_problems(problem, 3, seed=0)
    held_out = [name for fold in found for name in fold.vocabulary.unseen]
    assert sorted(held_out) == ["blue circle", "red circle", "red cross"]
    for fold in found:
        assert "blue cross" not in fold.vocabulary.names
        assert fold.vocabulary.background == "background"
        for part in (fold.train, fold.val):
            for index in range(len(part)):
                assert part.labels(index).max() < 4
                assert part[index].labels.max() < 4
        shown, kept = ({part[index].name for index in range(len(part))} for part in (fold.train, fold.val))
        assert len(fold.val)
        assert not shown & kept
    with pytest.raises(BadUsage, match="2 to 3 folds, got 4"):
        calibration.fold_problems(problem, 4, seed=0)


def test_no_fold_is_too_few():
    pictures = Striped(("background", "cat", "dog", "bus", "cow"))
    problem = Problem(Vocabulary(pictures.names, ("cow",), "background"), "exclude", pictures, pictures)
    for used in (0, -1):
        with pytest.raises(BadUsage, match=f"At least one fold must be trained, got {used}"):
            calibration.fold_problems(problem, 2, seed=0, used=used)


def test_by_default_as_many_classes_are_held_out_as_are_unseen():
    names = tuple(f"c{i}" for i in range(20))
    assert folds.proportional_folds(Vocabulary(names, names[:4])) == 5
    assert folds.proportional_folds(Vocabulary(names)) == 20


def test_strict_names_of_unseen_and_held_out_classes_do_not_teach_in_folds(without_company):
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    strict, met = load_recipe("lite-blend-strict"), []
    for fold in calibration.fold_problems(problem, 3, seed=0):
        method = folds.fold_recipe(strict, problem, fold).method
        (held_out,) = fold.vocabulary.unseen
        met.append(held_out)
        out = Blend.with_vocabulary(method, fold.vocabulary).names_out
        assert set(out) == {*giveaways("cow"), *giveaways(held_out)}
    assert sorted(met) == ["bus", "cat", "dog"]


def test_folds_take_as_many_steps_as_the_whole_training():
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    fold = calibration.fold_problems(problem, 3, seed=0)[0]
    left = len(data.seen_only(fold.train, fold.vocabulary, "exclude"))
    recipe = load_recipe("scenes").changed(train={"epochs": 10})
    assert folds.fold_recipe(recipe, problem, fold).train.epochs == round(10 * 40 / left) > 10


def test_too_few_pictures_are_told(tiny):
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    cats, others = data.showing(problem.train, ["cat"]), data.showing(problem.train, ["dog", "bus"])
    fold = Problem(problem.vocabulary.with_unseen(("cat",)), "exclude", others, data.View(problem.train, []))
    assert folds.fold_recipe(tiny, problem, Problem(fold.vocabulary, "exclude", problem.train, fold.val))
    assert folds.fold_recipe(tiny, problem, Problem(fold.vocabulary, "exclude", others, cats))
    with pytest.raises(JoemError, match="None of the 0 pictures kept for scoring shows cat"):
        folds.fold_recipe(tiny, problem, fold)


def test_few_pictures_of_held_out_classes_are_joined_by_those_that_training_leaves_out():
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    (fold, *_) = calibration.fold_problems(problem, 3, seed=0)
    (held_out,) = fold.vocabulary.unseen
    label = fold.vocabulary.index(held_out)
    counted = Counter()
    for pictures, times in folds.scoring_parts(fold):
        for index in range(len(pictures)):
            counted[pictures.name(index)] += times
            assert set(pictures.labels(index).unique().tolist()) <= {0, 1, 2, 3}
    shows = {str(index): names[1 + index % 3] == held_out for index in range(40)}
    assert {name for name, shown in shows.items() if shown} <= set(counted)  # kept or not, training never sees them
    assert {counted[name] for name, shown in shows.items() if shown} == {1}
    trained = {fold.train.name(index) for index in range(len(fold.train))}
    others = [name for name in counted if not shows[name]]
    assert others
    assert not trained & set(others)
    assert {counted[name] for name in others} == {4}
    assert label in fold.vocabulary.unseen_indices


def test_many_pictures_of_held_out_classes_are_enough():
    names = ("background", "cat", "dog", "bus", "cow")
    problem = Problem(Vocabulary(names, ("cow",), "background"), "exclude", Striped(names), Striped(names))
    (fold, *_) = calibration.fold_problems(problem, 3, seed=0)
    many = Problem(fold.vocabulary, "exclude", fold.train, data.View(fold.val, [i % len(fold.val) for i in range(200)]))
    assert folds.scoring_parts(many) == [(many.val, 1)]


class Striped:
    """Forty pictures, each showing background and one class but the last."""

    background = "background"

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return 40

    def labels(self, index):
        return torch.tensor([[0, 1 + index % (len(self.names) - 2)]])

    def name(self, index):
        return str(index)
