"""Downloads made in their true formats, only small: what is found, built, resumed and refused."""

import json
import sys

import numpy as np
import pytest
from downloads import labels, listing, mask, picture, run, sbd, states
from PIL import Image
from scipy.io import savemat

from joem import data
from joem.data.preparation import conversion
from joem.errors import BadUsage, JoemError


@pytest.fixture
def root(tmp_path, monkeypatch):
    """VOC 2012 with a in train and b in val, SBD with masks of a, b, c and d."""
    monkeypatch.setattr("joem.data.preparation.prepare_voc.LISTED", 2)
    monkeypatch.setattr("joem.data.preparation.prepare_voc.EXTRA", 2)
    folder = tmp_path / "VOCdevkit/VOC2012"
    for stem in "abcd":
        picture(folder / "JPEGImages" / f"{stem}.jpg")
        sbd(tmp_path / f"benchmark_RELEASE/dataset/cls/{stem}.mat", {"a": 1, "b": 2, "c": 3, "d": 10}[stem])
    mask(folder / "SegmentationClass/a.png", 4)
    mask(folder / "SegmentationClass/b.png", 5)
    listing(folder / "ImageSets/Segmentation/train.txt", "a")
    listing(folder / "ImageSets/Segmentation/val.txt", "b")
    return tmp_path


@pytest.fixture
def folder(root):
    return root / "VOCdevkit/VOC2012"


@pytest.mark.parametrize("given", [".", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_train_aug_is_vocs_train_and_sbd_without_val(root, folder, given):
    found = data.prepare("voc", root / given)
    assert found.ready
    assert found.folder.resolve() == folder
    assert (found.conversion.written, found.conversion.kept, found.conversion.broken) == (2, 0, {})
    pictures = data.open("voc", root, "train_aug")
    assert [sample.name for sample in pictures] == ["a", "c", "d"]
    assert [pictures.labels(index).unique().tolist() for index in range(3)] == [[0, 4], [0, 3], [0, 10]]
    assert sorted(path.name for path in (folder / "SegmentationClassAug").iterdir()) == ["c.png", "d.png"]
    with Image.open(folder / "SegmentationClassAug/d.png") as written:
        assert written.mode == "P"
        np.testing.assert_array_equal(np.asarray(written), labels(10))


def test_a_second_run_changes_nothing(root, folder):
    data.prepare("voc", root)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    again = data.prepare("voc", root)
    assert again.ready
    assert (again.conversion.written, again.conversion.kept) == (0, 2)
    assert states(again)["train_aug list"] == "found"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")} == before


def test_an_interrupted_conversion_goes_on(root, folder, monkeypatch):
    write = conversion.write_mask

    def interrupted(path, *rest):
        if path.stem == "d":
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(conversion, "write_mask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.prepare("voc", root)
    assert [path.name for path in (folder / "SegmentationClassAug").iterdir()] == ["c.png"]
    assert not (folder / "ImageSets/Segmentation/train_aug.txt").exists()
    monkeypatch.undo()
    monkeypatch.setattr("joem.data.preparation.prepare_voc.LISTED", 2)
    monkeypatch.setattr("joem.data.preparation.prepare_voc.EXTRA", 2)
    found = data.prepare("voc", root)
    assert (found.conversion.written, found.conversion.kept, found.ready) == (1, 1, True)
    assert len(data.open("voc", root, "train_aug")) == 3


@pytest.mark.parametrize("stems", ["cd", "abcd"])
def test_a_ready_folder_of_extra_masks_needs_no_sbd(root, folder, stems):
    for path in (root / "benchmark_RELEASE/dataset/cls").iterdir():
        path.unlink()
    for stem in stems:
        mask(folder / "SegmentationClassAug" / f"{stem}.png", 7)
    found = data.prepare("voc", root)
    assert found.ready
    pictures = data.open("voc", root, "train_aug")
    assert [sample.name for sample in pictures] == ["a", "c", "d"]
    assert [pictures.labels(index).max().item() for index in range(3)] == [4, 7, 7]


def damage_empty(path):
    path.write_bytes(b"")


def damage_text(path):
    path.write_text("this is no MATLAB file, but it is long enough to hold a header of one" * 10)


def damage_half(path):
    path.write_bytes(path.read_bytes()[:300])


def damage_key(path):
    savemat(path, {"Other": labels(3)})


def damage_size(path):
    savemat(path, {"GTcls": {"Segmentation": labels(3).T}})


def damage_label(path):
    savemat(path, {"GTcls": {"Segmentation": labels(21)}})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_empty, ""),
        (damage_text, ""),
        (damage_half, ""),
        (damage_key, "KeyError: 'GTcls'"),
        (damage_size, "is 5x6 (width x height), but"),
        (damage_label, "holds the label 21, but the classes are 0 to 20"),
    ],
)
def test_a_broken_mask_is_listed_and_the_rest_goes_on(root, folder, capsys, damage, reason):
    path = root / "benchmark_RELEASE/dataset/cls/c.mat"
    damage(path)
    code, printed, errors = run(capsys, "voc", "--root", root)
    assert code == 1
    assert "Converted 1 masks; 0 were there already." in printed
    assert f"broken      {path}: " in printed
    assert reason in printed
    assert "Not ready yet" in errors
    assert [each.name for each in (folder / "SegmentationClassAug").iterdir()] == ["d.png"]
    assert not (folder / "ImageSets/Segmentation/train_aug.txt").exists()
    sbd(path, 3)
    code, printed, _ = run(capsys, "voc", "--root", root)
    assert code == 0
    assert "Converted 1 masks; 1 were there already." in printed


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("VOCdevkit", {"lists": "missing", "pictures": "missing", "masks": "missing", "extra masks": "found"}),
        ("VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt", {"lists": "incomplete"}),
        ("VOCdevkit/VOC2012/JPEGImages/d.jpg", {"pictures": "incomplete"}),
        ("VOCdevkit/VOC2012/SegmentationClass/b.png", {"masks": "incomplete"}),
        ("benchmark_RELEASE/dataset/cls/c.mat", {"extra masks": "incomplete"}),
        ("benchmark_RELEASE", {"lists": "found", "pictures": "found", "masks": "found", "extra masks": "missing"}),
    ],
)
def test_what_is_missing_is_said(root, capsys, gone, expected):
    (root / gone).rename(root / "elsewhere")
    found = data.prepare("voc", root)
    assert not found.ready
    assert expected.items() <= states(found).items()
    code, printed, _ = run(capsys, "voc", "--root", root)
    assert code == 1
    archive = "benchmark.tgz" if "benchmark" in gone else "VOCtrainval_11-May-2012.tar"
    assert f"To do: Fetch {archive}" in printed
    assert printed.count(archive) == 1
    assert not (root / "VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt").exists()


