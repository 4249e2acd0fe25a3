import pickle
import threading
from dataclasses import replace

import pytest
import torch

from joem import data, engine, parallel, scores
from joem.calibration import Sweep
from joem.decision import Decision, calibrated
from joem.engine import Model, PictureScores, Scoring
from joem.errors import BadUsage, JoemError
from joem.segmenter import Segmenter
from joem.vocabulary import Vocabulary

DECISIONS = [Decision("nn"), Decision("cs", {"gamma": 0.1}), Decision("ac", {"sigma": 0.7})]


@pytest.fixture
def problem(tiny):
    return engine.open_problem(tiny.data)


@pytest.fixture
def model(tiny, problem):
    return Model.create(tiny, problem.vocabulary)


def test_evaluation_equals_a_loop_over_pictures(model, problem):
    results = engine.evaluate(model, problem, DECISIONS)
    segmenter = Segmenter(model)
    for wanted, result in zip(DECISIONS, results, strict=True):
        counts = torch.zeros_like(result.confusion)
        for index in range(len(problem.val)):
            sample = problem.val[index]
            found = segmenter.encode(sample.image).segment(rule=wanted.rule, **wanted.values)
            for truth, label in zip(sample.labels.flatten().tolist(), found.labels.flatten().tolist(), strict=True):
                counts[truth, label] += 1
        assert torch.equal(result.confusion, counts)
        expected = scores.scores(counts, problem.vocabulary.unseen_indices)
        assert result.scores.to_dict() == expected.to_dict()
        told = result.to_dict()
        assert told["images"] == 3
        assert wanted.to_dict().items() <= told.items()


@pytest.mark.parametrize("cached", [False, True])
def test_pictures_read_ahead_give_the_same(tiny, problem, tmp_path, cached):
    if cached:
        tiny = tiny.changed(
            model={"head": {"name": "hypercolumn", "channels": 8}, "freeze_backbone": True},
            train={"cache": str(tmp_path)},
        )
    model, readers = Model.create(tiny, problem.vocabulary), set()

    class Watched(data.View):
        def __getitem__(self, index):
            readers.add(threading.get_ident())
            return super().__getitem__(index)

    watched = replace(problem, val=Watched(problem.train, range(len(problem.train)), problem.vocabulary.names))
    found = {}
    for workers in (3, 0):
        model.recipe = tiny.changed(data={"workers": workers})
        readers.clear()
        per_picture = PictureScores(DECISIONS[2], len(problem.vocabulary))
        scoring = Scoring(DECISIONS[1], problem.vocabulary)
        engine.run(model, watched, [per_picture, scoring])
        found[workers] = per_picture.result(), scoring.confusion
        assert (threading.get_ident() in readers) == (workers == 0 and not cached)
        assert bool(readers) != (workers == 0 and cached)  # stored by then
    assert len(found[0][0]) == len(problem.train)
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[3], strict=True))


def test_what_cannot_be_read_ahead_is_told(model, problem):
    model.recipe = model.recipe.changed(data={"workers": 2})

    class Broken(data.View):
        def __getitem__(self, index):
            raise JoemError(f"picture {index} is broken")

    broken = replace(problem, val=Broken(problem.val, range(3), problem.vocabulary.names))
    with pytest.raises(JoemError, match="picture 0 is broken"):
        engine.evaluate(model, broken, DECISIONS)


def test_worst_confusions_are_sorted_by_share():
    counts = torch.tensor([[8, 2, 0], [0, 1, 9], [0, 0, 5]])
    result = engine.Evaluation(Decision(), scores.scores(counts, []), counts, Vocabulary(("a", "b", "c")), 3, 1.0)
    assert result.worst_confusions() == [("b", "c", 90.0), ("a", "b", 20.0)]


def test_pictures_are_scored_one_by_one_and_others_may_be_given(model, problem):
    per_picture = PictureScores(DECISIONS[2], len(problem.vocabulary))
    engine.run(model, problem, [per_picture], problem.train)
    assert len(per_picture.result()) == len(problem.train)
    for index in (0, 7):
        alone = replace(problem, val=data.View(problem.train, [index]))
        (found,) = engine.evaluate(model, alone, [DECISIONS[2]])
        shown = found.confusion.sum(1) > 0
        assert per_picture.result()[index] == torch.tensor(found.scores.per_class)[shown].nanmean()


def test_without_pictures_there_is_nothing_to_evaluate(model, problem):
    with pytest.raises(BadUsage, match="There is no picture to evaluate on"):
        engine.evaluate(model, replace(problem, val=data.View(problem.val, [])), DECISIONS)


def test_processes_share_the_pictures_and_all_know_the_sum(model, problem, monkeypatch):
    count = len(problem.vocabulary)

    def evaluators():
        sweeps = [Sweep(name, (rule.parameter.neutral, 0.5), count) for name, rule in calibrated().items()]
        return [Scoring(DECISIONS[1], problem.vocabulary), PictureScores(DECISIONS[2], count), *sweeps]

    def found(scoring, per_picture, *sweeps):
        curves = [sweep.curve(problem.vocabulary.unseen_indices).to_dict() for sweep in sweeps]
        return {**scoring.result().to_dict(), "pictures": per_picture.result().tolist(), "curves": curves}

    alone, first, second = evaluators(), evaluators(), evaluators()
    engine.run(model, problem, alone)
    for rank, own, gathered in (
        (1, second, lambda own: [(None, evaluators()), own]),  # before the first has seen anything
        (0, first, lambda own: [own, (None, pickle.loads(pickle.dumps(second)))]),
    ):
        monkeypatch.setattr(parallel, "rank_and_world", lambda rank=rank: (rank, 2))
        monkeypatch.setattr(parallel, "gathered", gathered)
        engine.run(model, problem, own)
    assert second[0].images == 1
    assert found(*first) == found(*alone)


def test_what_one_process_cannot_read_stops_all_with_its_reason(model, problem, monkeypatch):
    monkeypatch.setattr(parallel, "rank_and_world", lambda: (0, 2))
    monkeypatch.setattr(parallel, "gathered", lambda own: [own, (JoemError("b.png is broken"), [])])
    with pytest.raises(JoemError, match=r"b\.png is broken"):
        engine.run(model, problem, [Scoring(DECISIONS[0], problem.vocabulary)])


def test_a_model_of_stored_maps_reads_no_picture_twice(tiny, problem, tmp_path, monkeypatch):
    recipe = tiny.changed(
        model={
            "head": {"name": "hypercolumn", "channels": 8, "hidden": 16},
            "freeze_backbone": True,
            "freeze_norm": True,
        },
        train={"cache": str(tmp_path)},
    )
    model = Model.create(recipe, problem.vocabulary)
    (first,) = engine.evaluate(model, problem, [DECISIONS[2]])
    assert len(list(tmp_path.rglob("*.safetensors"))) == len(problem.val)
    monkeypatch.setattr(type(problem.val), "__getitem__", lambda *_: pytest.fail("a picture was read"))
    (second,) = engine.evaluate(model, problem, [DECISIONS[2]])
    assert torch.equal(first.confusion, second.confusion)
