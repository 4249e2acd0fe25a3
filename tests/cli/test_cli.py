import json
import subprocess
import sys

import pytest
import yaml
from PIL import Image

from joem import cli, engine, recipe
from joem.data import Scenes, write_folder


@pytest.fixture
def tiny_file(tiny, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.to_dict()))
    return str(path)


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_help_is_quick_because_nothing_heavy_is_imported():
    heavy = "bool({'torch', 'numpy', 'yaml', 'jsonargparse'} & set(sys.modules))"
    code = f"import sys; from joem import cli; cli.main(['--help']); sys.exit({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in cli._COMMANDS:
        assert f"\n  {command}" in done.stdout


@pytest.mark.parametrize("command", list(cli._COMMANDS))
def test_every_command_teaches_itself(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert "Example: joem" in " ".join(capsys.readouterr().out.split())


def test_train_evaluate_predict(tiny_file, tmp_path, capsys):
    out = tmp_path / "run"
    code, printed, _ = run(capsys, "train", tiny_file, "--out", out, "--train.epochs", 1)
    assert code == 0
    assert "Model:" in printed
    again = run(capsys, "train", tiny_file, "--out", out, "--train.epochs", 1, "--resume", "--json")[1]
    assert json.loads(again) == {"model": str(out / "model"), "metrics": [str(out / "metrics.csv")]}
    half = tmp_path / "half"
    code, printed, _ = run(capsys, "export", out, "--format", "half", "--out", half, "--json")
    assert json.loads(printed) == {"file": str(half), "labels_that_differ": None}
    code, printed, _ = run(capsys, "evaluate", out, "--json")
    assert code == 0
    results = json.loads(printed)
    assert [row["rule"] for row in results] == ["nn", "cs", "ac"]
    assert set(results[0]["per_class"]) == set(recipe_names())
    code, _, told = run(capsys, "evaluate", out, "--device", "nonsense")
    assert (code, "The device 'nonsense' cannot be used" in told) == (2, True)
    code, _, told = run(capsys, "evaluate", out, "--rule", "nn", "--gamma", 0.3)
    assert (code, "--gamma is for the rule cs, but the rule is nn" in told) == (2, True)
    code, printed, _ = run(capsys, "evaluate", out, "--rule", "ac", "--sigma", 0.9)
    assert code == 0
    assert "hIoU" in printed
    assert "per second" in printed
    picture = tmp_path / "photo.png"
    Image.fromarray(Scenes(1, 64)[0].image.permute(1, 2, 0).numpy()).save(picture)
    words = ("predict", picture, "--model", out, "--classes", "background, red circle", "--add", "purple cow")
    code, printed, _ = run(capsys, *words, "--out", tmp_path / "seen", "--json")
    assert code == 0
    (found,) = json.loads(printed)
    assert found["names"] == ["background", "red circle", "purple cow"]
    assert (tmp_path / "seen" / "photo" / "overlay.png").is_file()


def recipe_names():
    return engine.open_problem(recipe.load("scenes").data).vocabulary.names


def test_a_bad_picture_does_not_stop_the_others(tiny, tmp_path, capsys):
    engine.Model.create(tiny, engine.open_problem(tiny.data).vocabulary).save(tmp_path / "m")
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.fromarray(Scenes(1, 64)[0].image.permute(1, 2, 0).numpy()).save(good)
    bad.write_bytes(b"this is no picture")
    code, printed, errors = run(capsys, "predict", bad, good, "--model", tmp_path / "m", "--out", tmp_path / "o")
    assert code == 1
    assert "good.png" in printed
    assert "1 of 2 pictures failed" in errors
    assert "bad.png" in errors


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["trian"], 2, "Did you mean 'train'?"),
        (["train"], 2, "Give the recipe first"),
        (["train", "nothing"], 2, "Unknown recipe 'nothing'"),
        (["train", "scenes", "--train.epochss", "3"], 2, "--train.epochss"),
        (["train", "scenes", "--train.epochs", "many"], 2, "train.epochs"),
        (["train", "scenes", "--model.backbone", "nonsense", "--train.accelerator", "cpu"], 2, "Unknown backbone"),
        (["train", "scenes", "--semantics.vectors", "word2vec:gone.vec"], None, "gone.vec"),
        (["train", "scenes", "--data.unseen", "[purple cow]"], 2, "purple cow"),
        (["train", "scenes", "--method.name", "magic"], 2, "Unknown method 'magic'"),
        (["evaluate", "nowhere"], 1, "no model in nowhere"),
        (["predict", "a.png", "--model", "nowhere"], 1, "no model in nowhere"),
        (["export", "nowhere"], 2, "required: out"),
        (["export", "nowhere", "--out", "x.onnx"], 1, "no model in nowhere"),
        (["data"], 2, "Say which dataset"),
        (["data", "coco"], 2, "Available options are: scenes, voc, context"),
        (["data", "folder", "--root", "nowhere"], None, "nowhere"),
        (["data", "voc"], 2, "root"),
    ],
)
def test_bad_usage_says_what_to_do(words, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, printed, errors = run(capsys, *words)
    assert found in ((1, 2) if code is None else (code,))
    assert message in errors
    assert printed == ""


def test_an_unknown_key_in_a_recipe_is_named(tmp_path, capsys):
    (tmp_path / "r.yaml").write_text("model: {backbon: resnet18}\n")
    code, _, errors = run(capsys, "train", tmp_path / "r.yaml")
    assert code == 2
    assert "backbon" in errors


def test_bad_data_in_a_users_folder_end_a_training_with_a_clear_error(tiny, tmp_path, capsys):
    tiny.data.kind, tiny.data.root, tiny.data.train_split, tiny.data.val_split = (
        "folder",
        str(tmp_path / "d"),
        None,
        None,
    )
    tiny.data.unseen = ["red cross"]
    names = ["red circle", "red cross"]

    def train():
        path = tmp_path / "r.yaml"
        path.write_text(yaml.safe_dump(tiny.to_dict()))
        return run(capsys, "train", path, "--out", tmp_path / "run")

    code, _, errors = train()
    assert (code, "d" in errors) == (1, True) or code == 2
    write_folder(Scenes(4, 64, classes=names), tmp_path / "d")
    tiny.data.unseen = names
    code, _, errors = train()
    assert code == 1
    assert "No seen class left" in errors
    tiny.data.unseen = ["red cross"]
    next((tmp_path / "d" / "masks").iterdir()).unlink()
    code, _, errors = train()
    assert code == 1
    assert "mask" in errors


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
    assert f"Cannot read {first}" in errors


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
    assert run(capsys, "data", "--protocols")[1].split()[0] in ("voc-zs3-2", "cocostuff-spnet", "context-zs3-2")
    assert "scenes" in run(capsys, "data", "--recipes")[1]
    assert "scenes" in json.loads(run(capsys, "data", "--recipes", "--json")[1])
    assert "voc-spnet" in json.loads(run(capsys, "data", "--protocols", "--json")[1])


def test_every_recipe_in_the_box_loads():
    for name in recipe.names():
        loaded = recipe.load(name)
        assert recipe.Recipe.from_dict(loaded.to_dict()) == loaded


def test_pictures_that_moved_have_stored_maps_of_their_own(tiny):
    """Stored maps go by the root of the recipe: those of other pictures of the same names must not be taken."""
    model = engine.Model.create(tiny, engine.open_problem(tiny.data).vocabulary)
    cli.runs._problem_of(model, "elsewhere")
    assert model.recipe.data.root == "elsewhere"
