"""joem-mixture, and the member of joem-cosine that learns like it, against the equations."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from joem import compare, engine, export, methods, recipe, semantics
from joem.engine.model import Model
from joem.errors import BadUsage
from joem.methods.centres import Centres
from joem.recipe import MethodSettings, ModelSettings
from joem.vocabulary import VOID, Vocabulary

VOCABULARY = Vocabulary(("background", "horse", "cow", "sheep", "car"), ("cow",), "background")
WORDS = semantics.random(6, seed=1)
ROWS = {0: 0, 1: 1, 3: 2, 4: 3}  # where the centres of the seen classes are


def terms_by_loops(features, labels, centres, members):
    """L_ce and L_centre pixel by pixel and member by member, straight from the definition."""
    objects = [1, 3, 4]
    size = features.shape[1] // members
    entropy = pull = 0.0
    labelled = int((labels != VOID).sum())
    for b, y, x in (labels != VOID).nonzero().tolist():
        label = int(labels[b, y, x])
        for m in range(members):
            part = slice(m * size, (m + 1) * size)
            squares = {c: float((features[b, part, y, x] - centres[r, part]).square().sum()) for c, r in ROWS.items()}
            shift = min(squares.values())
            total = sum(math.exp((shift - square) / 2) for square in squares.values())
            entropy -= (shift - squares[label]) / 2 - math.log(total)
            if label in objects:
                pull += squares[label]
    return entropy / max(1, labelled) / members, pull / max(1, labelled) / members


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**16)
)
def test_terms_follow_their_equations(batch, members, height, width, size, seed):
    torch.manual_seed(seed)
    centres = Centres(VOCABULARY, members * size, members)
    features = torch.randn(batch, members * size, height, width)
    labels = torch.tensor([0, 1, 3, 4, VOID])[torch.randint(5, (batch, height, width))]
    found = {name: float(term.detach()) for name, term in centres.terms(features, labels).items()}
    entropy, pull = terms_by_loops(features, labels, centres.weight.detach(), members)
    assert found == {"ce": pytest.approx(entropy, rel=1e-4, abs=1e-5), "centre": pytest.approx(pull, rel=1e-4)}


def test_mixed_precision_does_not_reach_the_distances():
    torch.manual_seed(0)
    centres = Centres(VOCABULARY, 8)
    centres.weight.data += 10
    features, labels = centres.weight.data[[1, 3]].T.reshape(1, 8, 1, 2).clone(), torch.tensor([[[1, 4]]])
    exact = centres.terms(features, labels)
    with torch.autocast("cpu", torch.bfloat16):
        for name, term in centres.terms(features, labels).items():
            assert float(term.detach()) == pytest.approx(float(exact[name].detach()), rel=1e-6)


def test_a_batch_without_labels_is_an_exact_zero_with_a_gradient():
    centres = Centres(VOCABULARY, 4)
    features = torch.randn(1, 4, 3, 3, requires_grad=True)
    total = sum(centres.terms(features, torch.full((1, 3, 3), VOID)).values())
    total.backward()
    assert float(total.detach()) == 0
    assert float(features.grad.abs().max()) == 0


def test_seen_words_have_their_centres_and_other_words_lie_between_those_of_objects():
    torch.manual_seed(0)
    centres, known = Centres(VOCABULARY, 3), WORDS.vectors(VOCABULARY.names)
    names = ["cow", "background", "tractor", "sheep"]
    vectors = WORDS.vectors(names)
    with torch.no_grad():
        found = centres.prototypes(vectors, known)
    assert torch.equal(found[1], centres.weight[0])
    assert torch.equal(found[3], centres.weight[ROWS[3]])
    for row in (0, 2):
        weights = [math.exp(10 * float(F.cosine_similarity(vectors[row], known[c], dim=0))) for c in (1, 3, 4)]
        between = sum(
            weight * centres.weight[ROWS[c]].detach() for weight, c in zip(weights, (1, 3, 4), strict=True)
        ) / sum(weights)
        lengths = [
            weight * float(centres.weight[ROWS[c]].detach().norm())
            for weight, c in zip(weights, (1, 3, 4), strict=True)
        ]
        stretch = (sum(lengths) / sum(weights) / float(between.norm())) ** 0.75
        torch.testing.assert_close(found[row], stretch * between)


def test_with_nothing_but_background_seen_every_word_is_background():
    lonely = Vocabulary(("background", "cow"), ("cow",), "background")
    centres = Centres(lonely, 3)
    found = centres.prototypes(WORDS.vectors(["cow"]), WORDS.vectors(lonely.names))
    torch.testing.assert_close(found[0], centres.weight[0])


def build(name, **changes):
    torch.manual_seed(0)
    settings = MethodSettings(name=name, **changes)
    model = ModelSettings(
        architecture="hypercolumn",
        backbone="tu-tf_efficientnet_lite0",
        weights="wheel",
        freeze_backbone=True,
        hidden=9,
        channels=6,
        members=3,
        relu=False,
        dropout=0.0,
    )
    made = methods.get(name)(model, settings, VOCABULARY, WORDS.vectors(VOCABULARY.names))
    made.learn_names(WORDS)
    return made.eval()


def test_joem_cosine_has_as_many_members_again_that_learn_mixtures():
    made = build("joem-cosine", mixture_weight=0.5)
    hypercolumns, labels = torch.randn(2, 1112, 1, 5), torch.tensor([[[0, 1, VOID, 3, 4]], [[1, 1, 0, VOID, 3]]])
    features = made.visual(hypercolumns).detach()
    entropy, pull = terms_by_loops(features[:, 6:], labels, made.centres.weight.detach(), 3)
    terms = made(hypercolumns, labels).terms
    assert float(terms["mixture_ce"].detach()) == pytest.approx(entropy, rel=1e-4)
    assert float(terms["mixture_centre"].detach()) == pytest.approx(pull, rel=1e-4)
    alone = build("joem-cosine")
    assert set(alone(hypercolumns, labels).terms) == {"ce"}
    sum(terms.values()).backward()
    gradient = made.visual.head.layers[3].weight.grad
    assert gradient[6:].abs().sum() > 0
    assert gradient[:6].abs().sum() > 0


@pytest.mark.parametrize("teacher_weight", [0.0, 0.4])
def test_mixtures_stand_beside_the_other_members_and_the_teacher(teacher_weight):
    names = {"names": "strict", "teacher_weight": teacher_weight} if teacher_weight else {"names": "none"}
    made, alone = build("joem-cosine", mixture_weight=0.5, **names), build("joem-cosine", **names)
    words = ["tractor", "cow", "horse"]
    vectors = WORDS.vectors(words)
    with torch.no_grad():
        hypercolumns = torch.randn(1, 1112, 2, 3)
        raw, found = made.visual(hypercolumns), made.features(hypercolumns)
        opinion = alone.features(hypercolumns)[:, 6:]  # what the teacher says without a mixture
        placed, between = made.semantic(vectors), made.centres.prototypes(vectors, made.vectors)
        measured = torch.cdist(found.flatten(2).transpose(1, 2), made.prototypes(vectors, words)).square()
        lengths = sum(float(centre @ centre) for centre in made.centres.weight) / len(made.centres.weight)
    for place, pixel in enumerate(raw.flatten(2)[0].T):
        teacher = opinion.flatten(2)[0, :, place]
        # A teacher's part of v is c * a / sqrt(w) times a unit vector, with c = sqrt(1 + w) / (1 + a): a follows.
        length = float(teacher.norm()) * math.sqrt(teacher_weight / (1 + teacher_weight))
        say = length / (1 - length)
        for row, word in enumerate(vectors):
            parts = [slice(0, 2), slice(2, 4), slice(4, 6)]
            cosine = sum(float(F.cosine_similarity(pixel[part], placed[row, part], dim=0)) for part in parts) / 3
            square = 1.0
            if teacher_weight:
                cosine = (cosine + say * float(F.cosine_similarity(teacher, word, dim=0))) / (1 + say)
                square = (1 + teacher_weight) / (1 + say) ** 2 * (1 + say**2 / teacher_weight)
            apart = float((pixel[6:] - between[row]).square().sum()) / lengths
            expected = (square + 1 - 2 * cosine + 0.5 * apart) / 1.5
            assert float(measured[0, place, row]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.fixture
def mixed(tiny):
    tiny.method = MethodSettings(name="joem-mixture")
    return Model.create(tiny, engine.open_problem(tiny.data).vocabulary)


def test_a_model_that_was_given_a_class_is_saved_and_loaded(mixed, tmp_path):
    larger = engine.add_class(mixed, "orange dog", None)
    again = Model.load(larger.save(tmp_path / "model"))
    assert again.vocabulary.names[-1] == "orange dog"
    torch.testing.assert_close(again.prototypes(), larger.prototypes())
    torch.testing.assert_close(again.prototypes()[:-1], mixed.prototypes())


def test_an_exported_model_has_the_same_prototypes(mixed, tmp_path):
    pytest.importorskip("onnxruntime")
    export.to_onnx(mixed, tmp_path / "model.onnx")
    names = (*mixed.vocabulary.names, "green dog")
    found = export.OnnxModel.load(tmp_path / "model.onnx").prototypes(names)
    torch.testing.assert_close(found, mixed.prototypes(names), rtol=1e-4, atol=1e-4)


def test_rows_with_names_weigh_their_members_as_the_recipe_says():
    base = recipe.load("voc-zs3-8-lite")
    own = recipe.load(compare.own_recipes("voc-zs3-8-lite")["joem-cosine"])
    found = {row.variant.name: row.variant.recipe(own, 0).method for row in compare.rows("names", base)}
    assert found["joem-cosine-strict"] == replace(base.method, name="joem-cosine")
    assert found["joem-cosine-all"] == replace(base.method, name="joem-cosine", names="all")
    assert found["joem-cosine-none"] == replace(own.method, teacher_weight=base.method.teacher_weight)


def test_a_mixture_needs_a_sound_weight():
    with pytest.raises(BadUsage, match="mixture_weight is the weight of a distance, 0 or more, got -1"):
        build("joem-cosine", mixture_weight=-1.0)
