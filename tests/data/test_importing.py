"""What all importers share: classes, names, lists, links, and a folder that is whole or not there."""

import json
import os

import pytest
from annotated_sources import SQUARE, cvat, cvat_image, cvat_points, expected, found, save_picture
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_data import failure, save_palette, write_pictures

from joem import cli, data
from joem.data.importing import writing
from joem.data.importing.annotated import split_of_folder, without_suffix
from joem.errors import BadUsage, JoemError


def write_source(root, names, labels=("cow", "dog"), shape_label="cow"):
    """A CVAT source with one square in every picture."""
    shape = f'<polygon label="{shape_label}" points="{cvat_points(SQUARE)}"/>'
    for name in names:
        save_picture(root / "images" / name)
    images = "".join(cvat_image(name, shape) for name in names)
    (root / "annotations.xml").write_text(cvat(images, labels))
    return root


def test_a_share_of_the_pictures_is_held_out_always_the_same(tmp_path):
    names = [f"{number}.png" for number in range(10)]
    source = write_source(tmp_path / "in", names)
    told = data.import_masks("cvat", source, tmp_path / "1", val=0.3)
    assert told.splits == {"train": 7, "val": 3}
    lists = {split: (tmp_path / "1" / "splits" / f"{split}.txt").read_text().split() for split in told.splits}
    assert sorted(lists["train"] + lists["val"]) == names
    assert set(found(tmp_path / "1", "train")) == {name.removesuffix(".png") for name in lists["train"]}
    data.import_masks("cvat", source, tmp_path / "2", val=0.3)
    assert (tmp_path / "2" / "splits" / "val.txt").read_text().split() == lists["val"]
    more = write_source(tmp_path / "more", [*names, "10.png", "11.png"])
    data.import_masks("cvat", more, tmp_path / "3", val=0.3)
    held = (tmp_path / "3" / "splits" / "val.txt").read_text().split()
    assert len(set(held) - {"10.png", "11.png"} - set(lists["val"])) <= 1  # few move when pictures are added


@pytest.mark.parametrize("val", [0, 1, -0.5, 20])
def test_a_share_is_between_none_and_all(tmp_path, val):
    message = failure(data.import_masks, "cvat", tmp_path, tmp_path / "out", val=val, kind=BadUsage)
    assert "--val is the share of pictures to validate on, above 0 and below 1" in message


def test_one_picture_cannot_be_divided(tmp_path):
    source = write_source(tmp_path / "in", ["a.png"])
    assert "takes two pictures or more" in failure(data.import_masks, "cvat", source, tmp_path / "out", val=0.5)
    assert not (tmp_path / "out").exists()


def test_pictures_can_be_linked(tmp_path, monkeypatch):
    write_source(tmp_path / "in", ["a.png"])
    monkeypatch.chdir(tmp_path)
    data.import_masks("cvat", "in", "out", link=True)
    link = tmp_path / "out" / "images" / "a.png"
    assert link.is_symlink()
    assert os.path.samefile(link, tmp_path / "in" / "images" / "a.png")
    assert found(tmp_path / "out") == {"a": expected((1, (1, 5), (1, 5)))}


def test_pictures_of_one_name_get_that_of_their_folder_and_a_number(tmp_path):
    names = ["x/a.png", "y/a.png", "y/A.png", "a.jpg", "z/b.png", "c?.png"]
    told = data.import_masks("cvat", write_source(tmp_path / "in", names), tmp_path / "out")
    assert list(found(tmp_path / "out")) == ["a", "b", "c-", "x-a", "y-A-2", "y-a"]
    assert told.notes.to_dict()["pictures got other names"] == [
        "x/a is x-a",
        "y/a is y-a",
        "y/A is y-A-2",
        "c? is c-",
    ]


@given(st.lists(st.text(min_size=1), max_size=6))
@settings(deadline=None)
def test_every_picture_gets_a_name_of_its_own_that_any_system_takes(names):
    given_names = writing._file_names(names, writing.Faults())
    assert len({name.lower() for name in given_names}) == len(names)
    for name in given_names:
        assert name == name.strip(" .")
        assert name
        assert not set(name) & set('<>:"|?*\\/\0\n')


def test_only_some_classes_in_their_order_and_void_ones(tmp_path):
    source = write_source(tmp_path / "in", ["a.png"], labels=("cow", "dog", "hen", "cloud"))
    told = data.import_masks("cvat", source, tmp_path / "1", classes=["hen", "cow"])
    assert told.names == ("background", "hen", "cow")
    assert found(tmp_path / "1") == {"a": expected((2, (1, 5), (1, 5)))}
    told = data.import_masks("cvat", source, tmp_path / "2", void=["cow"], rest="background")
    assert told.names == ("background", "dog", "hen", "cloud")
    assert found(tmp_path / "2") == {"a": expected((255, (1, 5), (1, 5)))}
    told = data.import_masks("cvat", source, tmp_path / "3", classes=["dog"], rest="void")
    assert told.names == ("dog",)
    assert found(tmp_path / "3") == {"a": expected(rest=255)}
    message = failure(data.import_masks, "cvat", source, tmp_path / "x", void=["sky"], kind=BadUsage)
    assert "Unknown class 'sky'. Available options are: cow, dog, hen, cloud." in message.replace("Did you mean", "")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [f"class {number}" for number in range(255)],
            "at most 255 classes, the source has 256: choose",
        ),
        (["route 6 6 6"], "classes.txt would read a colour in the class name 'route 6 6 6'"),
    ],
)
def test_classes_that_a_folder_cannot_hold(tmp_path, labels, message):
    source = write_source(tmp_path / "in", ["a.png"], labels=labels, shape_label=labels[0])
    assert message in failure(data.import_masks, "cvat", source, tmp_path / "out")


