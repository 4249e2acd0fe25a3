import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from joem import Segmenter, decision, engine, refinement, tiles
from joem import recipe as recipes
from joem.errors import BadUsage, JoemError
from joem.model import Model
from joem.model_folder import BOX, boxed
from joem.result import Result


def test_every_kind_of_picture_gives_the_same_labels(segmenter, picture, tmp_path):
    array = picture.permute(1, 2, 0).numpy()
    Image.fromarray(array).save(tmp_path / "a.png")
    kinds = [picture, array, Image.fromarray(array), tmp_path / "a.png", str(tmp_path / "a.png")]
    results = [segmenter.encode(kind).segment().labels for kind in kinds]
    assert results[0].shape == (64, 64)
    assert all(torch.equal(results[0], labels) for labels in results)


def test_the_picture_is_encoded_once_and_decided_many_times(segmenter, picture, monkeypatch):
    scene = segmenter.encode(picture)
    monkeypatch.setattr(type(segmenter.model.method), "features", lambda *_: pytest.fail("encoded again"))
    first = scene.segment(["background", "red circle"])
    second = scene.segment(["background", "red circle", "green dog"], rule="cs", gamma=0.5)
    assert first.names == ("background", "red circle")
    assert second.unseen == ("green dog",)
    assert scene.distances(["background", "green dog"]).shape == (2, 64, 64)


def test_labels_are_those_of_the_rule(segmenter, picture):
    scene = segmenter.encode(picture)
    vocabulary = segmenter.vocabulary
    prototypes = segmenter.model.prototypes()
    expected = decision.apollonius(scene.features, prototypes, vocabulary.unseen_indices, 0.6, size=(64, 64))[0]
    assert torch.equal(scene.segment(rule="ac", sigma=0.6).labels, expected)
    expected = decision.nearest(scene.features, prototypes, size=(64, 64))[0]
    assert torch.equal(scene.segment(rule="nn").labels, expected)


def test_a_name_the_vectors_do_not_know_is_an_error(segmenter, picture):
    with pytest.raises(BadUsage, match="zzxqy"):
        segmenter.encode(picture).segment(["background", "zzxqy"])


def test_saved_and_loaded_segmenters_agree(segmenter, picture, tmp_path):
    loaded = Segmenter.load(segmenter.save(tmp_path / "model"))
    names = ["background", "blue ring", "brown horse"]
    first, second = (one.encode(picture).segment(names).labels for one in (segmenter, loaded))
    assert torch.equal(first, second)


def test_a_result_saves_overlay_mask_and_areas(picture, tmp_path):
    labels = torch.zeros(64, 64, dtype=torch.int64)
    labels[:16] = 2
    result = Result(labels, ("background", "cow", "red fox"), ("red fox",), picture, "background")
    result.save(tmp_path / "out")
    with Image.open(tmp_path / "out" / "mask.png") as mask:
        assert mask.mode == "P"
        assert np.array_equal(np.asarray(mask), labels.numpy())
        assert tuple(mask.getpalette()[6:9]) == result.colours[2]
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert stored["areas"] == {"background": 0.75, "cow": 0.0, "red fox": 0.25}
    assert stored["unseen"] == ["red fox"]
    with Image.open(tmp_path / "out" / "overlay.png") as overlay:
        assert overlay.height > 64  # the legend is below the picture
    bare = np.asarray(result.overlay(opacity=1.0, legend=False))
    assert tuple(bare[5, 5]) == result.colours[2]
    assert tuple(bare[40, 5]) == result.colours[0]


def test_more_than_256_names_get_a_16_bit_mask(picture):
    labels = torch.full((64, 64), 300)
    result = Result(labels, tuple(f"n{i}" for i in range(301)), (), picture)
    assert np.asarray(result.mask()).max() == 300
    assert result.overlay().size[0] >= 64


