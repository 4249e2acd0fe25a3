"""PASCAL Context and COCO-Stuff, from small downloads in their true formats."""

import numpy as np
import pytest
from downloads import labels, listing, mask, picture, run, states
from scipy.io import savemat

from joem import data
from joem.data.preparation import prepare_context
from joem.errors import JoemError
from joem.vocabulary import VOID

NAMES_59 = prepare_context.VOCABULARY.names[1:]
NAMES_459 = sorted(
    [*(prepare_context.OTHER_NAMES.get(name, name) for name in NAMES_59), *(f"other thing {n:03}" for n in range(400))]
)


@pytest.fixture
def context_root(tmp_path, monkeypatch):
    """VOC 2010 with x and y in train and z in val, and Context's 459 labels."""
    monkeypatch.setattr(prepare_context, "LISTED", 3)
    folder = tmp_path / "VOCdevkit/VOC2010"
    (tmp_path / "trainval").mkdir()
    for stem, name in (("x", "cow"), ("y", "bedclothes"), ("z", "other thing 123")):
        picture(folder / "JPEGImages" / f"{stem}.jpg")
        label_map = labels(NAMES_459.index(name) + 1, np.uint16)
        label_map[:, 3:] = NAMES_459.index("sky") + 1
        savemat(tmp_path / f"trainval/{stem}.mat", {"LabelMap": label_map})
    listing(folder / "ImageSets/Main/train.txt", "x", "y")
    listing(folder / "ImageSets/Main/val.txt", "z")
    listing(tmp_path / "labels.txt", *(f"{number}: {name}" for number, name in enumerate(NAMES_459, start=1)))
    return tmp_path


def test_context_labels_become_classes_by_name(context_root):
    found = data.prepare("context", context_root)
    assert found.ready
    assert found.conversion.written == 3
    train, val = (data.open("context", context_root, split) for split in ("train", "val"))
    assert [sample.name for sample in (*train, *val)] == ["x", "y", "z"]
    seen = [[train.names[label] for label in pictures.labels(i).unique()] for pictures, i in ((train, 0), (train, 1))]
    assert seen == [["cow", "sky"], ["sky", "bedcloth"]]
    assert [val.names[label] for label in val.labels(0).unique()] == ["background", "sky"]
    assert (len(train.names), train.background) == (60, "background")


def test_every_label_goes_where_its_name_says():
    table = prepare_context.translation(
        {name.replace(" ", ""): number for number, name in enumerate(NAMES_459, start=1)}
    )
    spelling = {"table": "diningtable", "cloth": "clothes", "bedclothes": "bedcloth"}
    for number, name in enumerate(NAMES_459, start=1):
        wanted = spelling.get(name, name)
        expected = NAMES_59.index(wanted) + 1 if wanted in NAMES_59 else 0
        assert table[number] == expected
    assert table[0] == 0
    assert sorted(set(table)) == list(range(60))


def test_the_list_of_59_names_is_understood_too():
    table = prepare_context.translation({name: number for number, name in enumerate(NAMES_59, start=1)})
    assert table.tolist() == list(range(60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: aeroplane\nbicycle\n", "got 'bicycle'"),
        ("1: aeroplane\n", "labels.txt does not name 'bicycle'"),
    ],
)
def test_a_wrong_list_of_labels_is_an_error(context_root, text, message):
    (context_root / "labels.txt").write_text(text)
    with pytest.raises(JoemError, match=message):
        data.prepare("context", context_root)


def test_context_says_what_is_missing_and_resumes(context_root, capsys):
    (context_root / "trainval/x.mat").write_bytes(b"")
    (context_root / "trainval/y.mat").rename(context_root / "y.mat")
    code, printed, _ = run(capsys, "context", "--root", context_root)
    assert code == 1
    assert "incomplete  masks                 2 of       3" in printed
    assert "To do: Fetch trainval.tar.gz of PASCAL Context" in printed
    assert "x.mat: " in printed
    with pytest.raises(
        JoemError, match=r"2 of the 2 pictures of split 'train' have no mask: x, y\. See what is missing"
    ):
        data.open("context", context_root, "train")
    savemat(context_root / "trainval/x.mat", {"LabelMap": labels(1, np.float64)})  # MATLAB's own kind of number
    (context_root / "y.mat").rename(context_root / "trainval/y.mat")
    code, printed, _ = run(capsys, "context", "--root", context_root, "--protocol", "context-zs3-2")
    assert code == 0
    assert "Converted 2 masks; 1 were there already." in printed


def test_context_needs_its_archives_no_more_once_converted(context_root):
    data.prepare("context", context_root)
    for path in (context_root / "trainval").iterdir():
        path.unlink()
    (context_root / "labels.txt").unlink()
    found = data.prepare("context", context_root)
    assert found.ready
    assert found.conversion.kept == 3


def test_context_label_beyond_the_list_is_broken(context_root):
    savemat(context_root / "trainval/x.mat", {"LabelMap": labels(460, np.uint16)})
    (reason,) = data.prepare("context", context_root).conversion.broken.values()
    assert "460" in reason


@pytest.mark.parametrize(("images", "maps"), [("images", "annotations"), (".", "stuffthingmaps")])
def test_coco_stuff_is_checked_and_opened(tmp_path, monkeypatch, capsys, images, maps):
    monkeypatch.setattr("joem.data.preparation.prepare_coco_stuff.PICTURES", {"train": 2, "val": 1})
    for split, stem, label in (("train", "1", 181), ("train", "2", VOID), ("val", "3", 20)):
        picture(tmp_path / images / f"{split}2017" / f"{stem}.jpg")
        mask(tmp_path / maps / f"{split}2017" / f"{stem}.png", label)
    code, printed, _ = run(capsys, "coco-stuff", "--root", tmp_path, "--protocol", "cocostuff-spnet")
    assert code == 0
    assert "which leaves 2 training pictures (rule: ignore)" in printed
    pictures = data.open("coco-stuff", tmp_path, "train")
    assert [pictures.names[label] for label in (0, 20, 181)] == ["person", "cow", "wood"]
    assert pictures.labels(0).unique().tolist() == [0, 181]
    (tmp_path / maps / "train2017/2.png").unlink()
    assert states(data.prepare("coco-stuff", tmp_path))["train maps"] == "incomplete"
    with pytest.raises(JoemError, match="1 of the 2 pictures of split 'train' have no mask: 2"):
        data.open("coco-stuff", tmp_path, "train")


def test_coco_stuff_names_every_archive(tmp_path, capsys):
    code, printed, _ = run(capsys, "coco-stuff", "--root", tmp_path)
    assert code == 1
    for archive in ("train2017.zip", "val2017.zip", "stuffthingmaps_trainval2017.zip"):
        assert printed.count(f"Fetch {archive}") == 1