def test_nothing_is_overwritten_and_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    source = write_source(tmp_path / "in", ["a.png"])
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "x").write_text("")
    assert "is not empty" in failure(data.import_masks, "cvat", source, tmp_path / "precious", kind=BadUsage)
    (tmp_path / "empty").mkdir()
    data.import_masks("cvat", source, tmp_path / "empty")
    assert found(tmp_path / "empty")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        data.import_masks("cvat", source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "in", "precious"]


def test_names_and_splits_of_paths():
    assert without_suffix("/abs/a.jpg") == "abs/a"
    assert [split_of_folder(name) for name in ("a/Train/b", "testing", "test2017", ".")] == [
        "train",
        None,
        "test",
        None,
    ]


def run(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_the_command_tells_what_it_did(tmp_path, capsys):
    source = write_source(tmp_path / "in", ["a.png", "b.png"])
    words = ("data", "import", "cvat", source, "--val", "0.5")
    code, printed, _ = run(capsys, *words, "--out", tmp_path / "out")
    assert code == 0
    assert f"Wrote 2 pictures with masks of 3 classes to {tmp_path / 'out'}." in printed
    assert f"Look at it with: joem data folder --root {tmp_path / 'out'}" in printed
    code, printed, _ = run(capsys, *words, "--out", tmp_path / "json", "--json", "--classes", "dog", "--link")
    told = json.loads(printed)
    assert (code, told["images"], told["names"]) == (0, 2, ["background", "dog"])
    assert told["splits"] == {"train": 1, "val": 1}
    assert told["notes"] == {"pictures show no class": ["a", "b"]}


def test_the_command_tells_all_faults_and_machines_every_file(tmp_path, capsys):
    source = write_source(tmp_path / "in", [f"{number}.png" for number in range(7)])
    for number in range(6):
        save_picture(source / "images" / f"{number}.png", size=(3, 3))
    (source / "images" / "6.png").write_bytes(b"")
    code, printed, errors = run(capsys, "data", "import", "cvat", source, "--out", tmp_path / "out", "--json")
    assert code == 1
    assert "6 masks of another size than their pictures" in errors
    assert "Nothing was written; --skip-broken leaves such pictures out." in errors
    faults = json.loads(printed)["faults"]
    assert len(faults["masks of another size than their pictures"]) == 6
    assert len(faults["files that cannot be read"]) == 1
    assert run(capsys, "data", "import", "tiff", source, "--out", tmp_path / "out")[0] == 2


def test_a_folder_tells_everything_that_is_wrong_with_it(tmp_path, capsys):
    root = write_pictures(tmp_path)
    mask = data.Folder(root).labels(0).numpy().astype("uint8")
    for number in range(8):
        Image.new("RGB", (5, 5 if number < 3 else 4)).save(root / "images" / f"{number}.png")
        if number < 7:
            save_palette(mask if number < 5 else mask + 9, root / "masks" / f"{number}.png")
    (root / "images" / "4.png").write_bytes(b"damaged")
    Image.new("RGB", (5, 4)).save(root / "images" / "a.jpg")
    (root / "splits").mkdir()
    (root / "splits" / "train.txt").write_text("\n".join(["a", "nowhere", *map(str, range(8))]))
    code, _, errors = run(capsys, "data", "folder", "--root", root, "--split", "train")
    assert code == 1
    for line in (
        f"{root} has 9 faults:",
        "have the same name: a.jpg and a.png. Rename or delete one of each.",
        "1 of 10 names in",
        "1 of 9 pictures have no mask of the same name",
        "3 masks of another size than their pictures: 0.png (5x4, picture 5x5), 1.png",
        "2 masks with labels that are no classes: 5.png (the value 9 at",
        "4.png",
    ):
        assert line in errors
    code, printed, _ = run(capsys, "data", "folder", "--root", root, "--split", "train", "--json")
    assert len(json.loads(printed)["faults"]["masks of another size than their pictures"]) == 3


def test_a_broken_class_list_is_told_with_the_other_faults(tmp_path):
    root = write_pictures(tmp_path)
    (root / "classes.txt").write_text("dog\n\ncow\n")
    (root / "masks" / "a.png").unlink()
    message = failure(data.check_folder, root)
    assert "has 2 faults" in message
    assert "Expected a class name in line 2" in message
    assert "1 of 2 pictures have no mask" in message


def test_all_missing_parts_of_a_folder_are_named(tmp_path):
    (tmp_path / "images").mkdir()
    message = failure(data.check_folder, tmp_path)
    assert f"There is no {tmp_path / 'masks'} and no {tmp_path / 'classes.txt'}." in message


def test_what_is_counted_is_what_was_checked(tmp_path):
    pictures = data.check_folder(write_pictures(tmp_path))
    assert [row.pixels for row in data.describe(pictures)] == [34, 2, 2]
    with pytest.raises(JoemError, match="There is no"):
        data.check_folder(tmp_path / "nowhere")