def test_a_class_of_several_words_is_as_near_as_the_nearest_of_them(segmenter, picture):
    scene = segmenter.encode(picture)
    apart = scene.distances(["background", "red circle", "round", "cow", "bull", "calf"])
    classes = ["background", "red circle|round", "cow|bull|calf"]
    expected = torch.stack([apart[0], apart[1:3].amin(0), apart[3:].amin(0)])
    assert torch.equal(scene.distances(classes), expected)
    result = scene.segment(classes, rule="nn")
    assert result.names == ("background", "red circle", "cow")
    assert result.unseen == ("cow",)  # one trained word makes a class trained
    assert torch.equal(result.labels, expected.argmin(0))


@pytest.mark.parametrize(
    "classes",
    [
        ["background", "red circle|round", "cow|bull|calf"],
        ["red circle|round"],
        ["red circle|round|ball", "cow"],
        ["red circle|round", "green ring|hoop", "background", "cow|bull", "dog"],
        ["cow|bull", "dog|puppy"],
    ],
)
def test_the_ranking_of_classes_by_their_words_is_that_of_a_slow_loop(segmenter, picture, classes):
    scene = segmenter.encode(picture[:, :9, :11])
    distances, trained = scene.distances(classes, background=False), set(segmenter.vocabulary.seen)
    seen = [index for index, name in enumerate(classes) if trained & set(name.split("|"))]
    ranking = scene.ranking(classes, background=False)
    for y in range(9):
        for x in range(11):
            near = sorted((float(distances[index, y, x]), index) for index in seen)
            far = sorted((float(distances[index, y, x]), index) for index in range(len(classes)) if index not in seen)
            for found, (distance, index) in zip(
                ((ranking.seen, ranking.seen_distance), (ranking.unseen, ranking.unseen_distance)),
                ((near or [(torch.inf, -1)])[0], (far or [(torch.inf, -1)])[0]),
                strict=True,
            ):
                assert found[0][0, y, x] == index
                assert float(found[1][0, y, x]) == pytest.approx(distance, rel=1e-4)
            second = near[1][0] if len(near) > 1 else torch.inf
            assert float(ranking.second_seen_distance[0, y, x]) == pytest.approx(second, rel=1e-4)


def test_the_second_class_is_sought_only_where_somebody_asks_for_it(segmenter, picture, monkeypatch):
    names, ranked = ["background", "red circle|round|green dog", "cow|horse"], []
    known, rank = segmenter.encode(picture), decision.rank
    known.ranking(names)
    scene = segmenter.encode(picture)
    monkeypatch.setattr(decision, "rank", lambda *each: ranked.append(1) or rank(*each))
    found = scene.segment(names, "cs", gamma=0.1)
    assert scene.ranked(names, second=False)[1].second_seen_distance.isnan().all()  # it was not sought
    assert scene.segment(names, "nn").labels.shape == found.labels.shape
    assert len(ranked) == 1
    expected = known.segment(names, "cs", gamma=0.1)
    assert torch.equal(found.labels, expected.labels)
    assert found.confidences() == expected.confidences()
    assert not scene.ranking(names).second_seen_distance.isnan().any()
    assert torch.equal(scene.segment(names, "ac", sigma=0.7).labels, known.segment(names, "ac", sigma=0.7).labels)


def test_a_word_that_belongs_to_two_classes_makes_them_one(segmenter):
    classes = segmenter.classes(["sofa|couch", "couch", "dog"])
    assert classes.names == ("sofa", "dog", "background")
    assert classes.notes == ('"couch" and "sofa" are one class, "couch".',)
    assert classes.asked == ("sofa|couch", "dog", "background")


