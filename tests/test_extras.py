"""The light install: every extra is taken away in turn, in a fresh process, and every command says what to install."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from joem import extras
from joem.errors import JoemError
from joem.extras import EXTRAS, MissingExtra

PHOTO = Path(__file__).parents[1] / "src" / "joem" / "web" / "photos" / "cat.jpg"

NEVER = ("huggingface_hub", "pyarrow", "scipy", "sentence_transformers", "sklearn", "tokenizers", "transformers")
"""What a prediction used to load and does not need."""

RUN = """
import json, sys
absent, words = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from joem import cli
sys.exit(cli.main(words))
"""


def run(absent, words, folder):
    given = json.dumps([list(absent), list(map(str, words))])
    return subprocess.run(
        [sys.executable, "-c", RUN, given], capture_output=True, text=True, check=False, cwd=folder, timeout=300
    )


@pytest.mark.slow
def test_a_photo_is_segmented_by_any_words_without_any_extra(tmp_path):
    absent = {*NEVER, *(module for modules in EXTRAS.values() for module in modules)}
    done = run(absent, ["predict", PHOTO, "--classes", "kitten, wooden floor", "--out", "found", "--json"], tmp_path)
    told = [line for line in done.stderr.splitlines() if not line.startswith("segmenting ")]  # a slow machine
    assert (done.returncode, told) == (0, [])
    assert (tmp_path / "found" / "cat" / "mask.png").is_file()
    assert "kitten" in done.stdout


@pytest.fixture
def model(tmp_path):
    """A model with data beside it, for commands that look at both."""
    from joem.model import Model

    loaded = Model.load("voc-names")
    loaded.recipe = loaded.recipe.changed(data={"kind": "scenes", "train_split": "train", "val_count": 2})
    return loaded.save(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("train", ["train", "scenes", "--train.epochs", "1"]),
        ("train", ["tune", "scenes"]),
        ("train", ["quickstart"]),
        ("train", ["compare"]),
        ("train", ["reproduce", "fig5"]),
        ("train", ["report", "model"]),
        ("train", ["sweep", "model"]),
        ("onnx", ["export", "voc-names", "--out", "m.onnx"]),
        ("serve", ["serve", "--port", "0"]),
    ],
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(extra, words, model, tmp_path):
    done = run(EXTRAS[extra], words, tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1
    assert f'not installed: run pip install "joem[{extra}]".' in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"model"}  # nothing was begun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("onnx", ["predict", PHOTO, "--model", "m.onnx"]),
        ("glove", ["train", "scenes", "--train.epochs", "1", "--data.train_count", "4"]),
        ("use", ["train", "scenes", "--semantics.vectors", "use", "--data.train_count", "4"]),
    ],
)
def test_what_is_found_missing_later_is_told_as_well(extra, words, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"")
    code = f"""
import importlib.metadata, sys
def absent(package):
    raise importlib.metadata.PackageNotFoundError(package)
import joem.semantics.interface as interface
interface.version = absent
{RUN}"""
    given = json.dumps([list(EXTRAS[extra]), list(map(str, words))])
    done = subprocess.run(
        [sys.executable, "-c", code, given], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert f'not installed: run pip install "joem[{extra}]".' in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["data", "--recipes"], ["data", "--protocols"], ["--version"], ["completion", "bash"]]
)
def test_what_needs_no_extra_works_without_any(words, tmp_path):
    absent = {*NEVER, *(module for modules in EXTRAS.values() for module in modules), "torch"}
    done = run(absent, words, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    ("extra", "name"), [("train", "resnet18"), ("train", "tu-resnet18"), ("train", "tu-tf_efficientnet_b0")]
)
def test_a_backbone_that_joem_does_not_have_itself_needs_an_extra(extra, name, monkeypatch):
    from joem.models.backbones import build_backbone

    monkeypatch.setattr(extras, "_installed", lambda module: module not in {"segmentation_models_pytorch", "timm"})
    with pytest.raises(MissingExtra, match=rf"The backbone {name} needs .*joem\[{extra}\]") as caught:
        build_backbone(name)
    assert caught.value.extra == extra
    assert build_backbone("tu-tf_efficientnet_lite0").channels[-1] == 320


def test_several_missing_modules_are_all_named():
    with pytest.raises(JoemError, match=r'needs no_a, no_b, which are not installed: run pip install "joem\[onnx\]"'):
        extras.require("onnx", "This", "no_a", "json", "no_b")
    extras.require("onnx", "This", "json")


def test_every_extra_is_one_of_the_project():
    import tomllib

    file = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS) <= set(project["optional-dependencies"])
    everything = project["optional-dependencies"]["all"][0]
    apart = {"glove", "ray"}  # train brings glove; ray brings more packages than all the rest
    assert set(EXTRAS) - apart <= set(everything.partition("[")[2].rstrip("]").split(","))
    light = " ".join(project["dependencies"]).replace("-", "_")
    assert not [module for modules in EXTRAS.values() for module in (*modules, *NEVER) if module in light]
