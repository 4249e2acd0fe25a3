"""The comparison actually run, on tiny scenes."""

import csv
import json
import math

import pytest
import yaml
from small_studies import compared, own_generators, small_recipe

from conftest import assert_same_weights, stop_after
from joem import calibration, cli, decision, engine, methods, protocols, studies
from joem import recipe as recipes
from joem.decision import Decision
from joem.decision.rules import GAMMA, Rule
from joem.engine import Interrupted
from joem.errors import BadUsage, JoemError
from joem.studies import comparison


@pytest.fixture
def recipe():
    return small_recipe()


@pytest.fixture
def trainings(monkeypatch):
    """The methods that were trained, one entry per training."""
    found, original = [], engine.train

    def train(settings, *args, **options):
        found.append(settings.method.name)
        return original(settings, *args, **options)

    monkeypatch.setattr(engine, "train", train)
    return found


def test_every_method_runs_in_one_comparison_and_is_written(recipe, tmp_path):
    found = compared(recipe, tmp_path, own=own_generators(recipe), timing=True)
    run = [name for name in methods.METHODS if name != "blend"]  # there is no recipe that says which experts
    assert [row.variant.method for row in found.rows] == run
    files = studies.write(found, tmp_path, "joem compare")
    assert {path.suffix for path in files} == {".html", ".md", ".csv", ".tex", ".json"}
    assert all(path.stat().st_size > 200 for path in files)
    lines = {line["row"]: line for line in csv.DictReader((tmp_path / "methods.csv").open())}
    assert len(lines) == len(run)
    saved = {row["row"]: row for row in json.loads((tmp_path / "methods.json").read_text())["rows"]}
    for row in found.rows:
        rules = found.results[row.variant.name][0]["rules"]
        own = [] if row.rule in {"cs", "ac"} else [row.rule]
        assert list(rules) == (["nn"] if row.rule == "nn" else ["nn", "cs", "ac", *own])
        area = found.results[row.variant.name][0]["ausuc"]
        assert saved[row.title]["ausuc"]["mean"] == area
        assert area is None or 0 <= area <= 100  # None where the pictures do not show both sides
        assert (
            float(lines[row.title]["miou_seen"])
            == saved[row.title]["miou_seen"]["mean"]
            == rules[row.rule]["miou_seen"]
        )
        assert row.title in (tmp_path / "methods.md").read_text()
    head, body = studies.score_table(found)
    costs = dict(zip((cells[0] for cells in body), (cells[-1] for cells in body), strict=True))
    assert head[-1] == "adding a class"
    for name in ("JoEm", "SPNet", "DeViSE"):
        assert costs[name].endswith(" ms")
    assert costs["ZS3Net"].endswith("s, trains transfer")
    assert costs["CSRL-style"].endswith("s, trains transfer")
    assert costs["supervised (sees every mask)"] == "masks needed"


def test_lambda_is_chosen_on_the_folds_and_then_trained(recipe, tmp_path, trainings, monkeypatch):
    """Rows that fix lambda keep theirs; a stop in between goes on where it was."""
    options = {"table": "ablation", "folds": 1, "lambdas": (0.5, 2.0)}
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interrupted):
            compared(recipe, tmp_path, "joem", "joem-bar", **options)
    found = compared(recipe, tmp_path, "joem", "joem-bar", **options)
    chosen = calibration.Folds(recipe, found.problem, tmp_path / "joem", (0.5, 2.0), used=1).choose()
    assert chosen.sc_weight in (0.5, 2.0)
    used = {name: results[0]["recipe"]["method"]["sc_weight"] for name, results in found.results.items()}
    assert used == {"joem": chosen.sc_weight, "joem-bar": 0.0}
    assert engine.Model.load(tmp_path / "joem/seed-0").recipe.method.sc_weight == chosen.sc_weight
    assert sorted(path.name for path in (tmp_path / "joem").iterdir()) == ["lambda-0.5", "lambda-2", "seed-0"]
    assert found.to_dict()["lambdas"] == [0.5, 2.0]
    assert "and so was lambda, of 0.5, 2" in studies.write(found, tmp_path, "")[1].read_text()
    assert "adding a class" not in studies.score_table(found)[0]
    count = len(trainings)
    compared(recipe, tmp_path, "joem", "joem-bar", **options)
    assert len(trainings) == count