def test_the_ranking_is_kept_while_only_the_rule_changes(segmenter, picture, monkeypatch):
    scene = segmenter.encode(picture)
    names = ["background", "red circle", "cow"]
    kept = scene.ranking(names)
    monkeypatch.setattr(decision, "rank", lambda *_: pytest.fail("ranked again"))
    assert scene.ranking(list(names)) is kept
    by_sigma = [scene.segment(names, "ac", sigma=sigma).labels for sigma in (1.0, 0.2)]
    assert (by_sigma[0] != by_sigma[1]).any()
    monkeypatch.undo()
    scene.segment(["background"])
    assert scene.ranking(names) is not kept  # only the latest names are kept
    assert all(torch.equal(a, b) for a, b in zip(scene.ranking(names), kept, strict=True))


@pytest.mark.parametrize("rule", list(decision.RULES))
@pytest.mark.parametrize(
    "names",
    [
        ["background", "red circle", "cow", "dog", "blue ring"],
        ["background", "red circle", "cow"],
        ["red circle|round", "cow|bull", "dog|puppy", "background"],
        ["cow|bull", "dog"],
    ],
    ids=["many", "one unseen", "synonyms", "all unseen"],
)
def test_confidence_is_that_of_a_slow_loop(segmenter, picture, rule, names):
    scene = segmenter.encode(picture[:, :10, :10])
    distances = scene.distances(names)
    result = scene.segment(names, rule, sigma=0.6, gamma=0.3)
    expected: dict[str, list[float]] = {name: [] for name in result.names}
    for y in range(10):
        for x in range(10):
            taken = int(result.labels[y, x])
            others = [float(d) for index, d in enumerate(distances[:, y, x]) if index != taken]
            expected[result.names[taken]].append(max(0.0, 1 - float(distances[taken, y, x]) / min(others)))
    for name, values in expected.items():
        found = result.confidences()[name]
        assert found is None if not values else found == pytest.approx(sum(values) / len(values), abs=1e-4)
    assert any(expected.values())


def test_confidence_needs_no_other_ranking_where_the_rule_knows_the_second_class(segmenter, picture, monkeypatch):
    scene = segmenter.encode(picture)
    results = [
        scene.segment(["background", "red circle", "cow"], "ac", sigma=0.9),
        scene.segment(["background", "cow"], "ac", sigma=0.9),
    ]
    monkeypatch.setattr(decision, "rank", lambda *_: pytest.fail("ranked again"))
    assert all(result.confidences() for result in results)


def test_a_parameter_that_no_rule_has_is_an_error_with_the_known_ones(segmenter, picture):
    scene = segmenter.encode(picture)
    with pytest.raises(BadUsage, match=r"Unknown parameter of a rule 'sigmma'.*'sigma'.*gamma, sigma"):
        scene.segment(rule="ac", sigmma=0.5)
    with pytest.raises(BadUsage, match=r"Unknown rule 'acc'.*nn, cs, ac, ratio"):
        scene.segment(rule="acc")
    with pytest.raises(BadUsage, match="Unknown parameter"):
        scene.explain(1, 1, strength=2)


def test_a_new_rule_is_taken_from_the_registry(segmenter, picture, monkeypatch):
    strength = decision.Parameter("strength", "s", "how much", 0.0, 9.0, True, lambda _: (0.0, 9.0))
    toy = decision.Rule("toy", "toy", "For tests.", lambda r: r.unseen_distance / r.seen_distance - 1, strength)
    monkeypatch.setitem(decision.RULES, "toy", toy)
    scene = segmenter.encode(picture)
    expected = toy.decide(scene.ranking(), 0.4)[0]
    assert torch.equal(scene.segment(rule="toy", strength=0.4).labels, expected)
    assert scene.explain(5, 7, strength=0.4).winners["toy"] == segmenter.vocabulary.names[expected[7, 5]]


def test_one_class_alone_is_certain(segmenter, picture):
    assert segmenter.encode(picture).segment("cow", background=False).confidences() == {"cow": 1.0}


