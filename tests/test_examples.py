"""Classes by examples: prototypes from masks and points, kept with a model, in Python and on the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import spread
from joem import Segmenter, cli, engine, examples
from joem.asking import NOT
from joem.decision import Decision, Score
from joem.engine.looks import spread as spread_of
from joem.errors import BadUsage, JoemError
from joem.model import Model

SCORED = Decision("nn", score=Score((0.5, -1.0, 4.0), (0.1, -1.5, 3.0)))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_a_mask_weighs_every_cell_by_the_share_that_is_marked(rows, columns, down, across, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(1, 3, rows, columns, generator=generator)
    mask = torch.rand(rows * down, columns * across, generator=generator) < 0.5
    mask[0, 0] = True
    total, weight = torch.zeros(3), 0
    for y in range(mask.shape[0]):
        for x in range(mask.shape[1]):
            if mask[y, x]:
                total += features[0, :, y // down, x // across]
                weight += 1
    torch.testing.assert_close(examples.of_mask(features, mask)[0], total / weight, atol=1e-5, rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 40), st.integers(1, 40), st.data())
def test_a_point_is_the_mean_of_the_cells_around_it(rows, columns, height, width, drawn):
    x, y = drawn.draw(st.integers(0, width - 1)), drawn.draw(st.integers(0, height - 1))
    features = torch.randn(1, 2, rows, columns, generator=torch.Generator().manual_seed(0))
    row, column = int((y + 0.5) / height * rows), int((x + 0.5) / width * columns)
    around = [
        features[0, :, r, c]
        for r in range(row - 1, row + 2)
        for c in range(column - 1, column + 2)
        if 0 <= r < rows and 0 <= c < columns
    ]
    found = examples.of_point(features, x, y, (height, width))[0]
    torch.testing.assert_close(found, torch.stack(around).mean(0), atol=1e-6, rtol=1e-5)


def test_several_examples_are_kept_apart_and_compared_by_their_mean(segmenter, picture):
    mask = np.zeros((64, 64), bool)
    mask[:20, :20] = True
    taught = segmenter.with_examples("widget", [(picture, mask), (picture, [(50, 50), (10, 60)])])
    assert taught.model.examples["widget"].shape[0] == 3
    classes = taught.classes("widget, red circle")
    assert classes.names == ("widget", "red circle", "background")
    assert classes.shown_owners.tolist() == [0]
    torch.testing.assert_close(classes.shown[0], taught.model.examples["widget"].mean(0))
    assert classes.owners.tolist() == [0, 1, 2]  # its word is one of its prototypes too
    assert not segmenter.model.examples  # the first one is as it was


def test_an_example_is_found_where_it_was_taken(segmenter, picture):
    generator = torch.Generator().manual_seed(0)
    features = segmenter.encode(picture).features[0].flatten(1).T
    segmenter.model.trained = trained = spread_of(features, torch.randint(4, (len(features),), generator=generator))
    scene = segmenter.encode(picture)
    x, y = 13, 40
    names = "background, red circle, brown horse"
    before, after = (scene.segment(names, points=points) for points in (None, {"zzq": [(x, y)]}))
    assert after.names == (*before.names, "zzq")
    assert after.unseen == (*before.unseen, "zzq")
    example = scene.example("zzq", [(x, y)])["zzq"]
    features = F.interpolate(scene.features, (64, 64), mode="bilinear", align_corners=False)[0]
    nearest = segmenter.classes(names).distances(scene.features, None)[0].argmin(0)
    present = [label for label in (1, 2) if (nearest == label).any()]  # by words, but for the background
    assert present
    found = [scene.features[0][:, nearest == label].mean(1) for label in present]
    rivals = trained.whitened(torch.stack([*trained.centres, *found]))
    for row in range(0, 64, 3):  # straight from the definition
        for column in range(0, 64, 3):
            v = trained.whitened(features[:, row, column])
            of_example = (v - trained.whitened(example[0])).norm() < (v - rivals).norm(dim=1).min()
            expected = 3 if of_example else before.labels[row, column]
            assert after.labels[row, column] == expected
    assert 0 < (after.labels == 3).float().mean() < 1


def test_a_point_that_is_not_of_the_class_is_one_of_the_background(segmenter, picture):
    shown = segmenter.encode(picture).example("zzq", [(5, 5), (60, 60, False)])
    assert {name: len(each) for name, each in shown.items()} == {"zzq": 1, NOT: 1}
    classes = segmenter.knowing(shown).classes("zzq")
    assert classes.names == ("zzq", "background")
    assert classes.shown_owners.tolist() == [0, 1]
    assert classes.owners.tolist() == [1]  # no word
    without = segmenter.knowing(shown).classes("zzq", background=False)
    assert without.names == ("zzq", "other")
    assert without.rest == "other"


def test_examples_alone_give_every_pixel_the_nearest(segmenter, picture):
    scene = segmenter.encode(picture)
    shown = [scene.example(name, [point]) for name, point in (("zzq", (5, 5)), ("zzw", (60, 60)))]
    taught = segmenter.knowing(*shown).encode(picture)
    result = taught.segment("zzq, zzw", background=False)
    features = F.interpolate(scene.features, (64, 64), mode="bilinear", align_corners=False)[0]
    distances = [(features - example.T[:, :, None]).norm(dim=0) for each in shown for example in each.values()]
    assert torch.equal(result.labels, (distances[1] < distances[0]).long())


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 10**6))
def test_whitened_features_spread_alike_in_all_directions(channels, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (400,), generator=generator)
    mixing = torch.randn(channels, channels, generator=generator)
    features = torch.randn(400, channels, generator=generator) @ mixing + 5 * labels[:, None]
    found = spread_of(features, labels)
    present = labels.unique().tolist()
    for centre, label in zip(found.centres, present, strict=True):
        torch.testing.assert_close(centre, features[labels == label].mean(0), atol=1e-4, rtol=1e-4)
    within = torch.cat(
        [features[labels == label] - centre for centre, label in zip(found.centres, present, strict=True)]
    )
    covariance = within.T @ within / len(within)
    shrunk = 0.5 * covariance + 0.5 * covariance.diagonal().mean() * torch.eye(channels)
    inverse = torch.linalg.inv(shrunk)
    v, m = features[0], found.centres[0]
    expected = (v - m) @ inverse @ (v - m)
    torch.testing.assert_close((found.whitened(v) - found.whitened(m)).square().sum(), expected, rtol=1e-2, atol=1e-3)


def test_what_was_trained_is_kept_and_knows_no_unseen_class(tiny, tmp_path):
    problem = engine.open_problem(tiny.data)
    model = spread(Model.create(tiny, problem.vocabulary), problem.train[0].image)
    model.trained = engine.trained_features(model, problem)
    assert len(model.trained.centres) <= len(problem.vocabulary.seen)
    loaded = Model.load(model.save(tmp_path / "m")).trained
    assert all(torch.equal(each, loaded.tensors()[name]) for name, each in model.trained.tensors().items())


def test_a_model_keeps_its_examples(segmenter, picture, tmp_path):
    taught = segmenter.with_examples("zzq", [(picture, [(5, 5), (9, 9, False)])])
    loaded = Segmenter.load(taught.save(tmp_path / "model"))
    assert loaded.model.examples.keys() == taught.model.examples.keys()
    first, second = (one.encode(picture).segment("zzq, red circle") for one in (taught, loaded))
    assert torch.equal(first.labels, second.labels)
    assert "zzq" in first.names


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ([], "No example of 'zzq'"),
        ([("there-is-none.png", [(1, 1)])], "There is no picture"),
        ([(np.zeros((8, 8), np.uint8), np.zeros((8, 8)))], "marks nothing"),
        ([(np.zeros((8, 8), np.uint8), np.ones((4, 8)))], "The mask has 8 x 4 pixels, its picture 8 x 8"),
        ([(np.zeros((8, 8), np.uint8), [(8, 0)])], "columns 0 to 7"),
        ([(np.zeros((8, 8), np.uint8), [(1,)])], r"must be \(x, y\)"),
        ([(np.zeros((8, 8), np.uint8), [("1", 2)])], r"must be \(x, y\)"),
    ],
)
def test_bad_examples_are_told(segmenter, shown, message):
    with pytest.raises(JoemError, match=message):
        segmenter.with_examples("zzq", shown)


def test_a_damaged_file_of_examples_is_told(segmenter, picture, tmp_path):
    folder = segmenter.with_examples("zzq", [(picture, [(5, 5)])]).save(tmp_path / "model")
    examples.write(folder / "examples.safetensors", {"zzq": torch.zeros(1, 3)})
    with pytest.raises(JoemError, match="is damaged or of another model: 'zzq' has the shape"):
        Segmenter.load(folder)


def test_the_command_line_takes_examples_and_gives_the_same_labels(segmenter, picture, tmp_path, capsys):
    model = segmenter.save(tmp_path / "model")
    photo, mask = tmp_path / "photo.png", tmp_path / "mask.png"
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(photo)
    marked = np.zeros((64, 64), np.uint8)
    marked[30:50, 10:40] = 255
    Image.fromarray(marked).save(mask)
    options = ["--example", f"zzq={photo},{mask}", "--example", f"zzw={photo},3:4,!60:61"]
    words = ["predict", str(photo), "--model", str(model), "--classes", "red circle", "--out", str(tmp_path / "out")]
    assert cli.main([*words, *options, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    taught = segmenter.with_examples("zzq", [(photo, mask)]).with_examples("zzw", [(photo, [(3, 4), (60, 61, False)])])
    expected = taught(photo, "red circle, zzq, zzw", points={"zzw": [(3, 4), (60, 61, False)]})
    assert found["names"] == list(expected.names)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out" / "photo" / "mask.png")), expected.labels.numpy())


@pytest.mark.parametrize("text", ["flag", "flag=photo.png", "=photo.png,mask.png", "flag=none.png,1:2"])
def test_an_example_that_is_written_otherwise_is_bad_usage(text, tmp_path, capsys):
    assert cli.main(["predict", "photo.png", "--example", text]) == 2
    assert "example" in capsys.readouterr().err


def test_an_asked_example_is_understood_in_other_spellings(segmenter, picture):
    taught = segmenter.with_examples("mug", [(picture, [(5, 5)])])
    classes = taught.classes("Mugs")
    assert classes.names[0] == "Mugs"
    assert classes.notes == ('"Mugs" is the class "mug".',)


def test_exclusions_and_examples_need_something_to_look_for(segmenter):
    with pytest.raises(BadUsage, match="Only exclusions"):
        segmenter.classes("not: sky")


def test_a_pixel_of_an_example_scores_by_how_much_nearer_it_is_than_to_what_was_trained(segmenter, picture):
    segmenter.model.recipe = replace(segmenter.model.recipe, decision=SCORED)
    result = segmenter.encode(picture).segment("red circle", points={"zzq": [(13, 40)]})
    scores, taken = result.scores(), result.labels == result.names.index("zzq")
    assert taken.any()
    assert scores[taken].min() >= 0.5  # or something that was trained would be nearer
    assert result.class_scores()["zzq"] == pytest.approx(float(scores[taken].mean()), abs=1e-5)


def test_what_is_shown_on_a_picture_is_meant_and_not_its_word(segmenter, picture):
    scene = segmenter.encode(picture)
    for name, spoken in (("horse", 1), ("red circle", 2)):  # the second was trained
        classes, _ = scene.ranked("background", points={name: [(5, 5)]})
        assert len(classes.prototypes) == spoken
