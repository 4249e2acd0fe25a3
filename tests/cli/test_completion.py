"""The script, in a real shell."""

import shutil
import subprocess
from typing import get_args

import pytest

from joem import cli, data, recipe
from joem.cli import completion, datasets


@pytest.fixture(scope="module")
def script():
    return completion.script(cli.COMMANDS)


def complete(script, *words):
    """What bash offers for the last of the words."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash")
    typed = " ".join(f"'{word}'" for word in ("joem", *words))
    ask = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words)}; _joem; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run([shell, "-uc", ask], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pre"], ["predict"]),
        (["predict", "--cl"], ["--classes"]),
        (["predict", "photo"], []),
        (["data", "im"], ["import"]),
        (["data", "--rec"], ["--recipes"]),
        (["data", "import", "c"], ["coco", "cityscapes", "cvat"]),
        (["data", "import", "coco", "--sk"], ["--skip-broken"]),
        (["data", "import", "coco", "s.json", "--rest", ""], ["background", "void"]),
        (["serve", "--limits.pix"], ["--limits.pixels"]),
        (["nonsense", "--"], []),
    ],
)
def test_bash_completes(script, words, offered):
    assert complete(script, *words) == offered


def test_commands_and_recipes_are_all_offered(script):
    assert complete(script, "") == [name for name in cli.COMMANDS if " " not in name]
    assert tuple(complete(script, "train", "")) == recipe.names()


def test_the_command_prints_it(capsys):
    assert cli.main(["completion", "zsh"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("autoload -U +X bashcompinit && bashcompinit\n_joem() {")
    assert cli.main(["completion", "csh"]) == 2


def test_the_formats_of_the_command_are_those_that_there_are():
    assert get_args(datasets.Format) == tuple(data.FORMATS)