def test_an_explanation_agrees_with_distances_and_labels(segmenter, picture):
    names = ["background", "red circle|round", "cow", "dog"]
    scene = segmenter.encode(picture)
    distances = scene.distances(names)
    labels = {rule: scene.segment(names, rule, sigma=0.6, gamma=0.3).labels for rule in decision.RULES}
    for x, y in [(0, 0), (63, 0), (0, 63), (63, 63), (17, 40), (31, 5)]:
        told = scene.explain(x, y, names, sigma=0.6, gamma=0.3)
        first, second = distances[:, y, x].sort().values[:2].tolist()
        assert told.first.distance == pytest.approx(first, rel=1e-3)
        assert told.second.distance == pytest.approx(second, rel=1e-3)
        assert told.ratio == pytest.approx(first / second, rel=1e-3)
        assert told.first.trained == (told.first.name in segmenter.vocabulary.seen)
        shown = ("background", "red circle", "cow", "dog")
        assert told.first.name == shown[int(distances[:, y, x].argmin())]
        assert told.winners == {rule: shown[int(labels[rule][y, x])] for rule in decision.RULES}
    assert json.loads(json.dumps(told.to_dict()))["first"]["name"] == told.first.name


def test_an_explanation_of_one_class_has_no_ratio(segmenter, picture):
    told = segmenter.encode(picture).explain(3, 4, ["cow"], background=False)
    assert (told.second, told.ratio, told.winners["ac"]) == (None, None, "cow")
    assert told.to_dict()["second"] is None


def test_a_place_outside_the_picture_is_refused(segmenter, picture):
    with pytest.raises(BadUsage, match=r"columns 0 to 63 and rows 0 to 63, got \(64, 0\)"):
        segmenter.encode(picture).explain(64, 0)


def test_a_reduced_copy_is_encoded_and_labels_keep_their_size(segmenter, picture):
    full, reduced = segmenter.encode(picture), segmenter.encode(picture, longest=32)
    assert reduced.features.shape[2] == full.features.shape[2] // 2
    assert reduced.segment().labels.shape == (64, 64)
    assert torch.equal(segmenter.encode(picture, longest=64).features, full.features)


def test_large_pictures_have_no_seams(segmenter, monkeypatch):
    """Where tiles end, features change no more than in the same place of the picture encoded whole."""
    photo = torch.from_numpy(pytest.importorskip("skimage.data").coffee()).permute(2, 0, 1)
    whole = segmenter.encode(photo).features
    monkeypatch.setattr(tiles, "SIDE", 256)

    def worst_step(overlap):
        monkeypatch.setattr(tiles, "OVERLAP", overlap)
        steps = [f.diff(dim=3).abs().mean(dim=(0, 1, 2)) for f in (segmenter.encode(photo).features, whole)]
        stride = -(-600 // whole.shape[3])
        ends = {at // stride for start in tiles.starts(600, stride) for at in (start, start + 256) if 0 < at < 600}
        return max(float(steps[0][end - 1] / steps[1][end - 1]) for end in ends)

    assert worst_step(64) < 1.1
    assert worst_step(1) > 1.3  # tiles put side by side do show


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (33, 2), (65, 31)])
def test_any_size_works(segmenter, size):
    pixels = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    assert segmenter.encode(pixels).segment().labels.shape == size


def test_a_prompt_surrounds_new_names_and_leaves_trained_ones(tiny, picture):
    recipe = tiny.changed(semantics={"vectors": "use"})
    plain = Segmenter(Model.create(recipe, engine.open_problem(recipe.data).vocabulary))
    prompted = plain.with_prompt("a photo of a {}")
    assert torch.equal(plain.model.prototypes(), prompted.model.prototypes())
    same = plain.model.prototypes(("a photo of a tractor",))
    assert torch.equal(prompted.model.prototypes(("tractor",)), same)
    assert not torch.equal(plain.model.prototypes(("tractor",)), same)


def test_a_prompt_for_single_words_is_refused(segmenter):
    with pytest.raises(BadUsage, match="looks up words"):
        segmenter.with_prompt("a photo of a {}")


