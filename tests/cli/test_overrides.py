"""Settings of a recipe on the command line, and the help that lists them."""

import pytest

from joem import cli, recipe
from joem.cli.overrides import take
from joem.errors import BadUsage


def test_both_ways_to_give_a_value_and_the_last_one_counts():
    words = ["--train.epochs", "3", "--data.root=a=b", "--train.epochs=4", "--method.x", "-1", "--out", "a.b"]
    assert take(words) == (["--out", "a.b"], {"train": {"epochs": 4}, "data": {"root": "a=b"}, "method": {"x": -1}})


def test_values_are_those_of_recipe_files():
    texts = ["null", "true", "[red, blue]", "2", "0.5", "a photo of a {}", "{}", "word2vec:a.vec", "2024-01-01", ""]
    _, found = take([f"--a.{n}={text}" for n, text in enumerate(texts)])
    assert list(found["a"].values()) == [
        None, True, ["red", "blue"], 2, 0.5, "a photo of a {}", "{}", "word2vec:a.vec", "2024-01-01", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train.epochs"], "--train.epochs needs a value"),
        (["--train.epochs", "--out", "x"], "--train.epochs needs a value"),
        (["--model.head", "null", "--model.head.channels", "3"], "--model.head.channels is a part of 'head'"),
    ],
)
def test_what_cannot_be_read(words, message):
    with pytest.raises(BadUsage, match=message):
        take(words)


def told(capsys, *words):
    assert cli.main(list(words)) == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_of_a_recipe_lists_every_setting_with_its_value(capsys):
    found, text = recipe.load("scenes"), told(capsys, "train", "scenes", "--help")
    for section in ("data", "semantics", "model", "method", "train"):
        for name in vars(getattr(found, section)):
            assert f"--{section}.{name}" in text
    assert f"passes over the training pictures (default: {found.train.epochs})" in text
    assert (
        "--method.sc_weight VALUE lambda, the weight of the semantic consistency loss; 0 leaves it out (default: "
        in text
    )
    assert "--decision.sigma VALUE" in text
    assert "--train.visual.lr VALUE learning rate at the start" in text


def test_help_shows_the_settings_of_the_method_that_is_named(capsys):
    text = told(capsys, "train", "scenes", "--method.name", "zs3net", "--train.epochs", "7", "--help")
    assert "--method.hidden" in text
    assert "--method.sc_weight" not in text
    assert "passes over the training pictures (default: 7)" in text


def test_help_without_a_recipe_lists_what_every_method_has_and_says_where_its_own_settings_are(capsys):
    for command in ("train", "tune", "compare"):
        text = told(capsys, command, "--help")
        assert "--method." not in text
        assert "settings of method: Each has its own: joem train RECIPE --help lists them." in text
        for name in ("data.root", "semantics.vectors", "model.head.channels", "train.visual.lr", "decision.sigma"):
            assert f"--{name} VALUE" in text
    scenes = recipe.load("scenes")  # the one that compare takes if none is given
    assert f"passes over the training pictures (default: {scenes.train.epochs})" in text
    assert f"nn, cs, ac, ratio, probability (default: {scenes.decision.rule})" in text
    assert "(default: the method's own)" in told(capsys, "train", "--help")
    assert "--method.sc_weight" in told(capsys, "compare", "--method.r", "2", "--help")


def test_help_of_an_unknown_recipe_is_bad_usage(capsys):
    assert cli.main(["train", "nothing", "--help"]) == 2
    assert "Unknown recipe 'nothing'" in capsys.readouterr().err


def test_everything_wrong_with_a_recipe_is_told_at_once(capsys):
    words = ["--train.epochs", "many", "--data.colour", "red", "--method.sc_weight", "-1", "--extra.x", "1"]
    assert cli.main(["train", "scenes", *words]) == 2
    error = capsys.readouterr().err
    for key in ("train.epochs", "data.colour", "method.sc_weight", "extra"):
        assert f"\n  {key}: " in error
