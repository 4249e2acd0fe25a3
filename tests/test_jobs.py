"""Jobs are done once each, whoever works on them and however he is stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from joem import jobs, progress
from joem.errors import BadUsage, Interrupted, JoemError
from joem.jobs import Job


def job(folder, name, work=None, identity=None, **options):
    return Job(folder / name / "result.json", identity or {"name": name}, work or (lambda: {"name": name}), **options)


def done(file, identity, work):
    return jobs.run_all({0: Job(file, identity, work)})[0]


def refuse():
    raise AssertionError("this was done already")


def test_what_is_done_is_kept(tmp_path):
    first = done(tmp_path / "a.json", {"seed": 0}, lambda: {"values": (1, 2.5)})
    again = done(tmp_path / "a.json", {"seed": 0}, refuse)
    assert first == again == {"values": [1, 2.5]}
    assert json.loads((tmp_path / "a.json").read_text()) == {"identity": {"seed": 0}, "result": again}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]  # no lock is left


def test_nothing_is_kept_without_a_file():
    assert done(None, {}, lambda: {"found": 1}) == {"found": 1}


def test_a_result_of_something_else_is_refused_before_any_work(tmp_path):
    done(tmp_path / "b/result.json", {"train": {"seed": 0, "epochs": 2}}, lambda: {})
    wanted = {"a": job(tmp_path, "a", refuse), "b": job(tmp_path, "b", refuse, {"train": {"seed": 1, "epochs": 2}})}
    with pytest.raises(
        BadUsage, match=r"b/result.json holds .* \(train.seed was 0, now 1\): give another --out"
    ) as told:
        jobs.run_all(wanted)
    assert f"remove {tmp_path / 'b'}." in str(told.value)
    (tmp_path / "b/result.json").write_text("[]")
    with pytest.raises(BadUsage, match="identity was None"):
        jobs.run_all(wanted)
    (tmp_path / "b/result.json").write_text("{")
    with pytest.raises(JoemError, match=r"b/result.json is damaged"):
        jobs.run_all(wanted)


def test_failures_are_told_and_noted_while_the_others_go_on(tmp_path, monkeypatch):
    def fail():
        raise JoemError("out of luck")

    told = []
    monkeypatch.setattr(progress, "say", told.append)

    def go_on():
        assert told == ["joem: one of 2 runs failed, the others go on: out of luck"]
        return {"name": "b"}

    failures = {}
    found = jobs.run_all({1: job(tmp_path, "a", fail), 2: job(tmp_path, "b", go_on)}, "runs", failures)
    assert found == {2: {"name": "b"}}
    assert str(failures[1]) == "out of luck"
    assert jobs.run_all({1: job(tmp_path, "a"), 2: job(tmp_path, "b", refuse)}) == {1: {"name": "a"}, 2: {"name": "b"}}
    with pytest.raises(JoemError, match="out of luck"):
        jobs.run_all({1: job(tmp_path, "c", fail), 2: job(tmp_path, "d", refuse)})


def test_a_stop_is_never_a_failure(tmp_path):
    def stop():
        raise Interrupted("at step 3")

    failures = {}
    with pytest.raises(Interrupted):
        jobs.run_all({1: job(tmp_path, "a", stop), 2: job(tmp_path, "b", refuse)}, failures=failures)
    assert failures == {}
    assert jobs.run_all({1: job(tmp_path, "a")}) == {1: {"name": "a"}}  # its lock was freed


def test_leftovers_go_when_the_result_is_there_and_not_before(tmp_path):
    rest = tmp_path / "a/checkpoints"

    def work():
        rest.mkdir(parents=True)
        return {}

    wanted = {0: job(tmp_path, "a", work, leftovers=(rest,))}
    jobs.run_all(wanted)
    assert not rest.exists()
    rest.mkdir()  # as if it had been stopped between writing and tidying up
    jobs.run_all(wanted)
    assert not rest.exists()


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JoemError, match=r"cannot be written to .* choose another --out"):
        done(tmp_path / "file" / "a.json", {}, refuse)


WORKER = """
import os, sys, time
from pathlib import Path
from joem import jobs, progress

out, jobs._PAUSE = Path(sys.argv[1]), 0.05

def work(name):
    def note(event):
        with open(out / "log", "a") as log:
            log.write(f"{event} {name} {os.getpid()}\\n")
    def run():
        note("begin")
        if name == "3" and not (out / "hangs").exists():
            (out / "hangs").write_text(str(os.getpid()))
            time.sleep(600)
        time.sleep(0.1)
        note("end")
        return {"by": os.getpid()}
    return run

names = [str(number) for number in range(8)]
found = jobs.run_all({name: jobs.Job(out / name / "result.json", {"name": name}, work(name)) for name in names})
assert list(found) == names
print(sorted(found.items()))
"""


def test_processes_share_jobs_and_take_over_those_of_a_killed_one(tmp_path):
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        wait_for(lambda: (tmp_path / "hangs").exists() and (tmp_path / "hangs").read_text())
        victim = int((tmp_path / "hangs").read_text())
        wait_for(lambda: len(list(tmp_path.glob("*/result.json"))) == 7)  # the others wait for the last one only
        assert [worker.poll() for worker in workers] == [None] * 4
        os.kill(victim, signal.SIGKILL)
        printed = [worker.communicate(timeout=240)[0] for worker in workers if worker.pid != victim]
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.wait() == (-signal.SIGKILL if worker.pid == victim else 0) for worker in workers)
    assert len(printed) == 3
    assert len(set(printed)) == 1  # all know all results
    events = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    ended = [name for event, name, _ in events if event == "end"]
    assert sorted(ended) == [str(number) for number in range(8)]  # each once
    assert [name for event, name, _ in events if event == "begin"].count("3") == 2
    assert not list(tmp_path.glob("*/.*.lock"))


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
