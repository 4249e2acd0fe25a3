import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from joem import Segmenter, cli, decision, engine, prediction
from joem.data.scenes import Scenes
from joem.errors import BadUsage
from joem.model import Model

NAMES = ["background", "red circle", "green dog|puppy"]


@pytest.fixture
def segmenter(tiny) -> Segmenter:
    return Segmenter(Model.create(tiny, engine.open_problem(tiny.data).vocabulary))


@pytest.fixture
def photo():
    return Image.fromarray(Scenes(1, 64)[0].image.permute(1, 2, 0).numpy())


@pytest.fixture
def photos(photo, tmp_path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    photo.save(folder / "a.png")
    photo.save(folder / "a.bmp")
    photo.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(folder / "sub" / "A.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


def names_of(paths):
    return [path.name for path in paths]


def test_pictures_are_found_in_files_folders_patterns_and_lists(photos):
    assert names_of(prediction.find_pictures([str(photos)])) == ["a.bmp", "a.png", "A.png"]
    assert names_of(prediction.find_pictures([f"{photos}/*.png"])) == ["a.png"]
    assert names_of(prediction.find_pictures([f"{photos}/**/*.png"])) == ["a.png", "A.png"]
    lines = [f"{photos}/a.bmp\n", "\n", f"{photos}/sub\n"]
    assert names_of(prediction.find_pictures(["-"], lines)) == ["a.bmp", "A.png"]
    assert names_of(prediction.find_pictures([f"{photos}/a.bmp", str(photos)])) == ["a.bmp", "a.png", "A.png"]
    assert prediction.find_pictures(["gone.png"]) == [Path("gone.png")]  # reading it will say that it is gone


def test_a_file_whose_name_looks_like_a_pattern_is_taken_as_it_is(photo, tmp_path):
    photo.save(tmp_path / "a[1].png")
    assert names_of(prediction.find_pictures([str(tmp_path / "a[1].png")])) == ["a[1].png"]


def test_earlier_results_are_no_pictures_to_segment(photos):
    (photos / "out").mkdir()
    (photos / "a.png").rename(photos / "out" / "overlay.png")
    assert names_of(prediction.find_pictures([str(photos)], results=photos / "out")) == ["a.bmp", "A.png"]
    assert names_of(prediction.find_pictures([str(photos)])) == ["a.bmp", "overlay.png", "A.png"]


@pytest.mark.parametrize("place", ["empty", "empty/*.png"])
def test_a_place_without_pictures_is_bad_usage(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(BadUsage, match="no pictures in empty"):
        prediction.find_pictures([place])


@pytest.mark.parametrize("jobs", [1, 3])
def test_equal_names_do_not_overwrite_one_another(segmenter, photos, tmp_path, jobs):
    pictures = prediction.find_pictures([str(photos)])
    request = prediction.Request(NAMES, rule="nn")
    done = list(prediction.predict(segmenter, pictures, request, tmp_path / "out", jobs))
    assert [each.folder.name for each in done] == ["a", "a-2", "A-3"]
    for each in done:
        expected = segmenter.encode(each.picture).segment(NAMES, "nn").labels.numpy()
        with Image.open(each.folder / "mask.png") as mask:
            assert np.array_equal(np.asarray(mask), expected)
        assert json.loads((each.folder / "result.json").read_text()) == each.found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (prediction.Request(["zzxqy"]), "zzxqy"),
        (prediction.Request(rule="no"), "Unknown rule 'no'"),
        (prediction.Request(rule="ac", values={"sigma": 3.0}), "sigma must be in"),
        (prediction.Request(values={"strength": 3.0}), "Unknown parameter of a rule 'strength'"),
        (prediction.Request(longest=0), "at least one pixel"),
    ],
)
def test_what_cannot_be_met_fails_before_any_picture_is_read_or_encoded(
    segmenter, tmp_path, monkeypatch, asked, message
):
    monkeypatch.setattr("joem.data.read_image", lambda path: pytest.fail("read"))
    monkeypatch.setattr(type(segmenter.model.method), "features", lambda *_: pytest.fail("encoded"))
    with pytest.raises(BadUsage, match=message):
        list(prediction.predict(segmenter, [tmp_path / "a.png"], asked, tmp_path))


def test_every_picture_is_encoded_and_ranked_once(segmenter, photos, tmp_path, monkeypatch):
    counts = {"rank": 0, "features": 0}

    def counted(name, function):
        def call(*given, **named):
            counts[name] += 1
            return function(*given, **named)

        return call

    method = type(segmenter.model.method)
    monkeypatch.setattr(decision, "rank", counted("rank", decision.rank))
    monkeypatch.setattr(method, "features", counted("features", method.features))
    request = prediction.Request(["background", "red circle", "green dog"], "cs", {"gamma": 0.1})
    pictures = prediction.find_pictures([str(photos)])
    done = list(prediction.predict(segmenter, pictures, request, tmp_path / "out"))
    assert all(each.found["confidences"] for each in done)
    assert counts == {"rank": 3, "features": 3}


def test_no_jobs_are_too_few(segmenter, photos, tmp_path):
    with pytest.raises(BadUsage, match="--jobs must be at least 1, got 0"):
        list(prediction.predict(segmenter, [], prediction.Request(), tmp_path, jobs=0))


def test_a_picture_that_cannot_be_saved_stops_no_other(segmenter, photos, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("in the way")
    done = list(
        prediction.predict(segmenter, prediction.find_pictures([str(photos)]), prediction.Request(), tmp_path / "out")
    )
    assert [each.error is None for each in done] == [False, True, True]
    assert "a.bmp" in done[0].error


def _save(array_or_image, path, **options):
    image = array_or_image if isinstance(array_or_image, Image.Image) else Image.fromarray(array_or_image)
    image.save(path, **options)


def test_every_kind_of_file_gives_the_labels_of_its_colours(segmenter, photo, tmp_path):
    """Kinds that keep the colours exactly must give the very labels of the plain picture."""
    grey = photo.convert("L")
    clear = photo.convert("RGBA")
    clear.putalpha(255)
    _save(photo, tmp_path / "plain.png")
    _save(clear, tmp_path / "alpha.png")
    _save(photo.convert("CMYK"), tmp_path / "cmyk.tif")
    turned = Image.Exif()
    turned[0x0112] = 6  # stored turned by a quarter: to be shown turned back
    _save(photo.transpose(Image.Transpose.ROTATE_90), tmp_path / "turned.png", exif=turned)
    _save(grey, tmp_path / "grey.png")
    _save(np.asarray(grey).astype(np.uint16) * 257, tmp_path / "sixteen.png")
    _save(grey.convert("RGB").quantize(256, dither=Image.Dither.NONE), tmp_path / "palette.png")
    labels = {path.stem: segmenter.encode(path).segment().labels for path in tmp_path.glob("*.*")}
    assert len(labels) == 7
    for kind in ("alpha", "cmyk", "turned"):
        assert torch.equal(labels[kind], labels["plain"]), kind
    for kind in ("sixteen", "palette"):
        assert torch.equal(labels[kind], labels["grey"]), kind


def test_what_is_transparent_is_white(segmenter):
    picture = Image.new("RGBA", (20, 10), (255, 0, 0, 0))
    assert segmenter.encode(picture).pixels.unique().tolist() == [255]


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_the_command_line(segmenter, photos, tmp_path, capsys, monkeypatch):
    model = segmenter.save(tmp_path / "m")
    monkeypatch.setattr("sys.stdin", [f"{photos}/a.png\n", f"{photos}/gone.png\n"])
    out = tmp_path / "out"
    code, printed, errors = run(
        capsys, "predict", "-", "--model", model, "--classes", "background, red circle|red disc,", "--add", "cow",
        "--add", "background", "--rule", "cs", "--gamma", 0.1, "--out", out, "--json",
    )  # fmt: skip
    assert code == 1
    assert "1 of 2 pictures failed:\n  There is no picture" in errors
    (found,) = json.loads(printed)
    assert found["names"] == ["background", "red circle", "cow"]
    assert found["unseen"] == ["cow"]
    assert found["folder"] == str(out / "a")
    labels = segmenter.encode(photos / "a.png").segment(["background", "red circle|red disc", "cow"], "cs", gamma=0.1)
    with Image.open(out / "a" / "mask.png") as mask:
        assert np.array_equal(np.asarray(mask), labels.labels.numpy())


def test_more_than_256_names(segmenter, photos, tmp_path, capsys):
    words = [
        "cow",
        "horse",
        "dog",
        "cat",
        "sheep",
        "goat",
        "duck",
        "hen",
        "fox",
        "wolf",
        "bear",
        "deer",
        "lion",
        "tiger",
        "frog",
        "snake",
        "crow",
    ]
    names = [f"{one} {other}" for one in words for other in words if one != other]
    model, out = segmenter.save(tmp_path / "m"), tmp_path / "out"
    asked = ["--classes", ", ".join(names), "--no-background"]
    code, _, errors = run(capsys, "predict", photos / "a.png", "--model", model, *asked, "--out", out)
    assert code == 0, errors
    expected = segmenter.encode(photos / "a.png").segment(names, background=False)
    assert len(expected.names) == 272
    with Image.open(out / "a" / "mask.png") as mask:
        assert np.array_equal(np.asarray(mask), expected.labels.numpy())


def test_the_command_line_writes_for_other_tools_what_python_gives(segmenter, photos, tmp_path, capsys):
    segmenter.save(tmp_path / "model")
    words = ["predict", str(photos / "a.png"), str(photos / "sub" / "A.png"), "--model", str(tmp_path / "model")]
    asked = ["--classes", "red circle, green dog", "--refine", "--save", "coco", "label-studio", "cvat", "cut-outs"]
    assert cli.main([*words, *asked, "--out", str(tmp_path / "out")]) == 0
    result = segmenter(photos / "a.png", "red circle, green dog", refine=True)
    for kind, given in {"coco": result.to_coco(file_name="a.png"), "cvat": result.to_cvat("a.png")}.items():
        written, joined = (json.loads((tmp_path / "out" / at / f"{kind}.json").read_text()) for at in ("a", ""))
        assert written == json.loads(json.dumps(given))
        assert [each["file_name"] for each in joined["images"]] == ["a.png", "A.png"]
        count = len(written["annotations"])
        assert joined["annotations"][:count] == written["annotations"]
    assert (tmp_path / "out" / "A-2" / "label-studio.json").is_file()
    assert (tmp_path / "out" / "a" / "cut-outs").is_dir()
    assert str(tmp_path / "out" / "cvat.json") in capsys.readouterr().out


def test_add_alone_keeps_the_models_own_classes(segmenter, photos, tmp_path, capsys):
    model = segmenter.save(tmp_path / "m")
    words = ("predict", photos / "a.png", "--model", model, "--add", "tractor", "--out", tmp_path / "o", "--json")
    code, printed, _ = run(capsys, *words)
    assert code == 0
    assert json.loads(printed)[0]["names"] == [*segmenter.vocabulary.names, "tractor"]


def test_names_added_with_commas_between_are_several(segmenter, photos, tmp_path, capsys):
    model = segmenter.save(tmp_path / "model")
    words = ("predict", photos / "a.png", "--model", model, "--add", "tractor, cow", "--out", tmp_path / "o", "--json")
    code, printed, _ = run(capsys, *words)
    assert code == 0
    assert json.loads(printed)[0]["names"] == [*segmenter.vocabulary.names, "tractor", "cow"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--classes", ""), "at least one class name, got none"),
        (("--classes", "caf\udce9, cow"), "one line of readable text, got 'caf\\udce9'"),
        (("--classes", "cow\nhorse"), "one line of readable text"),
        (("--add", " "), "non-empty text"),
        (("--rule", "nn", "--sigma", 0.7), "--sigma is for the rule ac or ratio, but the rule is nn: add --rule ac."),
        (("--gamma", 0.7), "--gamma is for the rule cs, but the rule is ac: add --rule cs."),
    ],
)
def test_options_that_make_no_sense_are_bad_usage(segmenter, photos, tmp_path, capsys, words, message):
    model = segmenter.save(tmp_path / "model")
    code, _, told = run(capsys, "predict", photos / "a.png", "--model", model, "--out", tmp_path / "o", *words)
    assert code == 2
    assert message in told


def test_without_a_model_the_error_says_how_to_get_one(photos, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("joem.model_folder.BOX", tmp_path / "no box")
    code, _, errors = run(capsys, "predict", photos)
    assert code == 1
    assert "joem quickstart makes one" in errors