def test_a_model_in_the_box_loads_by_name_with_half_precision_weights(segmenter, picture, tmp_path, monkeypatch):
    segmenter.model.save(tmp_path / "box" / "small", half=True)
    stored = load_file(tmp_path / "box" / "small" / "weights.safetensors").values()
    assert {each.dtype for each in stored if each.is_floating_point()} == {torch.float16}
    monkeypatch.setattr("joem.model_folder.BOX", tmp_path / "box")
    monkeypatch.chdir(tmp_path)
    assert boxed() == ("small",)
    loaded = Segmenter.load("small")
    assert {p.dtype for p in loaded.model.method.parameters()} == {torch.float32}
    assert loaded.model.vectors.dtype == torch.float32
    agree = loaded.encode(picture).segment().labels == segmenter.encode(picture).segment().labels
    assert agree.float().mean() > 0.95
    with pytest.raises(JoemError, match=r"no model in other.*in the box \(small\)"):
        Segmenter.load("other")


def test_the_model_in_the_box_knows_a_kitten_by_its_word_alone():
    cat = torch.from_numpy(pytest.importorskip("skimage.data").chelsea()).permute(2, 0, 1)
    labels = Segmenter.load().encode(cat).segment(["background", "kitten", "puppy"]).labels
    background, kitten, puppy = (float((labels == label).float().mean()) for label in range(3))
    assert 0.5 < kitten < 0.9  # it fills most of the photo, but not all
    assert puppy < 0.05 < background
    assert sum(file.stat().st_size for file in (BOX / "voc-names").iterdir()) < 16e6


def test_the_settings_of_the_model_in_the_box_are_those_of_its_recipe():
    recipe = Model.load("voc-names").recipe
    changes = {"train": {"cache": None}, "data": {"val_split": recipe.data.val_split}}
    assert recipe == recipes.load("voc-surroundings", changes)


def test_the_hub_way_goes_round_locally(segmenter, picture, tmp_path):
    segmenter.save_pretrained(tmp_path / "hub")
    assert {file.name for file in (tmp_path / "hub").iterdir()} >= {"model.json", "weights.safetensors", "README.md"}
    loaded = Segmenter.from_pretrained(tmp_path / "hub")
    names = ["background", "blue ring", "brown horse"]
    first, second = (one.encode(picture).segment(names).labels for one in (segmenter, loaded))
    assert torch.equal(first, second)


def test_pushing_to_the_hub_uploads_what_save_writes(segmenter, monkeypatch):
    sent = {}

    def upload(self, *, folder_path, **_):
        sent.update({file.name: file.stat().st_size for file in Path(folder_path).iterdir()})

    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.create_repo", lambda *_, **__: SimpleNamespace(repo_id="me/it"))
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.upload_folder", upload)
    segmenter.push_to_hub("me/it")
    assert sent.keys() >= {"model.json", "weights.safetensors", "README.md"}


def test_a_model_from_the_hub_downloads_the_files_it_needs(segmenter, tmp_path, monkeypatch):
    folder = segmenter.save(tmp_path / "m")
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    loaded = Segmenter.from_pretrained("me/it", revision="v1")
    assert loaded.vocabulary == segmenter.vocabulary
    assert (asked["name"], asked["revision"]) == ("me/it", "v1")
    assert asked["allow_patterns"] == ["model.json", "weights.safetensors", "examples.safetensors"]


def test_a_device_that_is_not_there_is_bad_usage(segmenter):
    with pytest.raises(BadUsage, match="device 'nonsense' cannot be used"):
        segmenter.to("nonsense")


def test_outlines_follow_the_picture_where_that_is_asked_for(segmenter, picture):
    scene = segmenter.encode(picture)
    plain, refined = (scene.segment(refine=refine) for refine in (False, True))
    assert torch.equal(refined.labels, refinement.refine(plain.labels, picture))
    assert not torch.equal(refined.labels, plain.labels)
