"""The commands on a problem of seconds."""

import inspect
import json
from typing import get_args

import pytest
import yaml
from PIL import Image

import tiny_towers  # noqa: F401  # registers its networks
from conftest import make_tiny
from joem import cli, engine, recipe
from joem.cli import scoring
from joem.data import Scenes, write_folder
from joem.semantics import Semantics
from tiny_clip_files import tiny_clip, write_sentence_folder
from tiny_clip_files import write_folder as write_folder_of_clip


@pytest.fixture
def tiny_file(tiny, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.to_dict()))
    return str(path)


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def save_picture(path):
    Image.fromarray(Scenes(1, 64)[0].image.permute(1, 2, 0).numpy()).save(path)
    return path


def test_the_overview_has_every_command(capsys):
    code, printed, _ = run(capsys, "--help")
    assert code == 0
    for command in cli.COMMANDS:
        assert f"\n  {command} " in printed
    assert run(capsys)[1] == printed
    assert run(capsys, "--version")[1].strip() == "0.1.0"


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_teaches_itself(command, capsys):
    code, printed, _ = run(capsys, *command.split(), "--help")
    assert code == 0
    assert f"Example: joem {command}" in printed
    assert "--json" in printed


def test_train_evaluate_predict(tiny_file, tmp_path, capsys):
    out = tmp_path / "run"
    code, printed, _ = run(capsys, "train", tiny_file, "--out", out, "--train.epochs", 1)
    assert code == 0
    assert "Model:" in printed
    again = run(capsys, "train", tiny_file, "--out", out, "--train.epochs", 1, "--resume", "--json")[1]
    answer = json.loads(again)
    assert (answer["model"], answer["metrics"]) == (str(out / "model"), [str(out / "metrics.csv")])
    assert answer["validation"]["images"] == 3
    half = tmp_path / "half"
    printed = run(capsys, "export", out, "--format", "half", "--out", half, "--json")[1]
    assert json.loads(printed) == {"file": str(half), "labels_that_differ": None}
    code, printed, _ = run(capsys, "evaluate", out, "--json")
    assert code == 0
    results = json.loads(printed)
    assert [row["rule"] for row in results] == ["nn", "cs", "ac"]
    assert results[0]["had_seen_before"] == "backbone: nothing; words: text"
    assert tuple(results[0]["per_class"]) == engine.open_problem(recipe.load("scenes").data).vocabulary.names
    again = json.loads(run(capsys, "evaluate", out, "--device", "auto", "--workers", 3, "--json")[1])
    assert [{**row, "images_per_second": 0} for row in again] == [{**row, "images_per_second": 0} for row in results]
    curves = run(capsys, "sweep", out, "--json")[1]
    assert curves == run(capsys, "sweep", out, "--device", "auto", "--workers", 3, "--json")[1]
    reported = json.loads(run(capsys, "report", out, "--device", "auto", "--workers", 3, "--json")[1])
    assert reported["per_class"] == results[-1]["per_class"]
    code, _, told = run(capsys, "evaluate", out, "--device", "nonsense")
    assert (code, "The device 'nonsense' cannot be used" in told) == (2, True)
    code, printed, _ = run(capsys, "evaluate", out, "--rule", "ac", "--sigma", 0.9)
    assert code == 0
    assert "hIoU" in printed
    assert "per second" in printed
    picture = save_picture(tmp_path / "photo.png")
    words = ("predict", picture, "--model", out, "--classes", "background, red circle", "--add", "purple cow")
    code, printed, _ = run(capsys, *words, "--out", tmp_path / "seen", "--json")
    assert code == 0
    (found,) = json.loads(printed)
    assert found["names"] == ["background", "red circle", "purple cow"]
    assert (tmp_path / "seen" / "photo" / "overlay.png").is_file()


@pytest.fixture
def towers(tmp_path):
    """Text towers as folders, by their kind."""
    open_clip, transformers = pytest.importorskip("open_clip"), pytest.importorskip("transformers")
    write_folder_of_clip(tiny_clip(open_clip), tmp_path / "clip")
    write_sentence_folder(transformers, tmp_path / "sentence")
    return {kind: f"{kind}:{tmp_path / kind}" for kind in ("clip", "sentence")}


def test_text_towers_train_from_the_command_line(towers, tiny_file, tmp_path, capsys):
    out = tmp_path / "run"
    code, printed, errors = run(capsys, "train", tiny_file, "--semantics.vectors", towers["sentence"], "--out", out)
    assert code == 0, errors
    assert "Trained." in printed
    small = {"kind": "scenes", "protocol": "null", "size": 48, "train_count": 8, "val_count": 2, "crop": 48}
    words = [f for key, value in small.items() for f in (f"--data.{key}", value)]
    words += ["--model.backbone", "tu-tiny_clip", "--model.weights", "none", "--model.side", 48]
    words += ["--train.cache", tmp_path / "cache", "--train.pixels", 8, "--train.batch_size", 4, "--train.epochs", 1]
    for recipe_of_clip in ("clip", "clip-tower"):
        out = tmp_path / recipe_of_clip
        code, printed, errors = run(
            capsys, "train", recipe_of_clip, "--semantics.vectors", towers["clip"], *words, "--out", out
        )
        assert code == 0, errors
        assert "Trained." in printed


