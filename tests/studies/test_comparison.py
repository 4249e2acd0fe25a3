"""The comparison actually run, on tiny scenes."""

import csv
import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml

from joem import calibration, cli, compare, engine, methods, protocols
from joem import recipe as recipes
from joem.compare import quality, runs
from joem.compare.runs import summary
from joem.engine import Interrupted
from joem.errors import BadUsage, JoemError


@pytest.fixture
def recipe(tiny):
    tiny.data = replace(tiny.data, train_count=24, val_count=2, crop=32, size=32)
    tiny.train = replace(tiny.train, batch_size=8, epochs=1, save_every=1)
    generator = replace(tiny.method.generator, samples=8, noise=4, hidden=8)
    tiny.method = replace(tiny.method, generator=generator)
    return tiny


@pytest.fixture
def trainings(monkeypatch):
    """The methods that were trained, one entry per training."""
    found = []
    original = engine.train

    def train(settings, *args, **options):
        found.append(settings.method.name)
        return original(settings, *args, **options)

    monkeypatch.setattr(engine, "train", train)
    return found


def compared(recipe, out, *names, **options):
    return compare.run(recipe, out, names=names, **{"seeds": 1, "folds": 0, "progress": False, **options})


def test_every_method_runs_in_one_comparison_and_is_written(recipe, tmp_path):
    recipe.data.protocol = None
    found = compare.run(recipe, tmp_path, seeds=1, folds=0, progress=False)
    assert [row.variant.method for row in found.rows] == list(methods.METHODS)
    files = compare.write(found, tmp_path, "joem compare")
    assert {path.suffix for path in files} == {".html", ".md", ".csv", ".tex", ".json"}
    assert all(path.stat().st_size > 200 for path in files)
    lines = {line["row"]: line for line in csv.DictReader((tmp_path / "methods.csv").open())}
    assert len(lines) == len(methods.METHODS)
    saved = {row["row"]: row for row in json.loads((tmp_path / "methods.json").read_text())["rows"]}
    for row in found.rows:
        rules = found.results[row.variant.name][0]["rules"]
        assert set(rules) == ({"nn"} if row.rule == "nn" else {"nn", "cs", "ac"})
        assert (
            float(lines[row.title]["miou_seen"])
            == saved[row.title]["miou_seen"]["mean"]
            == rules[row.rule]["miou_seen"]
        )
        assert row.title in (tmp_path / "methods.md").read_text()
    head, body = compare.score_table(found)
    costs = dict(zip((cells[0] for cells in body), (cells[-1] for cells in body), strict=True))
    assert head[-1] == "adding a class"
    for name in ("JoEm", "SPNet", "DeViSE"):
        assert costs[name].endswith(" ms")
    assert costs["ZS3Net"].endswith("s, trains classify")
    assert costs["CSRL-style"].endswith("s, trains generate and classify")
    assert costs["supervised (sees every mask)"] == "masks needed"


def test_what_is_done_is_not_done_again(recipe, tmp_path, trainings):
    first = compared(recipe, tmp_path, "joem", seeds=2)
    assert trainings == ["joem", "joem"]
    again = compared(recipe, tmp_path, "joem", seeds=2)
    assert trainings == ["joem", "joem"]
    assert again.to_dict() == first.to_dict()
    compared(recipe, tmp_path, "joem", "spnet", seeds=3)
    assert trainings == ["joem", "joem", "joem", "spnet", "spnet", "spnet"]
    assert sorted(path.name for path in (tmp_path / "joem").iterdir()) == ["seed-0", "seed-1", "seed-2"]


