import pytest

from joem import cli, recipe
from joem.errors import BadUsage


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_a_recipe_holds_only_what_differs_from_the_one_it_extends(write):
    write("base.yaml", "extends: scenes\nmodel: {rates: [2, 4, 6], channels: 32}\ntrain: {visual: {lr: 0.5}}\n")
    loaded = recipe.load(write("mine.yaml", "extends: base.yaml\nmodel: {channels: 8}\n"))
    expected = recipe.load("scenes")
    expected.model.rates, expected.model.channels, expected.train.visual.lr = (2, 4, 6), 8, 0.5
    assert loaded == expected


def test_the_command_line_sees_what_a_recipe_extends(write, monkeypatch):
    seen = {}
    monkeypatch.setattr("joem.engine.train", lambda recipe, out, resume: seen.update(recipe=recipe))
    mine = write("mine.yaml", "extends: scenes\nmodel: {channels: 8}\n")
    assert cli.main(["train", mine, "--train.visual.lr", "0.25", "--data.root", "somewhere"]) == 0
    expected = recipe.load(mine)
    expected.train.visual.lr, expected.data.root = 0.25, "somewhere"
    assert seen["recipe"] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: scnes\n", r"mine.yaml extends 'scnes', which is not there. .*Did you mean 'scenes'\?"),
        ("extends: gone.yaml\n", "extends 'gone.yaml', which is not there"),
        ("extends: mine.yaml\n", "in a circle: mine.yaml -> mine.yaml"),
        ("extends: other.yaml\n", "in a circle: mine.yaml -> other.yaml -> mine.yaml"),
        ("data: [\n", "mine.yaml is not YAML"),
        ("scenes\n", "must hold sections such as 'data:', got 'scenes'"),
        ("extends: scenes\nmodel: {backbon: resnet18}\n", "backbon"),
    ],
)
def test_a_recipe_that_cannot_be_read_says_why(write, text, message):
    write("other.yaml", "extends: mine.yaml\n")
    with pytest.raises(BadUsage, match=message):
        recipe.load(write("mine.yaml", text))
