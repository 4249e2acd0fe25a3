"""Results of many pictures: divided among machines, whole after a kill, and as Parquet."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from joem import cli, extras, parquet_files, prediction
from joem.data.scenes import Scenes
from joem.errors import BadUsage, JoemError
from joem.locking import FileLock
from joem.saving import MARK, Saving, pending
from joem.shards import Shard

pytest.importorskip("pyarrow")
NAMES = "red circle, green dog|puppy"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(6):
        Image.fromarray(Scenes(6, 48)[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder


def rows_in(folder):
    return {row["picture"]: row for file in sorted(folder.glob("*.parquet")) for row in parquet_files.read(file)}


def predict(segmenter, folder, out, **options):
    saving = Saving(identity={"asked": NAMES}, **options)
    found = prediction.find_pictures([str(folder)])
    return list(prediction.predict(segmenter, found, prediction.Request(NAMES), out, saving=saving))


def test_every_picture_is_in_exactly_one_shard_and_stays_there():
    names = [f"photos/{number}.jpg" for number in range(500)]
    parts = [[name for name in names if Shard(number, 7).has(name)] for number in range(1, 8)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(40 < len(part) < 110 for part in parts)  # about a seventh each
    assert [name for name in names[::2] if Shard(3, 7).has(name)] == [name for name in parts[2] if name in names[::2]]
    assert [name for name in names if Shard().has(name)] == names


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "-1/4", "1/0"])
def test_a_shard_that_is_none_is_bad_usage(text):
    with pytest.raises(BadUsage, match=r"--shard takes I/N with I from 1 to N"):
        Shard.parse(text)


def test_rows_hold_labels_and_scores_exactly(trained, pictures, tmp_path):
    done = predict(trained, pictures, tmp_path, format="parquet", rows=4)
    assert sorted(len(list(parquet_files.read(file))) for file in tmp_path.glob("*.parquet")) == [2, 4]
    assert {each.folder for each in done} == set(tmp_path.iterdir())  # nothing but the files
    rows = rows_in(tmp_path)
    assert len(rows) == 6
    for path, row in rows.items():
        result = trained(path, NAMES)
        assert np.array_equal(parquet_files.labels(row), result.labels.numpy())
        assert row["names"] == list(result.names)
        found = {each["name"]: each for each in row["segments"]}
        expected = {name: share for name, share in result.areas().items() if share and name != result.background}
        assert found.keys() == expected.keys()
        for name, each in found.items():
            assert each["area"] == pytest.approx(expected[name])
            assert each["confidence"] == pytest.approx(result.confidences()[name])
            assert each["score"] == pytest.approx(result.class_scores()[name])
    assert any(row["segments"] for row in rows.values())


def test_shards_and_folders_together_make_the_whole(trained, pictures, tmp_path):
    whole = {each.picture: each.folder.name for each in predict(trained, pictures, tmp_path / "whole")}
    for number in (1, 2):
        for each in predict(trained, pictures, tmp_path / "parts", format="both", shard=Shard(number, 2)):
            assert each.folder.name.startswith(f"0000{number}-of-00002-")
    assert rows_in(tmp_path / "parts").keys() == set(map(str, whole))
    for name in whole.values():
        for file in ("mask.png", "overlay.png", "result.json"):
            one, other = (tmp_path / at / name / file for at in ("whole", "parts"))
            assert one.read_bytes() == other.read_bytes()


def test_what_is_done_is_skipped_unless_asked_otherwise(trained, pictures, tmp_path):
    predict(trained, pictures, tmp_path)
    (tmp_path / "3" / MARK).unlink()
    (tmp_path / "4" / "mine.txt").write_text("kept")
    files = prediction.find_pictures([str(pictures)])
    names = [folder.name for _, folder in pending(files, tmp_path, Saving(skip_done=True, identity={"asked": NAMES}))]
    assert names == ["3"]
    assert len(pending(files, tmp_path, Saving(skip_done=True, identity={"asked": "cow"}))) == 6
    assert len(pending(files, tmp_path, Saving())) == 6
    assert [each.folder.name for each in predict(trained, pictures, tmp_path, skip_done=True)] == ["3"]
    predict(trained, pictures, tmp_path)
    assert (tmp_path / "4" / "mine.txt").read_text() == "kept"
    assert not list(tmp_path.glob(".draft*"))


def test_parquet_is_never_written_twice_nor_mixed(trained, pictures, tmp_path):
    predict(trained, pictures, tmp_path, format="parquet", shard=Shard(1, 2))
    with pytest.raises(BadUsage, match="add --skip-done to go on"):
        predict(trained, pictures, tmp_path, format="parquet", shard=Shard(1, 2))
    predict(trained, pictures, tmp_path, format="parquet", shard=Shard(2, 2))  # another part is no earlier run
    assert predict(trained, pictures, tmp_path, format="parquet", skip_done=True, shard=Shard(2, 3)) == []
    with pytest.raises(BadUsage, match=r"another request \(asked was 'red circle.*, now 'cow'\): give another --out"):
        pending([], tmp_path, Saving("parquet", skip_done=True, identity={"asked": "cow"}, shard=Shard(1, 2)))
    lock = FileLock(tmp_path / f".{Shard(1, 2)}.lock")
    assert lock.take()
    with pytest.raises(JoemError, match="is being worked on by process"):
        predict(trained, pictures, tmp_path, format="parquet", skip_done=True, shard=Shard(1, 2))
    lock.release()


def test_whoever_stops_keeps_what_is_done(trained, pictures, tmp_path):
    files = prediction.find_pictures([str(pictures)])
    work = prediction.predict(trained, files, prediction.Request(NAMES), tmp_path, saving=Saving("parquet", rows=4))
    next(work)
    work.close()
    assert len(rows_in(tmp_path)) == 4
    assert not list(tmp_path.glob(".*"))


KILLED = """
import os, signal, sys
from joem import cli, prediction

