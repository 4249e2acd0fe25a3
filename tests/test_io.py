import pytest

from joem.io import atomic_file, atomic_folder


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
