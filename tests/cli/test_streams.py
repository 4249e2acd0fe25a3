"""What is printed where, whatever the terminal can show and the machine can hold."""

import io
import sys
import threading

import pytest
import torch
from PIL import Image

from joem import cli
from joem.cli.output import own_thread_only


def test_names_that_the_terminal_cannot_show_are_printed_nevertheless(tmp_path, monkeypatch):
    for part in ("images", "masks"):
        (tmp_path / part).mkdir()
        Image.new("L", (5, 4)).save(tmp_path / part / "a.png")
    (tmp_path / "classes.txt").write_text("café\nbœuf\n", encoding="utf-8")
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert cli.main(["data", "folder", "--root", str(tmp_path)]) == 0
    sys.stdout.flush()
    assert b"caf\\xe9" in printed.getvalue()


@pytest.mark.parametrize("make", [lambda _: torch.empty(2**45), lambda _: bytearray(2**60)], ids=["torch", "Python"])
def test_a_lack_of_memory_is_told_without_a_traceback(monkeypatch, capsys, make):
    monkeypatch.setattr("joem.cli._run", make)
    assert cli.main(["data"]) == 1
    assert "memory" in capsys.readouterr().err


def test_what_other_threads_print_does_not_get_between_results(capsys):
    with own_thread_only():
        print("found")
        noisy = threading.Thread(target=print, args=("a worker died",))
        noisy.start()
        noisy.join()
    print("more")
    assert capsys.readouterr() == ("found\nmore\n", "a worker died\n")


def test_other_errors_of_torch_are_not_hidden(monkeypatch):
    monkeypatch.setattr("joem.cli._run", lambda _: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        cli.main(["data"])
