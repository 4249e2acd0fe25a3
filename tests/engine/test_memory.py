"""How much memory a process may still take, by what the system tells."""

import pytest

from joem.engine import memory

FREE = memory.available_memory()


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Writes the files of control groups, and puts this process into the one named."""
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "own")

    def write(own: str, **limits: tuple[str, int, int]) -> int:
        (tmp_path / "own").write_text(f"1:name=systemd:/\n0::/{own}\n")
        for name, (limit, used, inactive) in limits.items():
            folder = tmp_path / "cgroup" / name.replace("_", "/").removeprefix("top")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "memory.max").write_text(f"{limit}\n")
            (folder / "memory.current").write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon {used - inactive}\ninactive_file {inactive}\n")
        return memory.available_memory()

    return write


def test_the_system_tells_how_much_is_free():
    assert 0 < FREE < 1 << 50


def test_a_limit_counts_less_what_is_used_but_for_files_that_were_read(groups):
    assert groups("", top=("1000000", 400_000, 150_000)) == 750_000


def test_the_tightest_of_nested_groups_counts(groups):
    found = groups("a/b", top=("max", 10, 0), a=("5000", 1000, 0), a_b=("9000", 1000, 0))
    assert found == 4000


@pytest.mark.parametrize("limit", ["max", ""])
def test_without_a_limit_all_that_is_free_counts(groups, limit):
    assert groups("", top=(limit, 400, 0)) > 1 << 20


def test_nothing_is_left_where_more_is_used_than_allowed(groups):
    assert groups("", top=("1000", 4000, 0)) == 0


def test_a_system_without_control_groups_tells_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_OWN_GROUP", tmp_path / "none")
    assert memory.available_memory() > 1 << 20
