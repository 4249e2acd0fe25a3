"""The commands of docs/few-masks-many-words.md, as they stand there, on a small COCO file and with a small recipe."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from joem import cli
from joem.segmenter import Segmenter
from joem.web import create_app

PAGE = Path(__file__).parent.parent / "docs" / "few-masks-many-words.md"
CLASSES = ("cow", "horse", "sheep", "dog", "tractor")
COLOURS = ((200, 40, 40), (40, 160, 60), (60, 70, 210), (230, 220, 40), (150, 40, 190))
SMALL = """
extends: folder
semantics: {vectors: glove, prompt: "{}", fit: seen}
model: {side: 64}
method:
  names: none
  experts:
    - {kind: cosine, copies: 1, hidden: 16, channels: 8}
    - {kind: mixture, copies: 1, hidden: 16, channels: 8}
train: {cache: cache, steps: 20}
"""


def commands() -> list[str]:
    """What the page tells people to type."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def write_coco(folder: Path, count: int = 40) -> None:
    """Photos with one or two squares each, and the COCO file that draws them."""
    random = np.random.default_rng(0)
    images, annotations = [], []
    (folder / "photos").mkdir()
    for number in range(count):
        picture = random.integers(90, 130, (64, 64, 3)).astype(np.uint8)
        for label in random.choice(len(CLASSES), random.integers(1, 3), replace=False).tolist():
            x, y = (int(each) for each in random.integers(0, 36, 2))
            picture[y : y + 26, x : x + 26] = COLOURS[label]
            corners = [x, y, x + 26, y, x + 26, y + 26, x, y + 26]
            annotations.append(
                {
                    **{"id": len(annotations) + 1, "image_id": number, "category_id": label + 1, "iscrowd": 0},
                    **{"segmentation": [corners], "area": 676, "bbox": [x, y, 26, 26]},
                }
            )
        name = {0: "one", 1: "new"}.get(number, f"photo-{number}")
        Image.fromarray(picture).save(folder / "photos" / f"{name}.jpg", quality=95)
        images.append({"id": number, "file_name": f"{name}.jpg", "width": 64, "height": 64})
    categories = [{"id": label + 1, "name": name} for label, name in enumerate(CLASSES)]
    described = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(described))


def test_the_commands_of_the_page_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_coco(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    said = {}
    for command in commands():
        program, *words = shlex.split(command)
        assert program == "joem"
        if words[0] == "serve":
            served = Segmenter.load(words[words.index("--model") + 1])
            with TestClient(create_app(served), "http://localhost") as client:
                assert client.get("/").status_code == 200
            continue
        assert cli.main(["small.yaml" if word == "folder" and words[0] == "train" else word for word in words]) == 0
        said[command] = capsys.readouterr().out
    trained = next(text for command, text in said.items() if "--out runs/mine" in command)
    assert re.search(r"Rule: .*, of the recipe: 4 seen classes in \d+ pictures are too few", trained)
    assert "pictures kept back" in trained
    assert "What it forgot: asked for the old classes" in next(text for key, text in said.items() if "--from" in key)
    assert "<html" in (tmp_path / "runs/mine/report.html").read_text(encoding="utf-8")
    for folder in ("found", "found-by-example", "found-by-onnx"):
        assert list((tmp_path / folder).rglob("*.png")), folder
    names = {path.name for path in (tmp_path / "my-data").iterdir()}
    assert names == {"images", "masks", "classes.txt"}


def test_every_kind_of_command_is_on_the_page():
    used = {command.split()[1] for command in commands()}
    assert used == {"data", "train", "predict", "report", "export", "serve"}


@pytest.mark.parametrize("option", ["--add", "--example", "--from", "--data.unseen"])
def test_the_page_adds_classes_by_words_and_examples(option):
    assert any(option in command for command in commands())
