"""Recipes: what they hold, what they refuse and how, and that the numbers of those in the box are what is built."""

import dataclasses
import re

import pytest
import torch

from conftest import make_tiny
from joem import cli, methods, protocols, recipe
from joem.decision import Decision
from joem.errors import BadUsage
from joem.models.heads import DeepLabV3PlusSettings, HypercolumnSettings
from joem.recipe import Recipe
from joem.settings import DataSettings, ModelSettings, OptimiserSettings, TrainSettings

NAN = float("nan")


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


# ------------------------------------------------------------------------------------------- files and merging


def test_a_recipe_holds_only_what_differs_from_the_one_it_extends(write):
    write("base.yaml", "extends: scenes\nmodel: {head: {rates: [2, 4, 6], channels: 32}}\ntrain: {visual: {lr: 0.5}}\n")
    loaded = recipe.load(write("mine.yaml", "extends: base.yaml\nmodel: {head: {channels: 8}}\n"))
    changes = {"model": {"head": {"rates": (2, 4, 6), "channels": 8}}, "train": {"visual": {"lr": 0.5}}}
    assert loaded == recipe.load("scenes").changed(**changes)


def test_the_command_line_sees_what_a_recipe_extends(write, monkeypatch):
    seen = {}
    monkeypatch.setattr("joem.engine.train", lambda recipe, *_, **__: seen.update(recipe=recipe))
    mine = write("mine.yaml", "extends: scenes\nmodel: {head: {channels: 8}}\n")
    assert cli.main(["train", mine, "--train.visual.lr", "0.25", "--data.root", "somewhere", "--no-validation"]) == 0
    expected = recipe.load(mine).changed(train={"visual": {"lr": 0.25}}, data={"root": "somewhere"})
    assert seen["recipe"] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: scnes\n", r"mine.yaml extends 'scnes', which is not there. .*Did you mean 'scenes'\?"),
        ("extends: gone.yaml\n", "extends 'gone.yaml', which is not there"),
        ("extends: [scenes]\n", r"extends \['scenes'\]: give the name of one recipe"),
        ("extends: mine.yaml\n", "in a circle: mine.yaml -> mine.yaml"),
        ("extends: other.yaml\n", "in a circle: mine.yaml -> other.yaml -> mine.yaml"),
        ("data: [\n", "mine.yaml is not plain YAML"),
        ("scenes\n", "must hold sections such as 'data:', got 'scenes'"),
        (
            "extends: scenes\nmodel: {backbon: resnet18}\n",
            r"model.backbon: there is no such setting. model has b",
        ),
        ("data: 3\n", "data: expected settings such as kind, got 3"),
        ("method: 3\n", "method: expected settings such as name, got 3"),
        ("method: [joem]\n", r"method: expected settings such as name, got \['joem'\]"),
        ("decision: 3\n", "decision: .*got 3"),
        ("decision: {rule: ac, sigma: much}\n", "decision: sigma must be in .* got much"),
        (f"decision: {{rule: ac, sigma: 1{'0' * 400}}}\n", "decision: sigma must be in .* got 10000"),
        (f"decision: {{score: {{trained: [0, 0, 1{'0' * 400}], new: [0, 0, 0]}}}}\n", "score.trained must be three"),
        ("decision: {rule: [ac]}\n", r"decision: Unknown rule \['ac'\]"),
        (
            "model: {head: {name: deeplab}}\n",
            "model.head.name: Unknown head 'deeplab'.*: deeplabv3plus, deeplabv2,",
        ),
    ],
)
def test_a_recipe_that_cannot_be_read_says_why(write, text, message):
    write("other.yaml", "extends: mine.yaml\n")
    with pytest.raises(BadUsage, match=message):
        recipe.load(write("mine.yaml", text))


def test_empty_sections_and_nothing_at_all_are_the_defaults(write):
    assert recipe.load(write("mine.yaml", "data:\nmethod:\ndecision:\n")) == Recipe()
    assert recipe.load(write("mine.yaml", "")) == Recipe.from_dict({}) == Recipe()


def test_what_is_written_is_read_again_the_same():
    for name in recipe.names():
        loaded = recipe.load(name)
        assert Recipe.from_dict(loaded.to_dict()) == loaded


# ----------------------------------------------------------------------------------- what is refused, and how


