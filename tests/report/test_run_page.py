import re

import pytest
import torch

from joem import cli, engine, progress
from joem.decision import RULES
from joem.report import Page, plots, run_page
from joem.vocabulary import VOID


@pytest.fixture(scope="module")
def trained(shared_tiny, tmp_path_factory):
    run = tmp_path_factory.mktemp("trained") / "run"
    with progress.hidden():
        engine.train(shared_tiny.changed(train={"epochs": 1}, data={"val_count": 6}), run)
    return run


def command(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_report_is_one_whole_file(trained, tmp_path, capsys):
    code, printed, _ = command(capsys, "report", trained, "--figures", tmp_path / "figures")
    assert code == 0
    assert "report.html" in printed
    page = (trained / "report.html").read_text()
    for part in ("trade-off", "Every class", "What is taken for what", "Best pictures", "Worst pictures", "Training"):
        assert part in page
    assert "Before training it had seen: backbone: nothing; words: text." in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page)  # nothing is fetched
    assert plots.INK not in page  # the ink follows the page, so that it can be read in the dark
    names = engine.Model.load(trained).vocabulary.names
    assert all(name in page for name in names)
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == [
        "apollonius-1.png", "boundary-1.png", "boundary-2.png", "boundary-3.png", "boundary-4.png",
        "relations-1.png", "relations-2.png", "space-1.png", "space-2.png",
    ]  # fmt: skip


def test_a_method_of_several_stages_has_a_report(tiny, tmp_path, capsys):
    few = {"train_count": 24, "val_count": 6, "crop": 32, "size": 32}
    settings = {"name": "zs3net", "samples": 8, "noise": 4}
    engine.train(tiny.changed(data=few, train={"epochs": 1}, method=settings), tmp_path / "run")
    assert command(capsys, "report", tmp_path / "run")[::2] == (0, "")
    page = (tmp_path / "run/report.html").read_text()
    assert "from metrics-segment.csv, metrics-transfer.csv." in page


def test_the_page_says_what_evaluate_says(trained):
    model = engine.Model.load(trained)
    problem = engine.open_problem(model.recipe.data)
    found = run_page.measure(model, problem)
    (expected,) = engine.evaluate(model, problem, [model.recipe.decision])
    assert torch.equal(found.own.confusion, expected.confusion)
    assert repr(found.own.scores) == repr(expected.scores)  # nan is not nan
    assert repr(found.by_rule[model.recipe.decision.rule]) == repr(expected.scores)
    assert list(found.by_rule) == list(RULES)
    assert len(found.per_picture) == len(problem.val)


def test_pictures_of_void_only_have_no_score_and_are_not_shown(trained):
    model = engine.Model.load(trained)
    problem = engine.open_problem(model.recipe.data)
    pictures = problem.val

    class Blind:
        names, background = pictures.names, pictures.background

        def __len__(self):
            return 2

        def __getitem__(self, index):
            sample = pictures[index]
            return sample._replace(labels=torch.full_like(sample.labels, VOID)) if index == 0 else sample

        def labels(self, index):
            return self[index].labels

        def name(self, index):
            return str(index)

    problem = engine.Problem(problem.vocabulary, problem.rule, problem.train, Blind())
    found = run_page.measure(model, problem)
    assert found.per_picture[0].isnan()
    page = Page("title", "lead")
    run_page._pictures(page, model, problem, found)
    assert "Best pictures" in "".join(page._parts)
    assert "Worst pictures" not in "".join(page._parts)  # there is one picture with a score, and it is the best


def test_a_pair_is_two_names(trained, capsys):
    code, _, error = command(capsys, "report", trained, "--pair", "red circle")
    assert code == 2
    assert "--pair takes a seen and an unseen class" in error