def mortal(run, count=iter(range(100))):  # two at a time are ahead of what is written
    def call(*given):
        if next(count) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*given)
    return call

if sys.argv[1] == "kill":
    prediction.Request.run = mortal(prediction.Request.run)
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["folders", "parquet"])
def test_after_a_kill_every_result_is_whole_or_not_there(trained, pictures, tmp_path, form):
    model, out = trained.save(tmp_path / "model"), tmp_path / "out"
    words = ["predict", pictures, "--model", model, "--classes", NAMES, "--out", out, "--format", form]
    command = [sys.executable, "-c", KILLED, "kill", *map(str, words), "--rows", "2", "--skip-done"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    marks = {folder.parent.name for folder in out.glob(f"*/{MARK}")} if form == "folders" else set(rows_in(out))
    assert 0 < len(marks) < 6
    for name in marks if form == "folders" else ():
        assert {file.name for file in (out / name).iterdir()} == {MARK, "mask.png", "overlay.png", "result.json"}
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*") if file.is_file()}
    assert cli.main([*map(str, words), "--rows", "2", "--skip-done"]) == 0
    for number in range(6):
        if form == "folders":
            with Image.open(out / str(number) / "mask.png") as mask:
                labels = np.asarray(mask)
        else:
            labels = parquet_files.labels(rows_in(out)[str(pictures / f"{number}.png")])
        assert np.array_equal(labels, trained(pictures / f"{number}.png", NAMES).labels.numpy())
    if form == "parquet":
        every = [row["picture"] for file in out.glob("*.parquet") for row in parquet_files.read(file)]
        assert sorted(every) == sorted(str(pictures / f"{number}.png") for number in range(6))
    kept = [file for file in before if any(str(mark) in file.parts for mark in marks) or file.suffix == ".parquet"]
    assert kept
    assert all(file.stat().st_mtime_ns == before[file] for file in kept)  # what was done was not done again
    assert not list(out.glob(".draft*"))


def test_the_command_line_counts_instead_of_listing(trained, pictures, tmp_path, capsys):
    model = trained.save(tmp_path / "model")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    words = ["predict", pictures, tmp_path / "bad.png", "--model", model, "--classes", NAMES, "--format", "parquet"]
    assert cli.main([*map(str, words), "--out", str(tmp_path / "out"), "--json"]) == 1
    printed, told = capsys.readouterr()
    assert json.loads(printed) == {"pictures": 6, "failed": 1}
    assert "1 of 7 pictures failed" in told
    assert len(rows_in(tmp_path / "out")) == 6
    assert cli.main([*map(str, words), "--out", str(tmp_path / "out"), "--skip-done", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"pictures": 0, "failed": 1}
    assert cli.main([*map(str, words), "--out", str(tmp_path / "out"), "--skip-done", "--rule", "nn"]) == 2
    assert "another request (rule was None, now 'nn')" in capsys.readouterr().err
    assert cli.main([*map(str, words), "--out", str(tmp_path / "out"), "--save", "coco"]) == 2
    assert "--save coco is a file in the folder of a picture: add --format both" in capsys.readouterr().err


def test_without_pyarrow_one_line_says_what_to_install(trained, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extras, "_installed", lambda module: module != "pyarrow")
    assert cli.main(["predict", str(pictures), "--format", "parquet", "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told == 'joem: A Parquet file needs pyarrow, which is not installed: run pip install "joem[parquet]".\n'