def test_all_errors_of_a_recipe_are_in_one_message_with_dotted_keys():
    wrong = {
        "data": {"crop": -3, "scale": [0.5], "colour": "red"},
        "model": {"dropout": 2, "head": {"name": "hypercolumn", "hidden": 0, "rates": [1, 2]}},
        "method": {"name": "joem", "tau_s": NAN, "noise": 3},
        "train": {"visual": {"name": "adamm", "lr": -1}, "epochs": "many"},
        "decision": {"rule": "ac", "sigma": 2},
        "dat": {},
    }
    with pytest.raises(BadUsage) as caught:
        Recipe.from_dict(wrong)
    told = str(caught.value)
    for key in (
        "dat",
        "data.crop",
        "data.scale.1",
        "data.colour",
        "model.dropout",
        "model.head.hidden",
        "model.head.rates",
        "method.tau_s",
        "method.noise",
        "train.visual.name",
        "train.visual.lr",
        "train.epochs",
        "decision",
    ):
        assert re.search(rf"^  {re.escape(key)}: ", told, re.MULTILINE), (key, told)
    assert len(told.splitlines()) == 14


def test_a_setting_of_another_method_is_an_error_that_lists_its_own():
    with pytest.raises(BadUsage) as caught:
        recipe.load("lite-joem", {"method": {"name": "spnet", "sc_weight": 99, "teacher_weight": 5}})
    told = str(caught.value)
    for name in ("sc_weight", "teacher_weight"):
        own = "name, stage_lengths, stage_rates, variant, uncertainty, self_training"
        assert f"method.{name}: there is no such setting. method has {own}." in told


def test_an_unknown_method_answers_with_the_list():
    with pytest.raises(BadUsage, match=r"method.name: Unknown method 'spnt'. Did you mean 'spnet'\?"):
        Recipe.from_dict({"method": {"name": "spnt"}})


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("model", {"dropout": 2}),
        ("model", {"dropout": -0.1}),
        ("model", {"dropout": NAN}),
        ("model", {"side": 0}),
        ("model", {"stride": 12}),
        ("model", {"head": {"channels": 0}}),
        ("model", {"head": {"aspp_dropout": 1.5}}),
        ("data", {"crop": 0}),
        ("data", {"scale": [0.0, 1.0]}),
        ("data", {"scale": [1.0, float("inf")]}),
        ("data", {"workers": -1}),
        ("data", {"seed": -1}),
        ("data", {"rule": "exlude"}),
        ("train", {"batch_size": 0}),
        ("train", {"clip": NAN}),
        ("train", {"epochs": 1.5}),
        ("train", {"visual": {"lr": NAN}}),
        ("train", {"visual": {"momentum": 1.1}}),
        ("train", {"semantic": {"power": -1}}),
        ("semantics", {"normalise": "l3"}),
        ("method", {"r": 0}),
        ("method", {"sc_weight": -0.1}),
        ("method", {"sc_weight": NAN}),
        ("method", {"tau_mu": float("inf")}),
        ("method", {"variant": "papr"}),
        ("method", {"stage_lengths": {"train": -1}}),
        ("decision", {"rule": "ac", "sigma": 0}),
        ("decision", {"rule": "cs", "gamma": NAN}),
    ],
)
def test_values_out_of_range_are_refused_in_recipes_and_in_python(section, values):
    with pytest.raises(BadUsage, match=rf"\n  {section}"):
        make_tiny(**{section: values})
    plain = {"model": ModelSettings, "data": DataSettings, "train": TrainSettings}
    if section in plain and not any(isinstance(value, dict) for value in values.values()):
        with pytest.raises(BadUsage, match=next(iter(values))):
            plain[section](**values)


