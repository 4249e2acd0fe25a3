"""What two processes that torchrun has started do together, command after command: every start takes ten seconds."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from small_studies import compared, small_recipe  # of tests/studies

from conftest import make_tiny
from joem import calibration, engine

EVERYTHING = """
import contextlib, io, json, os, sys
from pathlib import Path
import torch
from joem import calibration, cli, engine, jobs, parallel
from joem.errors import JoemError

torch.set_num_threads(1)
rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
leave, parallel.leave = parallel.leave, lambda: None  # who has left cannot join again


def command(*words):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(words) == 0
    return printed.getvalue()


def compare():
    words = "compare --recipe small.yaml --methods joem --seeds 1 --out compared --json"
    return command(*words.split())


def tune():
    return command(*"tune few.yaml --lambdas 0.1 --folds 2 --out tuned".split())


def report():
    asked, join = [], parallel.join
    parallel.join = lambda: asked.append(join())
    printed = command(*"report run --out two.html --json".split())
    assert len(asked) == 1
    return printed


def sweep():
    model = engine.Model.load(folder / "run")
    return repr(calibration.sweep(model, engine.open_problem(model.recipe.data)))


def share_jobs():
    def work(name):
        def run():
            (folder / f"{name}-{rank}").write_text("")
            assert parallel.gathered(name) == [name, name]  # both work on it at once
            if name == "b":
                raise JoemError("both failed")
            return {"by": rank}
        return run

    failures = {}
    wanted = {name: jobs.Job(folder / "jobs" / name / "result.json", {}, work(name)) for name in "abc"}
    return [jobs.run_all(wanted, failures=failures), list(failures)]


for run in (compare, tune, report, sweep, share_jobs):
    (folder / f"{run.__name__}-{rank}.json").write_text(json.dumps(run()))
leave()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where both have left what they found: NAME-RANK.json, and the files of the commands."""
    folder = tmp_path_factory.mktemp("torchrun")
    engine.train(make_tiny(train={"epochs": 1}, data={"val_count": 6}), folder / "run")
    few = make_tiny(data={"train_count": 100, "size": 32, "crop": 32}, train={"epochs": 1, "save_every": 5})
    for name, recipe in {"few": few, "small": small_recipe()}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    (folder / "script.py").write_text(EVERYTHING)
    ended = subprocess.run(
        [*launcher, "script.py", str(folder)],
        check=False,
        timeout=600,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    return folder


def found(folder, name):
    """What each of the two found."""
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]


def printed(folder, name):
    """What a command printed as JSON: one of the two speaks."""
    first, second = found(folder, name)
    assert second == ""
    return json.loads(first)


def test_jobs_are_done_together(folder):
    assert found(folder, "share_jobs") == [[{"a": {"by": 0}, "c": {"by": 0}}, ["b"]]] * 2
    made = {path.name for path in folder.iterdir() if path.suffix == "" and path.is_file()}
    assert made == {f"{name}-{rank}" for name in "abc" for rank in (0, 1)}


def test_a_sweep_finds_what_one_process_finds(folder):
    model = engine.Model.load(folder / "run")
    alone = calibration.sweep(model, engine.open_problem(model.recipe.data))
    assert list(alone) == ["cs", "ac", "ratio", "probability"]
    assert found(folder, "sweep") == [repr(alone)] * 2


def test_a_report_shares_the_pictures_and_is_one_page(folder):
    model = engine.Model.load(folder / "run")
    (alone,) = engine.evaluate(model, engine.open_problem(model.recipe.data), [model.recipe.decision])
    together = printed(folder, "report")
    assert (together["images"], together["per_class"]) == (6, alone.to_dict()["per_class"])
    assert "Best pictures" in (folder / "two.html").read_text()


def test_folds_are_tuned_together(folder):
    told = json.loads((folder / "tuned/tuned.json").read_text())
    assert [row["folds"] for row in told["table"]] == [2]
    assert len(list((folder / "tuned").glob("lambda-*/fold-*/curves.json"))) == 2


def test_a_comparison_shares_trainings_folds_and_pictures(folder, tmp_path):
    together = printed(folder, "compare")
    alone = compared(small_recipe(), tmp_path, "joem", folds=1).to_dict()
    for ours, theirs in zip(together["rows"], alone["rows"], strict=True):
        assert ours["row"] == theirs["row"]
        (two,), (one,) = ours["runs"], theirs["runs"]
        assert two["rules"]["nn"]["images"] == one["rules"]["nn"]["images"] == 2
        assert two["rules"]["nn"]["hiou"] == pytest.approx(one["rules"]["nn"]["hiou"], abs=1)
    files = [part / "joem/lambda-0.1/fold-0/curves.json" for part in (folder / "compared", tmp_path)]
    two, one = (json.loads(file.read_text())["result"]["curves"]["cs"]["points"][-1] for file in files)
    assert two["seen_as_unseen"] == one["seen_as_unseen"] > 0  # no picture was counted twice