def test_a_bad_picture_does_not_stop_the_others(tiny, tmp_path, capsys):
    engine.Model.create(tiny, engine.open_problem(tiny.data).vocabulary).save(tmp_path / "m")
    good, bad = save_picture(tmp_path / "good.png"), tmp_path / "bad.png"
    bad.write_bytes(b"this is no picture")
    words = ("--model", tmp_path / "m", "--out", tmp_path / "o")
    code, printed, errors = run(capsys, "predict", bad, good, tmp_path / "gone.png", *words)
    assert code == 1
    assert "good.png" in printed
    assert "2 of 3 pictures failed" in errors
    assert "bad.png" in errors
    assert "gone.png" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scenes", "--train.epochss", "3"], "train.epochss: there is no such setting"),
        (["scenes", "--train.epochs", "many"], "train.epochs"),
        (["scenes", "--model.backbone", "nonsense", "--train.accelerator", "cpu"], "Unknown backbone"),
        (["scenes", "--data.unseen", "[purple cow]"], "purple cow"),
        (["scenes", "--method.name", "magic"], "Unknown method 'magic'"),
    ],
)
def test_settings_that_cannot_be(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run(capsys, "train", *words)
    assert (code, printed) == (2, "")
    assert message in errors


def test_an_unknown_dataset_answers_with_the_list(capsys):
    code, _, errors = run(capsys, "data", "coco")
    assert code == 2
    assert "Available options are: scenes, voc, context" in errors


def test_an_unknown_key_in_a_recipe_is_named(tmp_path, capsys):
    (tmp_path / "r.yaml").write_text("model: {backbon: resnet18}\n")
    code, _, errors = run(capsys, "train", tmp_path / "r.yaml")
    assert code == 2
    assert "model.backbon" in errors


def test_bad_data_in_a_users_folder_end_a_training_with_a_clear_error(tmp_path, capsys):
    names = ["red circle", "red cross"]

    def train(unseen):
        path, root = tmp_path / "r.yaml", str(tmp_path / "d")
        own = {"kind": "folder", "root": root, "train_split": None, "val_split": None, "unseen": unseen}
        path.write_text(yaml.safe_dump(make_tiny(data=own).to_dict()))
        return run(capsys, "train", path, "--out", tmp_path / "run")

    code, _, errors = train(["red cross"])
    assert code == 2
    assert f"There is no folder {tmp_path / 'd'}" in errors
    write_folder(Scenes(4, 64, classes=names), tmp_path / "d")
    code, _, errors = train(names)
    assert code == 1
    assert "No seen class left" in errors
    next((tmp_path / "d" / "masks").iterdir()).unlink()
    code, _, errors = train(["red cross"])
    assert code == 1
    assert "mask" in errors


@pytest.fixture
def own_masks(tmp_path):
    """A folder of masks, and the words to train on it."""

    def made(count, unseen=()):
        root = tmp_path / "own"
        write_folder(Scenes(count, 64, classes=["red circle", "red cross"]), root)
        own = {"kind": "folder", "root": str(root), "unseen": list(unseen)}
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(make_tiny(data=own).to_dict()))
        return root, ["train", tmp_path / "own.yaml", "--out", tmp_path / "run"]

    return made


def test_a_training_without_pictures_kept_back_says_so(own_masks, capsys):
    _, words = own_masks(2)
    code, printed, errors = run(capsys, *words)
    assert code == 0, errors
    assert printed.splitlines()[-1].startswith("No picture was kept back, so nothing can be said of the model. There ")
    answer = json.loads(run(capsys, *words, "--resume", "--json")[1])
    assert answer["validation"] is None
    assert answer["reason"] == printed.splitlines()[-1]


def test_a_training_tells_all_faults_of_a_folder_at_once(own_masks, capsys):
    root, words = own_masks(6)
    first, second, third, fourth, *_ = sorted((root / "masks").iterdir())
    for mask in (first, second):
        Image.new("L", (64, 48)).save(mask)
    Image.new("L", (64, 64), 77).save(third)
    fourth.unlink()
    code, _, errors = run(capsys, *words)
    assert code == 1
    assert "1 of 6 pictures have no mask" in errors
    assert "2 masks of another size than their pictures" in errors
    assert "holds the value 77 at 4096 pixels" in errors
    (root / "splits").mkdir()
    for name, mask in (("train", third), ("val", first)):
        (root / "splits" / f"{name}.txt").write_text(mask.stem)
    code, _, errors = run(capsys, *words)
    assert code == 1
    assert "holds the value 77 at 4096 pixels" in errors
    assert f"its mask {first} is 64x48" in errors


def test_masks_without_a_class_are_refused_before_words_are_encoded(own_masks, capsys, monkeypatch):
    root, words = own_masks(3)
    for mask in (root / "masks").iterdir():
        Image.new("L", (64, 64)).save(mask)
    monkeypatch.setattr(Semantics, "vectors", lambda *_: pytest.fail("words were encoded"))
    code, _, errors = run(capsys, *words)
    assert code == 1
    assert "No seen class left" in errors