def test_settings_are_frozen():
    loaded = make_tiny()
    for owner, name in ((loaded, "train"), (loaded.train, "seed"), (loaded.train.visual, "lr"), (loaded.method, "r")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(owner, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.decision.rule = "nn"
    changed = loaded.changed(train={"seed": 3, "visual": {"lr": 0.5}})
    assert (changed.train.seed, changed.train.visual.lr, loaded.train.seed) == (3, 0.5, 0)
    assert changed.train.visual.name == loaded.train.visual.name == "adamw"
    assert changed == loaded.changed(train={"seed": 3}).changed(train={"visual": {"lr": 0.5}})


# -------------------------------------------------------------------------- nothing chosen for one is another's


@pytest.mark.parametrize("name", sorted(set(methods.METHODS) - {"joem"}))
def test_another_method_starts_with_its_own_values_and_decision(name):
    loaded = recipe.load("lite-joem", {"method": {"name": name}})
    assert recipe.load("lite-joem").decision == Decision("ac", {"sigma": 0.84, "gamma": 0.298})
    assert loaded.method == methods.get(name).settings_class(name=name)
    assert loaded.decision == Decision(methods.get(name).rule)
    assert recipe.load("lite-joem").changed(method={"name": name}) == loaded


def test_a_decision_given_with_the_new_method_is_taken():
    loaded = recipe.load("lite-joem", {"method": {"name": "spnet"}, "decision": {"rule": "cs", "gamma": 0.1}})
    assert loaded.decision == Decision("cs", {"gamma": 0.1})
    same = recipe.load("lite-joem", {"method": {"name": "joem", "r": 4}})
    assert (same.decision, same.method.r) == (recipe.load("lite-joem").decision, 4)


def test_another_head_starts_with_its_own_values():
    loaded = recipe.load("lite-joem", {"model": {"head": {"name": "deeplabv3plus"}}})
    assert loaded.model.head == DeepLabV3PlusSettings()
    assert recipe.load("lite-joem", {"model": {"head": {"hidden": 10}}}).model.head.channels == 384
    assert recipe.load("lite-joem", {"model": {"head": None}}).model.head is None


# -------------------------------------------------------------------------------------------- those in the box


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_in_the_box_loads_and_opens_with_its_command(name):
    loaded = recipe.load(name)
    about = recipe.about(name)
    assert "joem quickstart" in about if name == "scenes" else re.search(r"joem train [\w-]+", about)
    if name not in {"paper", "official", "scenes"}:
        assert f"joem train {name} " in about
    assert len(about.splitlines()) >= 2
    assert "RESULT" not in about, "the result to expect is still to be written"
    assert set(loaded.method.stage_lengths) <= {
        stage for each in methods.METHODS.values() for stage in (*each.stages, "self_train")
    }


@pytest.mark.parametrize("name", recipe.names())
def test_the_protocol_that_a_recipe_names_is_of_its_data(name):
    loaded = recipe.load(name)
    if loaded.data.protocol is None:
        return
    protocol = protocols.get(loaded.data.protocol)
    assert loaded.data.kind == protocol.dataset
    assert (loaded.data.train_split, loaded.data.val_split) == (protocol.train_split, protocol.val_split)


@pytest.mark.parametrize("protocol", protocols.names())
@pytest.mark.parametrize("name", ["paper-joem", "paper-context", "official-joem", "lite-joem", "lite-blend-strict"])
def test_another_protocol_brings_its_splits(name, protocol):
    loaded = recipe.load(name, {"data": {"protocol": protocol}})
    expected = protocols.get(protocol)
    assert (loaded.data.train_split, loaded.data.val_split) == (expected.train_split, expected.val_split)


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # crop, channels, r, tau_s, tau_mu, lambda, sigma, epochs
        ("paper-joem", (312, 256, 4, 5.0, 1.0, 0.1 / 16, 0.7071, 50)),
        ("paper-context", (312, 256, 4, 7.0, 1.0, 0.01 / 55**2, 0.7071, 200)),
        ("paper-spnet-setting", (321, 600, 2, 5.0, 1.0, 1 / 15, 0.8, 50)),
        ("official-joem", (312, 256, 4, 5.0, 1.0, 0.1, 0.7071, 50)),
        ("official-context", (312, 256, 4, 7.0, 1.0, 0.01, 0.7071, 200)),
        ("official-spnet-setting", (321, 600, 2, 5.0, 1.0, 1.0, 0.8367, 50)),
    ],
)
def test_a_published_row_has_the_values_of_its_family(name, expected):
    loaded = recipe.load(name)
    method = loaded.method
    values = (loaded.data.crop, loaded.model.head.channels, method.r, method.tau_s, method.tau_mu, method.sc_weight)
    assert (*values, loaded.decision.value, loaded.train.epochs) == pytest.approx(expected, rel=0.01)
    family = name.partition("-")[0]
    assert (loaded.model.backbone, loaded.model.weights, method.variant) == ("resnet101", "imagenet", family)
    decay = 5e-4 if name == "official-context" else 1e-4
    every = {"official": "epoch", "paper": "step"}[family]
    assert loaded.train.visual == OptimiserSettings(weight_decay=decay, every=every)
    assert loaded.train.semantic.power == {"official": 0.0, "paper": 0.9}[family]
    assert (loaded.decision.rule, loaded.train.batch_size) == ("ac", 24 if name == "official-spnet-setting" else 32)
    own = (loaded.data.base, loaded.data.pad, loaded.semantics.fit, loaded.model.multi_grid, loaded.model.init)
    if family == "paper":
        assert own == (None, "mean", "seen", None, "torch")
    elif name == "official-spnet-setting":
        assert own == (512, "black", "all", None, "official")
    else:
        assert own == (312, "black", "all", (1, 2, 4), "official")
        assert loaded.model.head.variant == "official"
        assert method.sc_per_pair == (name == "official-context")