def test_rates_and_lengths_are_tried_alike_for_every_row_and_the_best_are_trained(recipe, tmp_path, trainings):
    options = {"folds": 1, "paces": calibration.Paces((0.5, 1.0), (1.0, 2.0))}
    found = compared(recipe, tmp_path, "joem", "devise", "supervised", **options)
    # Two rates, another length, the run; what sees every mask has the run alone.
    assert sorted(trainings) == sorted(["joem", "devise"] * 4 + ["supervised"])
    assert list(found.trials) == ["joem", "devise"]
    for name, tried in found.trials.items():
        assert len(tried) == options["paces"].trials == 3
        best = calibration.best_pace(tried)
        trained = recipes.Recipe.from_dict(found.results[name][0]["recipe"]).train
        assert trained.visual.lr == recipe.train.visual.lr * best.rate
        assert trained.epochs == recipe.train.epochs * best.length
        assert engine.Model.load(tmp_path / name / str(best) / "seed-0").recipe.train == trained
        assert {path.name for path in (tmp_path / name).iterdir()} == {*map(str, tried)}
    files = studies.write(found, tmp_path, "")
    assert "trials" in json.loads(files[-1].read_text())["rows"][0]
    assert "rate 0.5, length 1" in files[1].read_text()
    assert "as many trials for every row" in files[1].read_text()
    compared(recipe, tmp_path, "joem", "devise", "supervised", **options)
    assert len(trainings) == 9
    with pytest.raises(BadUsage, match="chosen on folds"):
        compared(recipe, tmp_path, "joem", folds=0, paces=options["paces"])
    with pytest.raises(BadUsage, match="no whole number"):  # before anything is trained
        compared(recipe, tmp_path, "joem", folds=1, paces=calibration.Paces((1.0,), (0.3,)))


def test_a_rate_at_which_a_training_fails_scores_nothing(recipe, tmp_path, monkeypatch):
    train, fast = calibration.choosing.train_in, recipe.train.visual.lr * 50

    def fails(folder, own, problem):
        if own.train.visual.lr == fast or own.method.name == "devise":
            raise JoemError("the loss is not a number")
        return train(folder, own, problem)

    monkeypatch.setattr(calibration.choosing, "train_in", fails)
    found = compared(recipe, tmp_path, "joem", "devise", folds=1, paces=calibration.Paces((1.0, 50.0)))
    assert found.trials["joem"][calibration.Pace(50.0)] == -math.inf
    assert [row.title for row in found.rows] == ["JoEm"]
    assert found.failures == ("devise: the loss is not a number",)
    assert [studies.tables.trial_table(found)[1][0][index] for index in (0, 2)] == ["JoEm", "failed"]
    assert (
        json.loads(studies.write(found, tmp_path, "")[-1].read_text())["rows"][0]["trials"]["rate-50-length-1"] is None
    )


def test_what_is_done_is_not_done_again(recipe, tmp_path, trainings):
    first = compared(recipe, tmp_path, "joem", seeds=2)
    assert trainings == ["joem", "joem"]
    again = compared(recipe, tmp_path, "joem", seeds=2)
    assert trainings == ["joem", "joem"]
    assert again.to_dict() == first.to_dict()
    compared(recipe, tmp_path, "joem", "spnet", seeds=3)
    assert trainings == ["joem", "joem", "joem", "spnet", "spnet", "spnet"]
    assert sorted(path.name for path in (tmp_path / "joem").iterdir()) == ["seed-0", "seed-1", "seed-2"]
    assert not list(tmp_path.glob("*/*/checkpoints"))


def test_an_interrupted_comparison_goes_on_where_it_was(recipe, tmp_path, monkeypatch):
    whole = compared(recipe, tmp_path / "whole", "two_stage").results["two_stage"][0]
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Interrupted):
            compared(recipe, tmp_path / "parts", "two_stage")
    assert not (tmp_path / "parts/two_stage/seed-0/training.json").exists()
    parts = compared(recipe, tmp_path / "parts", "two_stage").results["two_stage"][0]
    assert parts["rules"]["nn"]["per_class"] == whole["rules"]["nn"]["per_class"]
    assert parts["train_seconds"] is None
    assert_same_weights(*(engine.Model.load(tmp_path / name / "two_stage/seed-0") for name in ("whole", "parts")))


