import pytest

from joem.io import atomic_file


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
