"""Downloads made in their true formats, only small: what is found, built, resumed and refused."""

import json
import sys

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from joem import cli, data
from joem.atomic import atomic_file
from joem.data.preparation import context, parts
from joem.errors import BadUsage, JoemError
from joem.vocabulary import VOID

SIZE = (6, 5)  # width, height


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE).save(path)


def mask(path, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(labels(label)).save(path)


def labels(label, dtype=np.uint8):
    """Half background, half one label."""
    pixels = np.zeros(SIZE[::-1], dtype)
    pixels[:, :3] = label
    return pixels


def sbd(path, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    truth = {"Boundaries": np.zeros((20, 1)), "Segmentation": labels(label), "CategoriesPresent": np.array([[label]])}
    savemat(path, {"GTcls": truth})


def listing(path, *stems):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{stem}\n" for stem in stems))


def run(capsys, *words):
    code = cli.main(["data", "prepare", *map(str, words)])
    return code, *capsys.readouterr()


def states(preparation):
    return {piece.name: piece.state for piece in preparation.pieces}


# -------------------------------------------------------------------------------------------------- voc


@pytest.fixture
def root(tmp_path, monkeypatch):
    """VOC 2012 with a in train and b in val, SBD with masks of a, b, c and d."""
    monkeypatch.setattr("joem.data.preparation.voc.LISTED", 2)
    monkeypatch.setattr("joem.data.preparation.voc.EXTRA", 2)
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
    write = parts.write_mask

    def interrupted(path, *rest):
        if path.stem == "d":
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(parts, "write_mask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.prepare("voc", root)
    assert [path.name for path in (folder / "SegmentationClassAug").iterdir()] == ["c.png"]
    assert not (folder / "ImageSets/Segmentation/train_aug.txt").exists()
    monkeypatch.undo()
    monkeypatch.setattr("joem.data.preparation.voc.LISTED", 2)
    monkeypatch.setattr("joem.data.preparation.voc.EXTRA", 2)
    found = data.prepare("voc", root)
    assert (found.conversion.written, found.conversion.kept, found.ready) == (1, 1, True)
    assert len(data.open("voc", root, "train_aug")) == 3


def test_a_file_that_was_not_finished_is_not_there(tmp_path):
    path = tmp_path / "new" / "file"

    def write(text, error=None):
        with atomic_file(path) as draft:
            draft.write_text(text)
            assert not path.exists() or path.read_text() == "whole"
            if error:
                raise error

    with pytest.raises(KeyboardInterrupt):
        write("half", KeyboardInterrupt())
    assert list(path.parent.iterdir()) == []
    write("whole")
    with pytest.raises(OSError, match="full"):
        write("half", OSError("full"))
    assert [each.read_text() for each in path.parent.iterdir()] == ["whole"]


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

    monkeypatch.setattr(parts, "write_mask", refuse)
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


# ---------------------------------------------------------------------------------------------- context

NAMES_59 = context.VOCABULARY.names[1:]
NAMES_459 = sorted(
    [*(context.OTHER_NAMES.get(name, name) for name in NAMES_59), *(f"other thing {n:03}" for n in range(400))]
)


@pytest.fixture
def context_root(tmp_path, monkeypatch):
    """VOC 2010 with x and y in train and z in val, and Context's 459 labels."""
    monkeypatch.setattr(context, "LISTED", 3)
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
    table = context.translation({name.replace(" ", ""): number for number, name in enumerate(NAMES_459, start=1)})
    spelling = {"table": "diningtable", "cloth": "clothes", "bedclothes": "bedcloth"}
    for number, name in enumerate(NAMES_459, start=1):
        wanted = spelling.get(name, name)
        expected = NAMES_59.index(wanted) + 1 if wanted in NAMES_59 else 0
        assert table[number] == expected
    assert table[0] == 0
    assert sorted(set(table)) == list(range(60))


def test_the_list_of_59_names_is_understood_too():
    table = context.translation({name: number for number, name in enumerate(NAMES_59, start=1)})
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


# ------------------------------------------------------------------------------------------- coco-stuff


@pytest.mark.parametrize(("images", "maps"), [("images", "annotations"), (".", "stuffthingmaps")])
def test_coco_stuff_is_checked_and_opened(tmp_path, monkeypatch, capsys, images, maps):
    monkeypatch.setattr("joem.data.preparation.coco_stuff.PICTURES", {"train": 2, "val": 1})
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
