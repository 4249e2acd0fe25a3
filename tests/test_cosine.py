"""joem-cosine and what ImageNet's names teach, against the equations."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from joem import engine, imagenet, methods, protocols, recipe, semantics
from joem.errors import BadUsage
from joem.methods.cosine import taught_names
from joem.models import ImageNetClassifier
from joem.recipe import MethodSettings, ModelSettings
from joem.vocabulary import VOID, Vocabulary

VOCABULARY = Vocabulary(("background", "horse", "car", "cow"), ("cow",), "background")


def model_settings(**changes):
    plain = {"architecture": "hypercolumn", "backbone": "tu-tf_efficientnet_lite0", "weights": "wheel"}
    return ModelSettings(**plain, freeze_backbone=True, hidden=8, channels=4, relu=False, dropout=0.0, **changes)


def build(members=1, **changes):
    torch.manual_seed(0)
    source = semantics.random(6, seed=1)
    settings = MethodSettings(name="joem-cosine", **changes)
    model = model_settings(members=members)
    made = methods.get("joem-cosine")(model, settings, VOCABULARY, source.vectors(VOCABULARY.names))
    made.learn_names(source)
    return made.eval(), source


def classifier(classes):
    made = ImageNetClassifier(320, classes)
    made.take_weights(model_settings())
    return made


KINDS = {
    "aeroplane": "airliner, warplane, wing",
    "bottle": "beer bottle, bottlecap, nipple, pill bottle, pop bottle, water bottle, water jug, whiskey jug, "
    "wine bottle",
    "cat": "Egyptian cat, Madagascar cat, Persian cat, Siamese cat, cheetah, cougar, jaguar, leopard, lesser panda, "
    "lion, lynx, snow leopard, tabby, tiger, tiger cat",
    "chair": "barber chair, folding chair, rocking chair, throne",
    "cow": "bison, ox, water buffalo",
    "motorbike": "moped, motor scooter",
    "pottedplant": "pot",
    "sheep": "bighorn, ram",
    "sofa": "studio couch",
    "train": "bullet train, electric locomotive, freight car, passenger car, steam locomotive, streetcar",
    "tvmonitor": "desktop computer, entertainment center, home theater, monitor, screen, television",
}


def test_kinds_of_every_unseen_class_of_voc_are_what_they_say():
    unseen = {name for split in ("zs3-10", "spnet") for name in protocols.get(f"voc-{split}").vocabulary.unseen}
    assert unseen == set(KINDS)
    for name, expected in KINDS.items():
        assert ", ".join(sorted(imagenet.names()[index] for index in imagenet.kinds_of(name))) == expected
    assert len(imagenet.names()) == 1000


def test_no_class_is_a_kind_of_two():
    found = [
        imagenet.kinds_of(name) for name in ("bird", "dog", "cat", "boat", "car", "bus", "sheep", "horse", "bottle")
    ]
    assert sum(map(len, found)) == len(set().union(*found))


def test_meanings_are_names_with_their_dictionary_entries():
    assert len(set(imagenet.meanings())) == 1000
    assert imagenet.meanings()[339] == "sorrel, a horse of a brownish orange to light brown color"
    assert all(text.startswith(f"{name}, ") for name, text in zip(imagenet.names(), imagenet.meanings(), strict=True))
    assert not [text for text in imagenet.meanings() if text.endswith(", ")]


def test_kinds_of_other_names_are_found_by_their_last_word():
    assert [imagenet.names()[index] for index in sorted(imagenet.kinds_of("lamp"))] == ["table lamp"]
    assert imagenet.kinds_of("nothing of this kind at all xyz") == frozenset()


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ("Cow", "cow"),
        ("airplane", "aeroplane"),
        ("motorcycle", "motorbike"),
        ("couch|settee", "sofa"),
        ("tv", "tvmonitor"),
    ],
)
def test_kinds_are_found_however_a_class_is_written(other, name):
    assert imagenet.kinds_of(name)
    assert imagenet.kinds_of(name) <= imagenet.kinds_of(other)


def test_strict_leaves_out_every_kind_of_an_unseen_class_and_of_further_ones():
    everything = set(range(1000))
    assert set(taught_names(MethodSettings(names="all"), VOCABULARY)) == everything
    strict = MethodSettings(names="strict", names_without=["sofa"])
    assert everything - set(taught_names(strict, VOCABULARY)) == {345, 346, 347, 831}


@pytest.mark.parametrize("names", ["none", "strict", "all"])
def test_the_objective_follows_its_equations(names):
    made, source = build(names=names, scale=7.0, names_weight=0.5)
    hypercolumns = torch.randn(2, 40 + 112 + 3 * 320, 1, 5)
    labels = torch.tensor([[[0, 1, VOID, 2, 1]], [[VOID, VOID, 0, 0, 2]]])
    with torch.no_grad():
        terms, _ = made(hypercolumns, labels)
    features = made.features(hypercolumns).detach()
    prototypes = made.prototypes(source.vectors(VOCABULARY.names), VOCABULARY.names).detach()
    total, count = 0.0, 0
    for b in range(2):
        for p in range(5):
            if labels[b, 0, p] == VOID:
                continue
            exponents = [math.exp(7.0 * float(features[b, :, 0, p] @ prototypes[c])) for c in (0, 1, 2)]
            total -= math.log(exponents[int(labels[b, 0, p])] / sum(exponents))
            count += 1
    assert float(terms["ce"]) == pytest.approx(total / count, rel=1e-4)
    assert ("names" in terms) == (names != "none")
    if names != "none":
        kept = taught_names(made.settings, VOCABULARY)
        assert len(kept) == (1000 if names == "all" else 997)
        taught_words = [imagenet.names()[index] for index in kept]
        named = made.prototypes(source.vectors(taught_words), taught_words).detach()
        teacher = classifier(kept)(hypercolumns[:, 152:472])
        total = 0.0
        for b in range(2):
            for p in range(5):
                if labels[b, 0, p] == VOID:
                    continue
                taught = teacher[b, :, 0, p].softmax(0)
                student = torch.stack([7.0 * features[b, :, 0, p] @ one for one in named]).log_softmax(0)
                total -= float((taught * student).sum())
        assert float(terms["names"]) == pytest.approx(0.5 * total / count, rel=1e-4)


def test_members_learn_apart_and_decide_together():
    made, source = build(members=2, names="all", scale=7.0)
    hypercolumns = torch.randn(2, 40 + 112 + 3 * 320, 1, 5)
    labels = torch.tensor([[[0, 1, VOID, 2, 1]], [[VOID, VOID, 0, 0, 2]]])
    with torch.no_grad():
        terms = made(hypercolumns, labels).terms
        features = made.features(hypercolumns)
        prototypes = made.prototypes(source.vectors(VOCABULARY.names), VOCABULARY.names)
        named = made.prototypes(source.vectors(imagenet.names()), imagenet.names())
        taught = classifier(range(1000))(hypercolumns[:, 152:472]).softmax(1)
        hidden = made.visual.head.layers[:3](hypercolumns)
    last, losses, agreements, cosines = made.visual.head.layers[3], [], [], []
    for part, half in ((slice(0, 2), slice(0, 4)), (slice(2, 4), slice(4, 8))):
        for b, p in ((b, p) for b in range(2) for p in range(5) if labels[b, 0, p] != VOID):
            v = last.weight[part, :, 0, 0] @ hidden[b, half, 0, p] + last.bias[part]
            v = v / v.norm()
            torch.testing.assert_close(features[b, part, 0, p], v / math.sqrt(2))
            own = [7.0 * v @ one[part] * math.sqrt(2) for one in (*prototypes, *named)]
            losses.append(-torch.stack(own[:3]).log_softmax(0)[labels[b, 0, p]].item())
            agreements.append(-(taught[b, :, 0, p] @ torch.stack(own[4:]).log_softmax(0)).item())
            cosines.append(torch.stack(own[:4]) / 7)
    assert float(terms["ce"]) == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert float(terms["names"]) == pytest.approx(sum(agreements) / len(agreements), rel=1e-4)
    together = torch.einsum("bchw,kc->bhwk", features, prototypes)[labels != VOID]
    torch.testing.assert_close(together, torch.stack(cosines).view(2, -1, 4).mean(0))


def test_members_share_hidden_and_channels_evenly():
    with pytest.raises(BadUsage, match=r"got 3 members for 8 hidden and 4 channels"):
        model_settings(members=3)


def test_pictures_and_their_hypercolumns_give_the_same_objective():
    made, _ = build(names="all")
    pictures, labels = torch.randn(2, 3, 64, 64), torch.zeros(2, 64, 64, dtype=torch.int64)
    hypercolumns = made.visual.head.gather(made.visual.maps(pictures))
    from_pictures, from_hypercolumns = made(pictures, labels).terms, made(hypercolumns, labels).terms
    assert all(torch.allclose(from_pictures[name], from_hypercolumns[name]) for name in ("ce", "names"))


def test_the_dense_classifier_is_the_networks_own():
    import timm

    from joem.models import VisualEncoder, _wheel_weights

    network = timm.create_model("tf_efficientnet_lite0").eval()
    network.load_state_dict(_wheel_weights("tu-tf_efficientnet_lite0"))
    picture = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        last = network.blocks(network.bn1(network.conv_stem(picture)))
        dense = classifier(range(1000))(last)
        features = network.forward_features(picture)
        expected = network.classifier(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(dense, expected, atol=1e-3, rtol=1e-3)
    assert VisualEncoder(model_settings()).head.last == slice(152, 472)


def test_features_and_prototypes_have_unit_length_and_the_teacher_is_not_saved(tmp_path):
    made, source = build(names="all")
    assert not [key for key in made.state_dict() if "teacher" in key or "name_vectors" in key]
    features = made.features(torch.randn(1, 3, 40, 40))
    torch.testing.assert_close(features.norm(dim=1), torch.ones_like(features[:, 0]))
    assert float(made.prototypes(source.vectors(["tractor"]), ["tractor"]).norm().detach()) == pytest.approx(1)


def heard_together(looks, values):
    """The mean of values over all places of a picture, the more of a place the more alike it looks."""
    found = torch.zeros_like(values)
    places = list(itertools.product(*map(range, values.shape[-2:])))
    for b, (y, x) in itertools.product(range(len(values)), places):
        cosines = [F.cosine_similarity(looks[b, :, y, x], looks[b, :, j, i], dim=0) for j, i in places]
        weights = [math.exp(8 * cosine) for cosine in cosines]
        total = sum(weight * values[b, :, j, i] for weight, (j, i) in zip(weights, places, strict=True))
        found[b, :, y, x] = total / sum(weights)
    return found


@pytest.mark.parametrize("names", ["strict", "all"])
def test_the_teacher_has_a_say_in_the_cosine(names):
    made, source = build(members=2, names=names, teacher_weight=0.5)
    words = ["tractor", "cow", "horse"]
    vectors = source.vectors(words)
    picture = torch.randn(2, 3, 40, 56)
    with torch.no_grad():
        maps = made.visual.maps(picture)
        # Straight from the definition, pixel by pixel.
        kept = taught_names(made.settings, VOCABULARY)
        norm = made.visual.head.layers[0]
        norm.running_mean.copy_(torch.linspace(-0.1, 0.1, len(norm.running_mean)))
        norm.running_var.copy_(torch.linspace(0.5, 2, len(norm.running_mean)))
        students = made._unit(made.visual(picture))
        chances = heard_together(
            (maps[-1] - norm.running_mean[152:472, None, None])
            / norm.running_var[152:472, None, None].add(1e-5).sqrt(),
            (classifier(kept)(maps[-1]) / 0.6).softmax(dim=1),
        )
        heard = source.vectors([imagenet.meanings()[index] for index in kept])
        heard = heard - heard.mean(dim=0)
        heard = heard / heard.norm(dim=1, keepdim=True)
        made.frequencies.copy_(torch.rand(len(kept)) + 0.1)
        cosines = torch.einsum("bchw,kc->bkhw", made.features(picture), made.prototypes(vectors, words))
        rarity = [(float(made.frequencies.median()) / float(q)) ** 2 for q in made.frequencies]
        say, opinion = torch.zeros(2, 1, *maps[-1].shape[-2:]), torch.zeros(2, 6, *maps[-1].shape[-2:])
        for b, y, x in itertools.product(*map(range, (2, *maps[-1].shape[-2:]))):
            mean = sum(chance * vector for chance, vector in zip(chances[b, :, y, x], heard, strict=True))
            opinion[b, :, y, x] = mean / mean.norm()
            say[b, 0, y, x] = 0.5 * sum(p * r for p, r in zip(chances[b, :, y, x].tolist(), rarity, strict=True))
        say, opinion = (
            F.interpolate(each, size=students.shape[-2:], mode="bilinear", align_corners=False)
            for each in (say, opinion)
        )
        for k, vector in enumerate(vectors):
            own = (students * made._place(vectors)[k][:, None, None]).sum(dim=1)
            teachers = (opinion * (vector / vector.norm())[:, None, None]).sum(dim=1)
            expected = (own + say[:, 0] * teachers) / (1 + say[:, 0])
            torch.testing.assert_close(cosines[:, k], expected, atol=1e-5, rtol=1e-4)


def test_the_teacher_counts_what_training_shows():
    made, _ = build(names="all", teacher_weight=0.5)
    seen = []
    for labels in ([0, 1, VOID], [2, VOID, VOID], [VOID, VOID, VOID]):
        hypercolumns = torch.randn(1, 1112, 1, 3)
        made.train()(hypercolumns, torch.tensor(labels).view(1, 1, 3))
        chances = classifier(range(1000))(hypercolumns[:, 152:472]).softmax(dim=1)[0, :, 0].T
        if labels != [VOID] * 3:
            seen.append(chances[torch.tensor(labels) != VOID].mean(dim=0))
        made.eval()(hypercolumns, torch.tensor(labels).view(1, 1, 3))  # does not count
    torch.testing.assert_close(made.frequencies, torch.stack(seen).mean(dim=0))


def test_the_teacher_with_a_say_is_saved_and_changes_no_objective():
    made, _ = build(names="all", teacher_weight=0.5)
    silent, _ = build(names="all")
    hypercolumns, labels = torch.randn(2, 1112, 3, 3), torch.tensor([0, 1]).view(2, 1, 1).expand(2, 3, 3)
    for name, term in made(hypercolumns, labels).terms.items():
        torch.testing.assert_close(term, silent(hypercolumns, labels).terms[name])
    fresh = methods.get("joem-cosine")(model_settings(), made.settings, VOCABULARY, made.vectors)
    fresh.load_state_dict(made.state_dict())
    torch.testing.assert_close(fresh.eval().features(hypercolumns), made.features(hypercolumns))


def test_without_names_the_teacher_has_no_say():
    made, _ = build(names="none", teacher_weight=0.5)
    plain, _ = build(names="none")
    assert made.teacher is None
    picture = torch.randn(1, 3, 40, 40)
    assert torch.equal(made.features(picture), plain.features(picture))


def test_a_weight_below_zero_is_refused():
    with pytest.raises(BadUsage, match=r"teacher_weight is the weight of a cosine, 0 or more, got -0.5"):
        build(names="all", teacher_weight=-0.5)


def test_a_strict_model_takes_one_more_class():
    made, source = build(names="strict", teacher_weight=0.5)
    wish = recipe.Recipe(model=model_settings(), method=made.settings)
    model = engine.Model(wish, VOCABULARY, source, made.vectors, made)
    larger = engine.add_class(model, "tractor", None)  # ImageNet has a tractor, which teaches here as before
    assert larger.vocabulary.unseen == ("cow", "tractor")
    torch.testing.assert_close(larger.prototypes()[:-1], model.prototypes())
    torch.testing.assert_close(larger.prototypes()[-1:], model.prototypes(("tractor",)))


def test_names_need_a_frozen_hypercolumn_encoder():
    source = semantics.random(6, seed=1)
    wish = MethodSettings(name="joem-cosine", names="all")
    thawed = ModelSettings(**{**vars(model_settings()), "freeze_backbone": False})
    made = methods.get("joem-cosine")(thawed, wish, VOCABULARY, source.vectors(VOCABULARY.names))
    with pytest.raises(BadUsage, match=r"--model.freeze_backbone true"):
        made.learn_names(source)
    with pytest.raises(BadUsage, match=r"--model.weights wheel"):
        ImageNetClassifier(320, [0]).take_weights(ModelSettings(weights="none"))


def test_a_model_taught_by_names_trains_saves_and_takes_new_words(tmp_path):
    made = recipe.load("scenes")
    made.data.train_count, made.data.val_count = 16, 3
    made.model = model_settings()
    made.method = MethodSettings(name="joem-cosine", names="strict")
    made.semantics.vectors, made.semantics.fit, made.semantics.normalise = "use", "imagenet", "l2"
    made.train.epochs, made.train.batch_size = 1, 8
    made.train.cache, made.train.pixels = str(tmp_path / "cache"), 4
    model = engine.train(made, tmp_path / "run", progress=False)
    loaded = engine.Model.load(tmp_path / "run")
    torch.testing.assert_close(
        loaded.prototypes(("tractor", "background")), model.prototypes(("tractor", "background"))
    )
