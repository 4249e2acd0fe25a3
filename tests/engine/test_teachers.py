"""Teachers: masks are always right, words land where they belong, and zero-shot stays zero-shot."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import REAL_DATA, assert_same_weights, fresh_model, make_small, make_tiny, stop_after
from joem import calibration, data, engine
from joem.data import Sample
from joem.engine import Model
from joem.engine.teachers import Taught, check_zero_shot, open_network, taught
from joem.engine.teachers.networks import Network
from joem.errors import BadUsage, JoemError
from joem.settings import DataSettings, TeacherSettings
from joem.vocabulary import VOID, Vocabulary

NAMES = ("background", "cow", "diningtable")
TEACHER = ("other", "grass", "table", "sky", "cow")


class Pictures:
    """Pictures with given labels."""

    names, background = NAMES, "background"

    def __init__(self, labels):
        self._labels, self.stamp = labels, "1"

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        return Sample(torch.zeros(3, *self._labels[index].shape, dtype=torch.uint8), self._labels[index], str(index))

    def labels(self, index):
        return self._labels[index]

    def name(self, index):
        return str(index)

    def version(self, index):
        return self.stamp


class Says(Network):
    """A teacher whose labels are given."""

    def __init__(self, said, tmp_path="/", names=TEACHER, **changes):
        super().__init__(TeacherSettings(file=str(tmp_path), names=names, **changes))
        self.said, self.asked = said, 0

    def labels(self, image):
        self.asked += 1
        return self.said


@given(st.integers(0, 2**16), st.sampled_from(["background", "void", "both"]), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_labels_against_a_loop_over_pixels(seed, pixels, height, width):
    torch.manual_seed(seed)
    masks = torch.tensor([0, 1, 2, VOID])[torch.randint(4, (height, width))]
    first, second = torch.randint(5, (height, width)), torch.randint(3, (height, width))
    others = ("void", "sky", "moon")
    pictures = Taught(
        Pictures([masks]), [Says(first, pixels=pixels, without="sky"), Says(second, names=others, pixels="both")]
    )
    assert pictures.names == (*NAMES, "grass", "sky", "moon")
    found = pictures.labels(0)
    free = {"background": {0}, "void": {VOID}, "both": {0, VOID}}[pixels]
    for y in range(height):
        for x in range(width):
            expected = int(masks[y, x])
            if expected in free and TEACHER[first[y, x]] == "grass":  # table and cow have masks, sky is left out
                expected = 3
            elif expected in {0, VOID} and others[second[y, x]] != "void":
                expected = 3 + 1 + ["sky", "moon"].index(others[second[y, x]])
            assert int(found[y, x]) == expected


def test_a_share_of_the_pixels_is_taught_and_the_others_are_nobodys():
    masks = torch.zeros(40, 50, dtype=torch.int64)
    masks[0] = 1
    pictures = Taught(Pictures([masks]), [Says(torch.ones_like(masks), share=0.25)])
    found = pictures.labels(0)
    assert set(found[1:].unique().tolist()) == {3, VOID}
    assert (found[0] == 1).all()
    assert 0.2 < float((found[1:] == 3).float().mean()) < 0.3
    assert torch.equal(found, pictures.labels(0))


def test_what_a_teacher_said_is_kept_until_the_picture_changes(tmp_path):
    (tmp_path / "net").mkdir()
    teacher = Says(torch.tensor([[1, 0], [3, 4]]), tmp_path / "net")
    pictures = Pictures([torch.zeros(2, 2, dtype=torch.int64)])
    made = Taught(pictures, [teacher], tmp_path / "cache")
    made.fill()
    assert made.labels(0).tolist() == [[3, 0], [4, 0]]
    assert Taught(pictures, [teacher], tmp_path / "cache").labels(0).tolist() == [[3, 0], [4, 0]]
    assert teacher.asked == 1
    pictures.stamp = "2"
    made.fill()
    assert teacher.asked == 2


def test_counts_are_those_of_the_masks():
    made = Taught(Pictures([torch.tensor([[0, 1], [1, VOID]])]), [Says(torch.ones(2, 2, dtype=torch.int64))])
    assert data.class_pixels(made).tolist() == [[1, 2, 0, 0, 0]]


def test_teachers_that_saw_masks_of_unseen_classes_are_refused(tmp_path):
    (tmp_path / "net.onnx").touch()
    teacher = {"file": str(tmp_path / "net.onnx"), "names": "other, grass, couch"}
    vocabulary = Vocabulary(("background", "sofa", "cow"), ("sofa",), "background")
    with pytest.raises(BadUsage, match="saw masks of couch"):
        check_zero_shot(DataSettings(teachers=(teacher,)), vocabulary)
    check_zero_shot(DataSettings(teachers=(teacher,)), vocabulary.with_unseen(["cow"]))
    check_zero_shot(DataSettings(teachers=({**teacher, "masks": "grass"},)), vocabulary)


def test_a_teacher_that_is_not_there_or_is_no_network_is_told(tmp_path):
    with pytest.raises(BadUsage, match="There is no teacher"):
        open_network(TeacherSettings(file=str(tmp_path / "net.tflite")))
    (tmp_path / "net.txt").touch()
    with pytest.raises(BadUsage, match=r"a \.tflite or an \.onnx file"):
        open_network(TeacherSettings(file=str(tmp_path / "net.txt")))
    (tmp_path / "net.onnx").write_bytes(b"nonsense")
    with pytest.raises(BadUsage, match="needs its names"):
        _ = open_network(TeacherSettings(file=str(tmp_path / "net.onnx"))).names
    with pytest.raises(JoemError, match=r"net\.onnx"):
        open_network(TeacherSettings(file=str(tmp_path / "net.onnx"), names="a, b")).labels(
            torch.zeros(3, 4, 4, dtype=torch.uint8)
        )


def onnx_network(path, layout, labels):
    """A network that takes the brightest of three channels: its labels, or the channels as scores."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    shape = [1, 3, "h", "w"] if layout == "first" else [1, 8, 8, 3]
    axis = 1 if layout == "first" else 3
    kind = onnx.TensorProto.INT64 if labels else onnx.TensorProto.FLOAT
    node = h.make_node("ArgMax", ["x"], ["y"], axis=axis, keepdims=0) if labels else h.make_node("Relu", ["x"], ["y"])
    graph = h.make_graph(
        [node],
        "g",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [h.make_tensor_value_info("y", kind, None)],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("labels", [True, False])
def test_onnx_files_of_either_layout_with_labels_or_scores(tmp_path, layout, labels):
    onnx_network(tmp_path / "net.onnx", layout, labels)
    (tmp_path / "names.txt").write_text("red\ngreen\nblue\n")
    settings = TeacherSettings(file=str(tmp_path / "net.onnx"), names=(str(tmp_path / "names.txt"),), std=(255.0,) * 3)
    expected = torch.randint(3, (8, 8))
    image = torch.nn.functional.one_hot(expected, 3).permute(2, 0, 1).to(torch.uint8) * 200
    network = open_network(settings)
    assert network.names == ("red", "green", "blue")
    assert torch.equal(network.labels(image), expected)
    larger = image.repeat_interleave(3, 1).repeat_interleave(3, 2)
    if layout == "last":  # of one size: the picture is made smaller, its labels larger
        middle = network.labels(larger)[1::3, 1::3]
        assert float((middle == expected).float().mean()) > 0.9


def test_labels_beyond_the_names_are_told(tmp_path):
    onnx_network(tmp_path / "net.onnx", "first", labels=True)
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    image[2] = 9
    with pytest.raises(JoemError, match="label 2, but has 2 names"):
        open_network(TeacherSettings(file=str(tmp_path / "net.onnx"), names="a, b")).labels(image)


@pytest.mark.real
def test_the_mobile_segmenter_finds_sky_and_grass():
    pytest.importorskip("ai_edge_litert")
    file = REAL_DATA / "teachers/mosaic-ade31.tflite"
    if not file.is_file():
        pytest.skip("the teacher is not there")
    names = file.with_name("README.md").read_text().split("are\n")[1].split(". Runs")[0].split()
    network = open_network(TeacherSettings(file=str(file), names=("other", *names)))
    pictures = data.open("voc", REAL_DATA / "VOCdevkit", "val")
    found = np.concatenate([network.labels(pictures[index].image).unique().numpy() for index in range(10)])
    assert {"sky", "grass"} <= {network.names[label] for label in found}


@pytest.fixture
def recipe(tmp_path):
    """A small blend that a model of its own kind teaches: its words are other ones."""
    small = make_small("blend").changed(
        model={"freeze_norm": True}, train={"cache": str(tmp_path / "maps"), "pixels": 8}
    )
    names = ("background", "wide grass", "blue sky")
    words = Model.create(small, Vocabulary(names, background="background"))
    words.save(tmp_path / "teacher")
    return small.changed(data={"teachers": [{"file": str(tmp_path / "teacher"), "saw": "nothing"}]})


def test_a_model_learns_the_words_of_its_teacher_and_keeps_who_taught_them(recipe, tmp_path):
    model = engine.train(recipe, tmp_path / "run")
    assert model.vocabulary.taught == ("wide grass", "blue sky")
    assert set(model.vocabulary.taught) <= set(model.vocabulary.seen)
    loaded = Model.load(tmp_path / "run")
    assert loaded.vocabulary == model.vocabulary
    by = {each.how: each for each in loaded.teaching}
    assert by["teacher"].words == ("wide grass", "blue sky")
    assert by["teacher"].saw == "nothing"
    assert set(by["masks"].words) == set(model.vocabulary.seen) - set(model.vocabulary.taught)
    problem = engine.open_problem(recipe.data, needed=("val",))
    assert problem.vocabulary.taught == ()
    (found,) = engine.evaluate(loaded, problem, [loaded.recipe.decision])
    assert len(found.scores.per_class) == len(problem.vocabulary)


def test_pixels_of_taught_words_count_as_background_when_a_model_is_scored(recipe):
    model = fresh_model(recipe.changed(data={"teachers": []}))
    vocabulary = model.vocabulary
    problem = engine.open_problem(recipe.data, needed=("val",))
    confusions = []
    for taught_names in ((), ("wide grass",)):
        model.vocabulary = vocabulary.with_taught(taught_names)
        model.vectors = model.semantics.vectors(model.vocabulary.names)
        (found,) = engine.evaluate(model, problem, [model.recipe.decision.replace("nn")])
        confusions.append(found.confusion)
    gone = confusions[0] - confusions[1]
    assert confusions[0].sum() == confusions[1].sum()
    assert (gone[:, 1:] >= 0).all()
    assert (gone[:, 0] <= 0).all()


def test_nothing_changes_without_teachers():
    pictures = Pictures([torch.zeros(1, 1, dtype=torch.int64)])
    assert taught(pictures, DataSettings(), None) is pictures


@pytest.fixture
def captions(tmp_path):
    """Twelve photos that all people call a dog on grass, or a cow in water."""
    (tmp_path / "photos/images").mkdir(parents=True)
    lines = []
    for number in range(24):
        colour = (200, 40, number) if number % 2 else (40, 200, number)
        Image.new("RGB", (40, 32), colour).save(tmp_path / f"photos/images/{number}.png")
        lines += [f"{number}.png,{'a dog on grass' if number % 2 else 'a cow in water'}"] * 2
    (tmp_path / "photos/captions.csv").write_text("\n".join(lines))
    return str(tmp_path / "photos")


def test_captions_teach_and_training_on_them_resumes_to_the_same_weights(recipe, captions, tmp_path, monkeypatch):
    with_captions = recipe.changed(data={"teachers": [], "captions": captions}, train={"save_every": 1})
    whole = engine.train(with_captions, tmp_path / "whole")
    log = (tmp_path / "whole/metrics.csv").read_text().splitlines()
    assert "cosine_captions" in log[0]
    (heard,) = [each for each in whole.teaching if each.how == "captions"]
    assert set(heard.words) == {"dog", "grass", "cow", "water"}
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(engine.Interrupted):
            engine.train(with_captions, tmp_path / "parts")
    assert_same_weights(engine.train(with_captions, tmp_path / "parts", resume=True), whole)


def test_captions_need_stored_maps_and_a_method_that_learns_from_them(recipe, captions):
    with pytest.raises(BadUsage, match=r"train\.cache"):
        engine.train(recipe.changed(data={"teachers": [], "captions": captions}, train={"cache": None}))
    joem = make_tiny(
        data={"captions": captions},
        model={"head": {"name": "hypercolumn", "hidden": 4, "channels": 4}, "freeze_backbone": True},
    ).changed(train={"cache": recipe.train.cache, "pixels": 4})
    with pytest.raises(BadUsage, match="learns nothing from captions"):
        engine.train(joem)


def test_folds_hold_out_what_masks_show_and_keep_the_words_of_teachers(recipe):
    problem = engine.open_problem(recipe.data, needed=("train",))
    folds = calibration.fold_problems(problem, 3, seed=0)
    held_out = {name for fold in folds for name in fold.vocabulary.unseen}
    assert held_out == set(problem.vocabulary.without_taught().seen) - {"background"}
    assert all(fold.vocabulary.taught == problem.vocabulary.taught for fold in folds)