@pytest.mark.parametrize("family", ["paper", "official"])
@pytest.mark.parametrize("protocol", [name for name in protocols.names() if "joem" in protocols.get(name).published])
def test_both_families_have_a_recipe_for_every_published_row(family, protocol):
    setting = "context" if protocol.startswith("context") else "spnet-setting" if protocol == "voc-spnet" else "joem"
    loaded = recipe.load(f"{family}-{setting}", {"data": {"protocol": protocol}})
    expected = protocols.get(protocol)
    assert (loaded.data.kind, loaded.data.train_split) == (expected.dataset, expected.train_split)
    published = f"{expected.published['joem'].hiou:.1f}"
    assert published in recipe.about(f"{family}-{setting}")


@pytest.mark.parametrize("name", sorted(set(methods.METHODS) - {"joem", "blend", "supervised"}))
def test_every_compared_system_has_a_recipe_at_the_papers_scale(name):
    loaded = recipe.load(f"paper-{name}")
    assert loaded.method.name == name
    assert (loaded.model.backbone, loaded.data.kind) == ("resnet101", "voc")
    published = protocols.get(loaded.data.protocol).published.get(name)
    about = recipe.about(f"paper-{name}")
    assert "Not run here" in about
    assert published is None or f"{published.hiou:.1f}" in about


def built(name, **model):
    """The method that a recipe builds, but for the backbone's weights and with random word vectors."""
    loaded = recipe.load(name, {"model": {"weights": "none", **model}})
    vocabulary = protocols.get(loaded.data.protocol).vocabulary
    method = methods.get(loaded.method.name)
    return method(loaded.model, loaded.method, vocabulary, torch.randn(len(vocabulary), 7))


@pytest.mark.parametrize("family", ["paper", "official"])
@pytest.mark.parametrize("setting", ["joem", "context", "spnet-setting"])
def test_a_published_row_gives_a_model_with_every_term_of_the_loss(family, setting):
    """At the recipe's own settings but for the size of the backbone, its weights and the word vectors."""
    name = f"{family}-{setting}"
    method = built(name, backbone="resnet18", multi_grid=None)
    channels = recipe.load(name).model.head.channels
    assert method.classifier.weight.shape[1] == method.semantic.out_features == channels
    assert len(method.classifier.weight) == len(method.vocabulary)
    labels = torch.full((2, 65, 65), method.vocabulary.seen_indices[1])
    terms, _ = method(torch.randn(2, 3, 65, 65), labels)
    assert set(terms) == {"ce", "bar", "sc"}
    assert all(term.isfinite() for term in terms.values())


def convolutions(module):
    return [(each.out_channels, each.groups) for each in module.modules() if isinstance(each, torch.nn.Conv2d)]


LITE = [name for name in recipe.names() if name.startswith("lite-") and recipe.load(name).method.name != "blend"]


@pytest.mark.parametrize("name", ["lite", *LITE])
def test_the_lite_rows_build_the_head_that_they_name(name):
    assert recipe.load(name).model.head == HypercolumnSettings(channels=384, hidden=768)
    assert convolutions(built(name).visual.head) == [(768, 1), (384, 1)]


@pytest.mark.parametrize("name", ["lite-blend-masks", "lite-blend-mixture"])
def test_the_blends_build_experts_of_three_copies(name):
    experts = built(name).experts
    assert [each.weight for each in experts] == ([1.0, 8.0] if name.endswith("masks") else [1.0])
    assert [type(each).__name__.lower() for each in experts] == [e.kind for e in recipe.load(name).method.experts]
    for expert in experts:
        assert convolutions(expert.head) == [(3 * 256, 1), (3 * 128, 3)]
        assert (
            expert.weight == {"Cosine": 1.0, "Mixture": 8.0 if name.endswith("masks") else 1.0}[type(expert).__name__]
        )


@pytest.mark.parametrize("name", ["lite-blend-strict", "lite-blend-all", "lite-spnet-setting", "voc-names"])
def test_experts_that_are_not_given_a_size_have_the_same_everywhere(name):
    for expert in recipe.load(name).method.experts:
        if expert.kind in {"cosine", "mixture"}:
            assert (expert.copies, expert.hidden, expert.channels) == (3, 256, 128)


@pytest.mark.parametrize("name", ["paper-joem", "lite-joem", "lite-blend-strict"])
def test_data_that_only_the_user_has_are_asked_for(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", name]) == 2
    assert "--data.root DIR" in capsys.readouterr().err