def test_an_interrupted_comparison_goes_on_where_it_was(recipe, tmp_path, monkeypatch):
    from joem.engine import training

    whole = compared(recipe, tmp_path / "whole", "two_stage")
    original = training._Run.train_step

    def train_step(run, *batch):
        run.stop = run.step == 3
        return original(run, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(training._Run, "train_step", train_step)
        with pytest.raises(Interrupted):
            compared(recipe, tmp_path / "parts", "two_stage")
    assert not (tmp_path / "parts/two_stage/seed-0/result.json").exists()
    parts = compared(recipe, tmp_path / "parts", "two_stage")
    assert (
        parts.results["two_stage"][0]["rules"]["nn"]["per_class"]
        == (whole.results["two_stage"][0]["rules"]["nn"]["per_class"])
    )
    assert parts.results["two_stage"][0]["train_seconds"] is None
    weights = [engine.Model.load(tmp_path / name / "two_stage/seed-0") for name in ("whole", "parts")]
    for one, other in zip(*(model.method.state_dict().values() for model in weights), strict=True):
        assert torch.equal(one, other)


def test_another_recipe_in_the_same_folder_is_refused(recipe, tmp_path):
    compared(recipe, tmp_path, "devise")
    other = deepcopy(recipe)
    other.train.batch_size = 4
    with pytest.raises(JoemError, match="holds a run of another recipe: give another --out"):
        compared(other, tmp_path, "devise")


def test_a_method_may_have_a_recipe_of_its_own(recipe, tmp_path):
    own = deepcopy(recipe)
    own.train.visual.lr, own.decision.gamma = 0.5, 0.25
    own.method.stage_lengths = {"train": 2.0}
    found = compared(recipe, tmp_path, "spnet", "devise", own={"spnet": own})
    used = {name: result[0]["recipe"]["train"]["visual"]["lr"] for name, result in found.results.items()}
    assert used == {"spnet": 0.5, "devise": recipe.train.visual.lr}
    assert found.results["spnet"][0]["rules"]["cs"]["gamma"] == 0.25
    assert "Stages of another length, as a multiple of that: SPNet (train 2)." in compare.scale(found)


@pytest.mark.parametrize("section", ["data", "semantics", "model"])
def test_recipes_of_methods_share_what_is_compared(recipe, tmp_path, section):
    own = deepcopy(recipe)
    changed = {"data": {"crop": 16}, "semantics": {"centre": True}, "model": {"channels": 4}}[section]
    setattr(own, section, replace(getattr(own, section), **changed))
    with pytest.raises(BadUsage, match=f"The recipe of spnet has other settings of '{section}'"):
        compared(recipe, tmp_path, "spnet", own={"spnet": own})


def test_the_command_line_finds_the_recipes_of_methods(recipe, tmp_path, monkeypatch, capsys):
    box = tmp_path / "box"
    box.mkdir()
    (box / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    changes = {"train": {"visual": {"lr": 0.5}, "batch_size": 6}}
    (box / "tiny-devise.yaml").write_text(yaml.safe_dump({"extends": "tiny", **changes}))
    monkeypatch.setattr(recipes, "_folder", lambda: box)
    words = ["compare", "--protocol", "tiny", "--methods", "devise,supervised", "--seeds", "1", "--folds", "0"]
    assert cli.main([*words, "--out", str(tmp_path / "out"), "--train.batch_size", "4", "--json"]) == 0
    used = {row["method"]: row["runs"][0]["recipe"]["train"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert (used["devise"]["visual"]["lr"], used["supervised"]["visual"]["lr"]) == (0.5, recipe.train.visual.lr)
    assert used["devise"]["batch_size"] == used["supervised"]["batch_size"] == 4  # the command line has the last word


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_has_a_recipe_on_voc(name):
    shared, own = recipes.load("voc-zs3-4-lite"), recipes.load(f"voc-zs3-4-lite-{name}")
    assert (own.data, own.semantics, own.model) == (shared.data, shared.semantics, shared.model)
    assert (own.method.name, own.method.names) == (name, "none")
    assert own.decision.rule == methods.get(name).rule
    assert set(own.method.stage_lengths) <= set(methods.get(name).stages)


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
    words = ["compare", "--protocol", str(tmp_path / "tiny.yaml"), "--methods", "spnet,devise", "--seeds", "1"]
    assert cli.main([*words, "--folds", "0", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "| DeViSE " in printed.out
    assert "Could not be run: spnet: out of luck." in (tmp_path / "methods.md").read_text()
    assert "1 could not be run; the same command runs only these again:\n  spnet: out of luck" in printed.err


def test_parameters_are_chosen_once_per_method_on_held_out_seen_classes(recipe, tmp_path, monkeypatch):
    asked = []

    class Choice:
        def to_dict(self):
            return {"sigma": 0.61, "gamma": 0.4}

    def cross_validate(settings, problem, used, progress):
        asked.append((settings.method.name, settings.train.seed, used))
        return Choice()

    monkeypatch.setattr(runs.calibration, "cross_validate", cross_validate)
    found = compared(recipe, tmp_path, "joem", "supervised", seeds=2, folds=3)
    assert asked == [("joem", 0, 3)]
    for result in found.results["joem"]:
        assert (result["rules"]["ac"]["sigma"], result["rules"]["cs"]["gamma"]) == (0.61, 0.4)
    compare.write(found, tmp_path, "joem compare")
    assert "sigma and gamma were chosen on held-out seen classes" in (tmp_path / "methods.md").read_text()
    again = compared(recipe, tmp_path, "joem", folds=0)
    assert again.results["joem"][0]["rules"]["ac"]["sigma"] == recipe.decision.sigma
    compare.write(again, tmp_path, "joem compare")
    assert "sigma and gamma are the recipe's own" in (tmp_path / "methods.md").read_text()
    assert asked == [("joem", 0, 3)]


def test_the_ablation_has_the_papers_rows_and_shares_runs(recipe, tmp_path, trainings):
    found = compare.run(recipe, tmp_path, "ablation", seeds=1, folds=0, progress=False)
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
    assert compare.score_table(found)[0][5] == "paper, context-zs3-4: seen"
    assert "numbers are of context-zs3-4 and not of scenes, which was run here" in compare.scale(found)
    # the table of methods then trains only what is new, and evaluates what rules are missing
    compared(recipe, tmp_path, "joem")
    assert len(trainings) == 4


def test_the_embedding_space_table_has_the_papers_rows(recipe, tmp_path):
    found = compare.rows("embedding-space", recipe)
    numbers = {row.title: row.published and row.published.hiou for row in found}
    assert numbers == {
        "V->S": None,
        "S->V: L_center": 31.2,
        "S->V: L_bar + L_sc": 41.5,
        "ZS3Net": 40.6,
        "ZS3Net on JoEm's encoder": 43.4,
        "JoEm": 44.6,
    }
    assert found[1].variant.recipe(recipe, 0).method.r == 1


def test_published_numbers_stand_beside_ours(recipe):
    recipe.data.protocol = "voc-zs3-4"
    found = {row.variant.name: row.published for row in compare.rows("methods", recipe)}
    assert found["spnet"].hiou == 32.9
    assert found["supervised"] is None


def test_the_best_zero_shot_row_stands_out_and_published_deviations_are_shown(recipe, tmp_path):
    recipe.data.protocol = "voc-zs3-4"
    rows = compare.rows("methods", recipe, ["joem", "spnet", "supervised"])
    recipe.data.protocol = None
    problem = engine.open_problem(recipe.data)

    def result(rule, hiou):
        scores = {"miou_seen": 50.0, "miou_unseen": 10.0, "hiou": hiou, "sigma": 0.8, "gamma": 0.0}
        scores["per_class"] = dict.fromkeys(problem.vocabulary.names, 1.0)
        return {"rules": {rule: scores}, "train_seconds": 1.0, "recipe": recipe.to_dict()}

    results = {
        "joem": (result("ac", 20.0), result("ac", 30.0)),
        "spnet": (result("cs", 26.0), result("cs", None)),
        "supervised": (result("nn", 90.0),),
    }
    found = compare.Comparison("methods", recipe, problem, rows, results, folds=1)
    _, body = compare.score_table(found)
    assert body[0][4:8] == ["25.0 ± 7.1", "67.0 ± 1.2", "33.4 ± 0.4", "44.6 ± 0.3"]
    assert body[1][4:8] == ["26.0", "67.3", "21.8", "32.9"]
    compare.write(found, tmp_path, "joem compare")
    assert "<tr class=best><td>SPNet</td>" in (tmp_path / "methods.html").read_text()


def test_rows_of_every_table_can_be_chosen(recipe):
    assert [row.title for row in compare.rows("methods", recipe, ["spnet", "joem"])] == ["SPNet", "JoEm"]
    assert [row.rule for row in compare.rows("ablation", recipe, ["joem"])] == ["nn", "cs", "ac"]
    (strict,) = compare.rows("names", recipe, ["joem-cosine-strict"])
    assert strict.variant.changes["names"] == "strict"


def test_rows_with_names_decide_by_the_rule_that_folds_choose(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(runs._Runs, "result", lambda *_: {"rules": {}})
    monkeypatch.setattr(runs._Runs, "_choice", lambda *_: {"rule": "ac"})
    recipe.decision.rule = "cs"
    for folds, expected in ((1, "ac"), (0, "cs")):
        found = compare.run(recipe, tmp_path, "names", seeds=1, folds=folds, progress=False)
        rules = {row.variant.name: row.rule for row in found.rows}
        assert (rules["joem-cosine-strict"], rules["joem-mixture"]) == (expected, "nn")


def test_wrong_wishes_are_named(recipe, tmp_path):
    with pytest.raises(BadUsage, match=r"Unknown table 'ablations'.*Did you mean 'ablation'"):
        compare.rows("ablations", recipe)
    with pytest.raises(BadUsage, match="Unknown row of methods 'spnt'"):
        compare.rows("methods", recipe, ["spnt"])
    with pytest.raises(BadUsage, match=r"Unknown row of ablation 'spnet'.*joem-center-sc"):
        compare.rows("ablation", recipe, ["spnet"])
    with pytest.raises(BadUsage, match="at least one seed, got 0"):
        compare.run(recipe, tmp_path, seeds=0)


def test_the_command_line_prints_and_writes(recipe, tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    words = ["compare", "--protocol", str(tmp_path / "tiny.yaml"), "--methods", "joem, devise", "--seeds", "1"]
    words += ["--folds", "0", "--out", str(tmp_path / "out"), "--train.epochs", "2"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert "| JoEm " in printed
    assert "Compare orders, not values" in printed
    assert "2 epochs per stage" in printed
    assert "--train.epochs 2" in (tmp_path / "out/methods.md").read_text()
    assert cli.main([*words, "--json"]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["joem", "devise"]
    words[-1:] = ["1", "--table", "generators", "--data.train_count", "80", "--json"]
    words[words.index("joem, devise")] = "zs3net"
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["zs3net"][0]["gaussian"] > 0
    assert cli.main(["compare", "--table", "generator", "--out", str(tmp_path)]) == 2
    assert "Did you mean 'generators'" in capsys.readouterr().err
    assert cli.main(["compare", "--protocol", "nowhere", "--out", str(tmp_path)]) == 2
    assert "Unknown recipe 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["zs3net", "cagnet", "csrl", "zs3net_joem"])
def test_generators_are_measured_against_gaussians(recipe, tmp_path, name):
    recipe.data.train_count = 80
    found = compare.generators(recipe, tmp_path, [name], progress=False)
    (rows,) = found.values()
    vocabulary = engine.open_problem(recipe.data).vocabulary
    assert rows
    assert {row.name for row in rows} <= set(vocabulary.seen)
    for row in rows:
        assert min(row.real, row.generator, row.gaussian, row.seen_gaussian) > 0
    head, body = compare.quality_table(found)
    assert len(head) == len(body[0])
    assert compare.generators(recipe, tmp_path, [name], progress=False) == found


def test_a_perfect_generator_is_as_good_as_other_real_features(recipe, tmp_path, monkeypatch):
    """Features of a class that are far from Gaussian: a generator that makes them beats the Gaussian."""
    recipe.method.name = "zs3net"
    recipe.data.train_count = 80
    problem = engine.open_problem(recipe.data)
    model = engine.Model.create(recipe, problem.vocabulary)
    fold = replace(problem, val=problem.train)  # held out here: what the vocabulary calls unseen, swapped below
    seen = problem.vocabulary.seen
    fold = replace(fold, vocabulary=problem.vocabulary.with_unseen(seen[1:4]))

    def two_points(count):
        return torch.where(torch.rand(count, 1) < 0.5, -4.0, 4.0).expand(count, 8)

    real = {label: two_points(100) for label in range(len(problem.vocabulary))}
    monkeypatch.setattr(quality, "_real_features", lambda method, fold: (real, (4, 4)))
    monkeypatch.setattr(type(model.method), "make", lambda self, classes, count, labels: two_points(count)[:, None])
    rows = quality.held_out_quality(model, fold)
    assert len(rows) == 3
    for row in rows:
        assert row.generator < row.gaussian
        assert row.generator < row.seen_gaussian


def test_methods_without_a_generator_are_refused(recipe, tmp_path):
    with pytest.raises(BadUsage, match="Unknown method with a generator 'joem'"):
        compare.generators(recipe, tmp_path, ["joem"])


def test_summary_of_nothing_and_of_one():
    assert summary([]) == {"mean": None, "deviation": None}
    assert summary([3.0, None]) == {"mean": 3.0, "deviation": None}


def test_latex_escapes_and_markdown_aligns():
    head, body = ["method", "hIoU"], [["S->V: L_bar", "1.0 ± 0.1"], ["a & b", "12%"]]
    assert r"S$\to$V: L\_bar & 1.0 $\pm$ 0.1 \\" in compare.latex(head, body)
    assert r"a \& b & 12\% \\" in compare.latex(head, body)
    assert len({len(line) for line in compare.markdown(head, body).splitlines()}) == 1


def test_processes_that_torchrun_starts_compare_together(recipe, tmp_path):
    """Two processes share trainings, folds and pictures, write every file once and speak with one voice."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    words = ["compare", "--protocol", str(tmp_path / "tiny.yaml"), "--methods", "joem", "--seeds", "1", "--json"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "joem"]
    ended = subprocess.run(
        [sys.executable, *launcher, *words, "--out", str(tmp_path / "two")],
        check=False,
        timeout=240,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    together = json.loads(ended.stdout)
    alone = compared(recipe, tmp_path / "one", "joem", folds=1).to_dict()
    for ours, theirs in zip(together["rows"], alone["rows"], strict=True):
        assert ours["row"] == theirs["row"]
        (two,), (one,) = ours["runs"], theirs["runs"]
        assert two["rules"]["nn"]["images"] == one["rules"]["nn"]["images"] == 2
        assert two["rules"]["nn"]["hiou"] == pytest.approx(one["rules"]["nn"]["hiou"], abs=1)
    choice, other = (json.loads((tmp_path / each / "joem/choice.json").read_text()) for each in ("two", "one"))
    everything, expected = (each["folds"][0]["curves"]["cs"]["points"][-1] for each in (choice, other))
    assert everything["seen_as_unseen"] == expected["seen_as_unseen"] > 0  # no picture was counted twice


def test_a_choice_of_another_recipe_is_not_taken(recipe, tmp_path, monkeypatch):
    chosen = []

    def cross_validate(recipe, problem, used, progress):
        chosen.append(recipe.train.visual.lr)
        return SimpleNamespace(to_dict=lambda: {"sigma": 0.9, "gamma": 0.1, "rule": "cs"})

    monkeypatch.setattr(calibration, "cross_validate", cross_validate)
    variant = compare.rows("methods", recipe, ("joem",))[0].variant
    for factor, trials in ((1, 1), (1, 1), (2, 2)):
        recipe.train.visual.lr *= factor
        choosing = runs._Runs(recipe, {}, tmp_path, 1, False)
        assert [(each.sigma, each.gamma) for each in choosing._decisions(variant, ["cs"])] == [(0.9, 0.1)]
        assert choosing.rule(variant) == "cs"
        assert len(chosen) == trials
    assert runs._Runs(recipe, {}, tmp_path, 0, False).rule(variant) == recipe.decision.rule


def test_data_that_cannot_be_opened_are_told_once(tmp_path, capsys):
    words = ["compare", "--protocol", "voc-zs3-4-lite", "--methods", "joem,spnet", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert capsys.readouterr().err.count("Dataset 'voc' is read from files") == 1