def test_data_folder_finds_pictures_that_cannot_be_read_or_do_not_fit(tmp_path, capsys):
    write_folder(Scenes(3, 64), tmp_path / "d")
    first, second, _ = sorted((tmp_path / "d" / "images").iterdir())
    Image.new("RGB", (64, 48)).save(second)
    code, printed, errors = run(capsys, "data", "folder", "--root", tmp_path / "d")
    assert (code, printed) == (1, "")
    assert f"{second} is 64x48" in errors
    first.write_bytes(first.read_bytes()[:100])
    code, _, errors = run(capsys, "data", "folder", "--root", tmp_path / "d")
    assert code == 1
    assert f"{first} is damaged" in errors


def test_a_disk_that_refuses_is_told_without_a_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, errors = run(capsys, "data", "scenes", "--count", 1, "--write", tmp_path / "file" / "d")
    assert code == 1
    assert errors.startswith("joem: ")
    assert str(tmp_path / "file") in errors


def test_data_describes_and_writes(tmp_path, capsys):
    code, printed, _ = run(capsys, "data", "scenes", "--count", 3, "--json")
    assert code == 0
    described = json.loads(printed)
    assert described["images"] == 3
    assert sum(row["unseen"] for row in described["classes"]) == 12
    code, printed, _ = run(capsys, "data", "scenes", "--count", 3, "--write", tmp_path / "d", "--json")
    assert code == 0
    assert json.loads(printed) == {"images": 3, "folder": str(tmp_path / "d")}
    code, printed, _ = run(capsys, "data", "folder", "--root", tmp_path / "d")
    assert code == 0
    assert "3 pictures" in printed


def test_lists_of_protocols_and_recipes(capsys):
    assert "voc-zs3-2" in run(capsys, "data", "--protocols")[1].split()
    assert "voc-spnet" in json.loads(run(capsys, "data", "--protocols", "--json")[1])
    assert tuple(json.loads(run(capsys, "data", "--recipes", "--json")[1])) == recipe.names()
    lines = run(capsys, "data", "--recipes")[1].splitlines()
    for line, name in zip(lines, recipe.names(), strict=True):
        assert line.split() == [name, *recipe.about(name).partition("\n")[0].split()]


def test_every_recipe_in_the_box_loads():
    for name in recipe.names():
        loaded = recipe.load(name)
        assert recipe.Recipe.from_dict(loaded.to_dict()) == loaded


def test_pictures_that_moved_have_stored_maps_of_their_own(tiny, tmp_path):
    """Stored maps go by the root of the recipe: those of other pictures of the same names must not be taken."""
    engine.Model.create(tiny, engine.open_problem(tiny.data).vocabulary).save(tmp_path / "m")
    model, _ = scoring.load(tmp_path / "m", "cpu", "elsewhere")
    assert model.recipe.data.root == "elsewhere"


def test_pictures_of_several_runs_stand_side_by_side(tmp_path, capsys):
    for name, options in {"a": {}, "b": {"name": "spnet"}, "c": {}}.items():
        unseen = {"unseen": ["red circle"]} if name == "c" else {}
        settings = make_tiny(data={"val_count": 12, **unseen}, method=options)
        engine.Model.create(settings, engine.open_problem(settings.data).vocabulary).save(tmp_path / name)
    words, out = ["compare-pictures", tmp_path / "a", tmp_path / "b"], tmp_path / "new" / "grid.png"
    code, printed, _ = run(capsys, *words, "--pictures", "scene-1-0003,scene-1-0001", "--out", out, "--json")
    assert code == 0
    assert json.loads(printed) == {"file": str(out), "pictures": ["scene-1-0003", "scene-1-0001"]}
    assert Image.open(out).width == 4 * 264 + 8
    same = [
        "--pictures",
        "scene-1-0003,scene-1-0001",
        "--device",
        "auto",
        "--workers",
        3,
        "--out",
        tmp_path / "same.png",
    ]
    assert run(capsys, *words, *same)[0] == 0
    assert (tmp_path / "same.png").read_bytes() == out.read_bytes()
    code, printed, _ = run(capsys, *words, "--mask-background", "--out", out)
    assert code == 0
    assert "scene-1-0009" in printed
    for more, told in (
        (["--pictures", "x"], "No evaluation picture is called x: there are 12, as scene-1-0000"),
        (["--out", "a.jpg"], "ends with .png"),
        ([tmp_path / "c"], "has other classes, or others unseen"),
    ):
        code, _, error = run(capsys, *words, *more)
        assert code == 2
        assert told in error


def test_every_table_and_job_can_be_asked_for():
    from joem import studies

    offered = inspect.signature(cli.COMMANDS["compare"]).parameters["table"].annotation
    assert get_args(offered) == (*studies.TABLES, "generators")
    parameters = inspect.signature(cli.COMMANDS["reproduce"]).parameters
    assert get_args(get_args(parameters["name"].annotation)[0]) == tuple(studies.JOBS)
    assert get_args(parameters["scale"].annotation) == studies.SCALES