@pytest.mark.parametrize("stems", ["ac", "abcd"])
def test_a_train_aug_list_that_is_short_or_holds_val_is_not_trusted(root, folder, stems):
    path = folder / "ImageSets/Segmentation/train_aug.txt"
    listing(path, *stems)
    found = data.prepare("voc", root)
    assert states(found)["train_aug list"] == "incomplete"
    assert found.pieces[-1].advice == f"Delete {path}: it is built again from the masks."
    path.unlink()
    assert data.prepare("voc", root).ready
    assert path.read_text() == "a\nc\nd\n"


def test_without_scipy_it_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(JoemError, match=r'pip install "joem\[prepare\]"'):
        data.prepare("voc", root)


def test_a_folder_that_cannot_be_written_is_no_traceback(root, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(conversion, "write_mask", refuse)
    with pytest.raises(JoemError, match="Preparing stopped: read-only"):
        data.prepare("voc", root)


def test_opening_what_is_not_prepared_says_how_to_prepare_it(root, tmp_path):
    with pytest.raises(JoemError, match="joem data prepare voc --root"):
        data.open("voc", root, "train_aug")
    for kind in ("voc", "context", "coco-stuff"):
        with pytest.raises(JoemError, match=f"joem data prepare {kind} --root"):
            data.open(kind, tmp_path / "nowhere", "val")
        with pytest.raises(BadUsage, match=r"--data\.root DIR"):
            data.open(kind, None, "val")


def test_counts_and_unseen_classes_are_printed(root, capsys):
    code, printed, _ = run(capsys, "voc", "--root", root, "--protocol", "voc-zs3-2")
    assert code == 0
    rows = {line.rsplit(None, 2)[0]: line.split()[-2:] for line in printed.splitlines() if line.count(" ") > 2}
    assert rows["(any class)"] == ["3", "1"]
    assert (rows["bird"], rows["boat"], rows["bottle"], rows["cow *"]) == (
        ["1", "0"],
        ["1", "0"],
        ["0", "1"],
        ["1", "0"],
    )
    assert "unseen in voc-zs3-2, which leaves 2 training pictures (rule: exclude)" in printed
    assert f"--data.root {root}" in printed


def test_json_holds_everything(root, capsys):
    code, printed, _ = run(capsys, "voc", "--root", root, "--json", "--protocol", "voc-zs3-2")
    assert code == 0
    found = json.loads(printed)
    assert found["ready"]
    assert [piece["state"] for piece in found["pieces"]] == ["found"] * 4
    assert found["masks"] == {"written": 2, "kept": 0, "broken": {}}
    assert found["training_images"] == 2
    assert found["splits"]["train_aug"]["images"] == 3
    cow = found["splits"]["train_aug"]["classes"][10]
    assert cow == {"name": "cow", "unseen": True, "images": 1, "pixels": 15}
    code, printed, _ = run(capsys, "voc", "--root", root, "--json", "--protocol", "voc-spnet")
    assert (code, json.loads(printed)["training_images"]) == (0, 3)  # without background, nothing is left out
    (root / "VOCdevkit").rename(root / "elsewhere")
    code, printed, errors = run(capsys, "voc", "--root", root, "--json")
    assert (code, json.loads(printed)["ready"], json.loads(printed)["splits"]) == (1, False, {})
    assert "Not ready" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vox", "--root", "."], "Available options are: voc, context, coco-stuff"),
        (["voc", "--root", "nowhere"], "no folder nowhere"),
        (["voc"], "root"),
        (["voc", "--root", ".", "--protocol", "context-zs3-2"], "'context-zs3-2' is about 'context', not about 'voc'"),
    ],
)
def test_bad_usage_says_what_to_do(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, errors = run(capsys, *words)
    assert (code, printed) == (2, "")
    assert message in errors
