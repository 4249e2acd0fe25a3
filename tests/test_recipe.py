import pytest
import torch

from joem import cli, engine, protocols, recipe
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


PUBLISHED = [*(f"{data}-zs3-{n}" for data in ("voc", "context") for n in (2, 4, 6, 8, 10)), "voc-spnet"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_row_follows_its_protocol(name):
    loaded, protocol = recipe.load(name), protocols.get(name)
    assert (loaded.data.kind, loaded.data.protocol) == (protocol.dataset, name)
    assert (loaded.data.train_split, loaded.data.val_split) == (protocol.train_split, protocol.val_split)
    assert (loaded.train.epochs, loaded.train.batch_size) == (200 if protocol.dataset == "context" else 50, 32)
    assert (loaded.model.backbone, loaded.model.weights, loaded.method.variant) == ("resnet101", "imagenet", "paper")


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # crop, channels, r, tau_s, tau_mu, lambda, sigma
        ("voc-zs3-4", (312, 256, 4, 5.0, 1.0, 0.1, 0.7071)),
        ("context-zs3-10", (312, 256, 4, 7.0, 1.0, 0.01, 0.7071)),
        ("voc-spnet", (321, 600, 2, 5.0, 1.0, 1.0, 0.8)),
    ],
)
def test_a_published_row_has_the_papers_values(name, expected):
    loaded = recipe.load(name)
    method = loaded.method
    values = (loaded.data.crop, loaded.model.channels, method.r, method.tau_s, method.tau_mu, method.sc_weight)
    assert (*values, loaded.decision.sigma) == expected


@pytest.mark.parametrize("name", ["voc-zs3-2", "context-zs3-2", "voc-spnet"])
def test_a_published_row_gives_a_model_with_every_term_of_the_loss(name):
    """At the recipe's own settings but for the size of the backbone, its weights and the word vectors."""
    loaded, vocabulary = recipe.load(name), protocols.get(name).vocabulary
    loaded.model.backbone, loaded.model.weights = "resnet18", "none"
    loaded.model.channels //= 8
    loaded.semantics.vectors = "glove"
    model = engine.Model.create(loaded, vocabulary)
    labels = torch.full((2, 65, 65), vocabulary.seen_indices[1])
    terms, _ = model.method(torch.randn(2, 3, 65, 65), labels)
    assert set(terms) == {"ce", "bar", "sc"}
    assert all(term.isfinite() for term in terms.values())


def test_data_that_only_the_user_has_are_asked_for(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "voc-zs3-4"]) == 2
    assert "--data.root DIR" in capsys.readouterr().err
