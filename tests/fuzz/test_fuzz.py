"""A short run of what `make fuzz` does at length: no damaged input ends in anything but a `JoemError`."""

import time

import pytest
from inputs import KINDS, outcome

SECONDS = 3
"""How long each kind is tried; a slower machine tries fewer inputs."""


@pytest.mark.parametrize("name", KINDS)
def test_damaged_inputs_are_refused_with_a_message(name, tmp_path):
    kind = KINDS[name](tmp_path)
    started, found = time.monotonic(), []
    while time.monotonic() - started < SECONDS and len(found) < 300:
        found.append(outcome(kind, name, len(found)))
    assert "refused" in found


def test_the_same_index_is_the_same_input(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = KINDS["vectors"](tmp_path / "one"), KINDS["vectors"](tmp_path / "other")
    found = [outcome(one, "vectors", index) for index in range(20)]
    assert [outcome(other, "vectors", index) for index in range(20)] == found
    assert set(found) == {"accepted", "refused"}
