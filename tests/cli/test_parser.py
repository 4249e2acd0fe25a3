"""From typed functions to command lines, on commands made up here."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

import pytest

from joem import cli, decision
from joem.cli.output import Incomplete
from joem.cli.parser import Changes, CommandLine, Names, Numbers, RuleGrids, RuleValues, Told, parse
from joem.errors import BadUsage


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds.

    Args:
        bytes: size of a file.
    """

    bytes: int = 10


def paint(
    walls: list[str],
    *,
    colour: Literal["red", "blue"] = "red",
    coats: int = 2,
    add: list[str] | None = None,
    hosts: tuple[str, ...] = (),
    names: Names | None = None,
    sizes: Numbers | None = None,
    out_file: Path,
    dry: bool = False,
    bounds: Bounds,
) -> Told:
    """Paint walls, 100% of them.

    Long story.

    Example:
        joem paint north --out-file log

    Args:
        walls: which walls.
        colour: what colour.
        coats: how often.
        add: more of it.
        hosts: who.
        names: what.
        sizes: how large, 5% more is better.
        out_file: where it is told.
        dry: wait until it is dry.
        bounds: how much.
    """
    yield f"{len(walls)} walls"
    return walls


def test_a_signature_is_a_command_line():
    words = "north south --colour blue --coats 3 --add a --add b --hosts x y --names p,q --sizes 1,.5 --dry"
    more = "--out-file log --bounds.bytes 5 --json"
    found = parse("paint", paint, f"{words} {more}".split())
    assert found == (
        {
            "walls": ["north", "south"],
            "colour": "blue",
            "coats": 3,
            "add": ["a", "b"],
            "hosts": ["x", "y"],
            "names": ["p", "q"],
            "sizes": [1.0, 0.5],
            "out_file": Path("log"),
            "dry": True,
            "bounds": Bounds(5),
        },
        True,
    )


def test_what_is_not_given_has_the_default_of_the_signature():
    arguments, as_json = parse("paint", paint, ["north", "--out-file", "log"])
    assert not as_json
    assert (arguments["colour"], arguments["coats"], arguments["dry"], arguments["bounds"]) == (
        "red",
        2,
        False,
        Bounds(),
    )
    assert (arguments["add"], arguments["hosts"], arguments["names"]) == (None, (), None)


def test_help_teaches_with_texts_of_the_docstring(capsys):
    assert parse("paint", paint, ["--help"]) is None
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(
        "usage: joem paint WALLS [options] Paint walls, 100% of them. Long story. Example: joem paint"
    )
    for text in ("--coats INT how often (default: 2)", "--out-file PATH where it is told", "5% more is better"):
        assert text in told
    assert "--bounds.bytes INT size of a file (default: 10)" in told
    assert "--colour {red,blue} what colour (default: red)" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: WALLS, --out-file"),
        (["north", "--out-file", "x", "--coats", "many"], "--coats: invalid int value: 'many'"),
        (["north", "--out-file", "x", "--colour", "pink"], "--colour: Unknown choice 'pink'"),
        (["north", "--out-file", "x", "--sizes", "a"], "--sizes takes numbers separated by commas, got 'a'"),
        (["north", "--out-file", "x", "--coat", "3"], "unrecognized arguments: --coat 3"),
    ],
)
def test_errors_name_the_option_and_show_how_it_is_done(words, message):
    with pytest.raises(BadUsage, match="Example: joem paint north") as caught:
        parse("paint", paint, words)
    assert message in str(caught.value)
    assert "joem paint --help" in str(caught.value)


def calibrate(
    recipe: str = "a", *, values: RuleValues, grids: RuleGrids, changes: Changes, called: CommandLine
) -> Told:
    """Calibrate.

    Args:
        recipe: which.
        values: the model's if not given; for
        grids: values to try for
        changes: settings.
        called: the words.
    """
    yield ""


@pytest.fixture
def toy_rule(monkeypatch):
    push = decision.Parameter(
        "push", "p", "how hard", neutral=0.0, largest=9.0, rises=True, grid=lambda reach: (0.0, 1.0)
    )
    rule = decision.Rule("toy", "a toy", "A toy.", lambda ranking: ranking.unseen_distance, push)
    monkeypatch.setitem(decision.RULES, "toy", rule)


def test_a_rule_brings_its_option_and_its_grid(toy_rule, capsys):
    arguments, _ = parse("calibrate", calibrate, ["--push", "2", "--pushs", "1,2", "--sigma", ".5"])
    assert arguments["values"] == {"gamma": None, "sigma": 0.5, "discount": None, "push": 2.0}
    assert arguments["grids"] == {"gamma": None, "sigma": None, "discount": None, "push": [1.0, 2.0]}
    for command in ("evaluate", "predict", "sweep"):
        assert cli.main([command, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert ("--pushs NUMBERS" if command == "sweep" else "--push NUMBER") in told
        assert "toy: how hard" in told


def test_a_rule_of_ones_own_is_checked_like_the_others(toy_rule, tmp_path, capsys):
    assert cli.main(["evaluate", str(tmp_path), "--rule", "ac", "--push", "2"]) == 2
    assert "--push is for the rule toy, but the rule is ac: add --rule toy." in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path), "--rule", "toy", "--push", "10"]) == 2
    assert "push must be in [0,9]" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path), "--rule", "toy", "--push", "1"]) == 1
    assert "There is no model" in capsys.readouterr().err


def test_changes_are_all_that_has_a_dot_and_the_words_are_kept():
    words = ["--data.root=x y", "scenes", "--train.visual.lr", "1e-2"]
    arguments, _ = parse("calibrate", calibrate, words)
    assert arguments["recipe"] == "scenes"
    assert arguments["changes"] == {"data": {"root": "x y"}, "train": {"visual": {"lr": 0.01}}}
    assert arguments["called"] == "joem calibrate '--data.root=x y' scenes --train.visual.lr 1e-2"


def test_commands_tell_people_lines_and_machines_json(monkeypatch, capsys):
    monkeypatch.setitem(cli.COMMANDS, "paint", paint)
    assert cli.main(["paint", "a", "b", "--out-file", "x"]) == 0
    assert capsys.readouterr().out == "2 walls\n"
    assert cli.main(["paint", "a", "b", "--out-file", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["a", "b"]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_what_was_found_is_told_before_what_failed(words, monkeypatch, capsys):
    def half() -> Told:
        """Half."""
        yield "one"
        return Incomplete([1], "two is missing")

    monkeypatch.setitem(cli.COMMANDS, "half", half)
    assert cli.main(["half", *words]) == 1
    told = capsys.readouterr()
    assert (told.out.split(), told.err) == (["[", "1", "]"] if words else ["one"], "joem: two is missing\n")


def test_only_the_first_of_several_processes_speaks(monkeypatch, capsys):
    def work(*, fail: bool = False) -> Told:
        """Work.

        Args:
            fail: do not succeed.
        """
        yield "done"
        if fail:
            raise BadUsage("no")
        return 1

    monkeypatch.setitem(cli.COMMANDS, "work", work)
    monkeypatch.setattr("joem.parallel.is_first", lambda: False)
    for words in ([], ["--json"], ["--fail"]):
        assert cli.main(["work", *words]) == 0
    assert capsys.readouterr() == ("", "")
