import os
from pathlib import Path

import pytest

from joem.io import atomic_file, atomic_folder, remove_drafts


def test_a_file_that_was_not_finished_is_not_there(tmp_path):
    path = tmp_path / "new" / "file"

    def write(text, error=None):
        with atomic_file(path) as draft:
            draft.write_text(text)
            assert not path.exists() or path.read_text() == "whole"
            if error:
                raise error

    with pytest.raises(KeyboardInterrupt):
        write("half", KeyboardInterrupt())
    assert list(path.parent.iterdir()) == []
    write("whole")
    with pytest.raises(OSError, match="full"):
        write("half", OSError("full"))
    assert [each.read_text() for each in path.parent.iterdir()] == ["whole"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "thing"

    def write(text, fail):
        with atomic_folder(target) as draft:
            (draft / "a").write_text(text)
            if fail:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write("first", fail=True)
    assert list(tmp_path.iterdir()) == []
    write("second", fail=False)
    with pytest.raises(RuntimeError):
        write("third", fail=True)
    assert (target / "a").read_text() == "second"
    write("fourth", fail=False)
    assert (target / "a").read_text() == "fourth"
    assert list(tmp_path.iterdir()) == [target]


def test_what_killed_writers_left_goes_and_what_they_moved_away_comes_back(tmp_path):
    file, folder, moved = tmp_path / "file", tmp_path / "folder", tmp_path / "moved"
    file.write_text("whole")
    for path in (folder, moved):
        path.mkdir()
        (path / "a").write_text("old")
    pid = os.fork()
    if pid == 0:  # killed while it writes all three
        with atomic_file(file) as draft, atomic_folder(folder) as one, atomic_folder(moved) as other:
            draft.write_text("half")
            (one / "b").write_text("half")
            (other / "b").write_text("new")
            old = tmp_path / ".moved.old-1"
            old.mkdir()
            moved.replace(old / "moved")
            os._exit(9)
    os.waitpid(pid, 0)
    (tmp_path / ".mine").write_text("stays")
    assert len(list(tmp_path.iterdir())) == 7
    remove_drafts(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".mine", "file", "folder", "moved"}
    assert [(path / "a").read_text() for path in (folder, moved)] == ["old", "old"]


def test_a_folder_within_a_folder_is_written_too(tmp_path):
    with atomic_folder(tmp_path / "thing") as draft:
        (draft / "in").mkdir()
        (draft / "in" / "a").write_text("text")
    assert (tmp_path / "thing" / "in" / "a").read_text() == "text"


def test_what_must_last_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    flushed = []

    def fsync(handle):
        there = Path(os.readlink(f"/proc/self/fd/{handle}"))
        flushed.append((there, (tmp_path / "kept").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_file(tmp_path / "kept") as draft:
        draft.write_text("a")
    assert [(there.name.startswith(".kept"), there == tmp_path, shown) for there, shown in flushed] == [
        (True, False, False),  # the file, while only its draft is there
        (False, True, True),  # then the folder that lists it
    ]
    flushed.clear()
    with atomic_folder(tmp_path / "many") as folder:
        (folder / "one").write_text("a")
    assert [there.name for there, _ in flushed] == ["one", folder.name, tmp_path.name]
    flushed.clear()
    with atomic_file(tmp_path / "quick", lasting=False) as draft:
        draft.write_text("a")
    assert flushed == []