def test_another_recipe_in_the_same_folder_is_refused(recipe, tmp_path):
    compared(recipe, tmp_path, "devise")
    with pytest.raises(JoemError, match=r"batch_size was 8, now 4\): give another --out"):
        compared(recipe.changed(train={"batch_size": 4}), tmp_path, "devise")


def test_a_row_may_have_a_recipe_of_its_own(recipe, tmp_path):
    own = recipe.changed(
        method={"name": "spnet", "stage_lengths": {"train": 2.0}},
        train={"visual": {"lr": 0.5}},
        decision={"rule": "cs", "gamma": 0.25},
    )
    found = compared(recipe, tmp_path, "spnet", "devise", own={"spnet": own})
    used = {name: result[0]["recipe"]["train"]["visual"]["lr"] for name, result in found.results.items()}
    assert used == {"spnet": 0.5, "devise": recipe.train.visual.lr}
    assert found.results["spnet"][0]["rules"]["cs"]["gamma"] == 0.25
    assert "Stages of another length, as a multiple of that: SPNet (train 2)." in studies.scale(found)


def test_one_failure_does_not_stop_the_others(recipe, tmp_path, monkeypatch, capsys):
    original = engine.train

    def train(settings, *args, **options):
        if settings.method.name == "spnet":
            raise JoemError("out of luck")
        return original(settings, *args, **options)

    monkeypatch.setattr(engine, "train", train)
    with pytest.raises(JoemError, match=r"(?s)Nothing could be run.*spnet: out of luck"):
        compared(recipe, tmp_path, "spnet")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    words = ["compare", "--recipe", str(tmp_path / "tiny.yaml"), "--methods", "spnet,devise", "--seeds", "2"]
    assert cli.main([*words, "--folds", "0", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "| DeViSE " in printed.out
    assert "Could not be run: spnet: out of luck." in (tmp_path / "methods.md").read_text()
    assert "1 could not be run; the same command runs only these again:\n  spnet: out of luck" in printed.err


def choice(**values):
    """What stands for `Folds`: notes who asked, and chooses these values."""
    asked, chosen = [], Decision(**values)

    class Chosen(calibration.Folds):
        def jobs(self):
            return {}

        def choose(self):
            asked.append((self.recipe.method.name, self.recipe.train.seed, self.used))
            return calibration.Choice(chosen, None, [], [])

    return asked, Chosen


def test_parameters_are_chosen_once_per_method_on_held_out_seen_classes(recipe, tmp_path, monkeypatch):
    asked, chosen = choice(rule="ac", values={"sigma": 0.61, "gamma": 0.4})
    monkeypatch.setattr(comparison, "Folds", chosen)
    found = compared(recipe, tmp_path, "joem", "supervised", seeds=2, folds=3)
    assert asked == [("joem", 0, 3)]
    for result in found.results["joem"]:
        assert (result["rules"]["ac"]["sigma"], result["rules"]["cs"]["gamma"]) == (0.61, 0.4)
    studies.write(found, tmp_path, "joem compare")
    assert "sigma and gamma were chosen on held-out seen classes" in (tmp_path / "methods.md").read_text()
    again = compared(recipe, tmp_path, "joem", folds=0)
    assert again.results["joem"][0]["rules"]["ac"]["sigma"] == recipe.decision.value
    studies.write(again, tmp_path, "joem compare")
    assert "sigma and gamma are the recipe's own" in (tmp_path / "methods.md").read_text()
    assert asked == [("joem", 0, 3)]


def test_a_new_rule_is_compared_with_the_others(recipe, tmp_path, monkeypatch):
    toy = Rule("toy", "toy", "As CS.", decision.get("cs").turning, GAMMA)
    monkeypatch.setitem(decision.RULES, "toy", toy)
    found = compared(recipe, tmp_path, "joem")
    assert studies.rule_table(found)[0] == ["hIoU", "NN", "CS", "AC", "TOY", "had seen before"]


def test_the_ablation_has_the_papers_rows_and_shares_runs(recipe, tmp_path, trainings):
    found = compared(recipe, tmp_path, table="ablation")
    assert [row.title for row in found.rows] == [
        "L_ce + L_center, NN",
        "L_ce + L_bar, NN",
        "L_ce + L_center + L_sc, NN",
        "L_ce + L_bar + L_sc, NN",
        "L_ce + L_bar + L_sc, CS",
        "L_ce + L_bar + L_sc, AC",
    ]
    assert len(trainings) == 4
    settings = {name: result[0]["recipe"]["method"] for name, result in found.results.items()}
    assert (settings["joem-center"]["r"], settings["joem-center"]["sc_weight"]) == (1, 0.0)
    assert (settings["joem-bar"]["r"], settings["joem-bar"]["sc_weight"]) == (recipe.method.r, 0.0)
    assert (settings["joem-center-sc"]["r"], settings["joem-center-sc"]["sc_weight"]) == (1, recipe.method.sc_weight)
    published = protocols.published_tables()["ablation"]["rows"]
    assert [row.published.hiou for row in found.rows] == [row["hiou"] for row in published]
    assert studies.score_table(found)[0][6] == "paper, context-zs3-4: seen"
    assert "numbers are of context-zs3-4 and not of scenes, which was run here" in studies.scale(found)
    compared(recipe, tmp_path, "joem")  # the table of methods has nothing new to train or to score for it
    assert len(trainings) == 4


def test_rows_with_names_decide_by_the_rule_that_folds_choose(recipe, tmp_path, monkeypatch):
    rows = studies.rows("methods", recipe, ["joem", "supervised"])
    monkeypatch.setattr(comparison, "rows", lambda *_: rows)
    monkeypatch.setattr(comparison._Runs, "results", lambda *_: dict.fromkeys(("joem", "supervised"), ()))
    monkeypatch.setattr(comparison, "Folds", choice(rule="cs")[1])
    for folds, expected in ((1, "cs"), (0, "ac")):
        found = studies.compare(recipe, tmp_path, "names", folds=folds)
        assert [row.rule for row in found.rows] == [expected, "nn"]


def test_wrong_wishes_are_named(recipe, tmp_path):
    with pytest.raises(BadUsage, match="at least one seed, got 0"):
        studies.compare(recipe, tmp_path, seeds=0)
    with pytest.raises(BadUsage, match=r"of which joem, blend-mixture, .* start from the recipe lite"):
        studies.compare(recipe, tmp_path, "names")


def test_data_that_cannot_be_opened_are_told_once(tmp_path, capsys):
    words = ["compare", "--recipe", "lite", "--methods", "joem,spnet", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert capsys.readouterr().err.count("Dataset 'voc' is read from files") == 1


def test_the_command_line_prints_and_writes(recipe, tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    words = ["compare", "--recipe", str(tmp_path / "tiny.yaml"), "--methods", "joem, devise", "--seeds", "1"]
    words += ["--folds", "0", "--out", str(tmp_path / "out"), "--train.epochs", "2"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "| JoEm " in printed
    assert "Compare orders, not values" in printed
    assert "2 epochs per stage" in printed
    assert "--train.epochs 2" in (tmp_path / "out/methods.md").read_text()
    assert cli.main([*words, "--json"]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["joem", "devise"]
    assert cli.main(["compare", "--table", "generator", "--out", str(tmp_path)]) == 2
    assert "Did you mean 'generators'" in capsys.readouterr().err
    assert cli.main(["compare", "--recipe", "nowhere", "--out", str(tmp_path)]) == 2
    assert "Unknown recipe 'nowhere'" in capsys.readouterr().err


def test_the_command_line_finds_the_recipes_of_rows(recipe, tmp_path, monkeypatch, capsys):
    box = tmp_path / "box"
    box.mkdir()
    (box / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    changes = {"method": {"name": "devise"}, "train": {"visual": {"lr": 0.5}, "batch_size": 6}}
    (box / "tiny-devise.yaml").write_text(yaml.safe_dump({"extends": "tiny", **changes}))
    monkeypatch.setattr(recipes, "_folder", lambda: box)
    words = ["compare", "--recipe", "tiny", "--methods", "devise,supervised", "--seeds", "1", "--folds", "0"]
    words += ["--out", str(tmp_path / "out"), "--train.batch_size", "4", "--method.r", "2", "--json"]
    assert cli.main(words) == 0
    used = {row["method"]: row["runs"][0]["recipe"]["train"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert (used["devise"]["visual"]["lr"], used["supervised"]["visual"]["lr"]) == (0.5, recipe.train.visual.lr)
    assert used["devise"]["batch_size"] == used["supervised"]["batch_size"] == 4  # the command line has the last word
