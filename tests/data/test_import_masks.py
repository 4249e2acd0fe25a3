"""Sources that hold masks: Cityscapes, coloured masks, Hugging Face."""

import numpy as np
import pytest
from annotated_sources import HEIGHT, ON_ITS_SIDE, WIDTH, expected, found, png, save_picture, write_json
from PIL import Image
from small_data import failure

from joem import data
from joem.data.importing import from_cityscapes
from joem.data.importing.class_table import read_table
from joem.errors import BadUsage


def save_mask(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(values, np.uint8)).save(path)


def save_cityscapes(root, split, city, name, ids=None):
    save_picture(root / "leftImg8bit" / split / city / f"{city}_{name}_leftImg8bit.png")
    if ids is not None:
        save_mask(root / "gtFine" / split / city / f"{city}_{name}_gtFine_labelIds.png", ids)


IDS = expected((7, (0, 4), (0, 3)), (26, (4, 8), (0, 3)), (3, (0, 8), (5, 6)), rest=15)
"""Road, car, out of roi and, in the rest, bridge."""


def test_cityscapes_has_the_nineteen_classes_of_the_benchmark(tmp_path):
    save_cityscapes(tmp_path, "train", "aachen", "000000_000019", IDS)
    save_cityscapes(tmp_path, "val", "ulm", "000001_000019", IDS)
    save_cityscapes(tmp_path, "test", "bonn", "000002_000019")
    told = data.import_masks("cityscapes", tmp_path, tmp_path / "out")
    assert (len(told.names), told.names[0], told.names[13], told.splits) == (19, "road", "car", {"train": 1, "val": 1})
    labels = expected((0, (0, 4), (0, 3)), (13, (4, 8), (0, 3)), rest=255)
    assert found(tmp_path / "out") == {"aachen_000000_000019": labels, "ulm_000001_000019": labels}
    assert "1 split has pictures and no masks: test" in told.notes.lines()[0]


def test_cityscapes_by_other_classes(tmp_path):
    save_cityscapes(tmp_path, "train", "ulm", "1", IDS)
    told = data.import_masks("cityscapes", tmp_path, tmp_path / "out", classes=["bridge", "car"], rest="background")
    assert told.names == ("background", "bridge", "car")
    labels = expected((0, (0, 4), (0, 3)), (2, (4, 8), (0, 3)), (0, (0, 8), (5, 6)), rest=1)
    assert found(tmp_path / "out") == {"ulm_1": labels}
    message = failure(data.import_masks, "cityscapes", tmp_path, tmp_path / "x", classes=["lorry"], kind=BadUsage)
    assert "Unknown class 'lorry'." in message


def test_the_table_of_cityscapes():
    """Ids from the official table, a few by hand."""
    ids = {"road": 7, "fence": 13, "pole": 17, "traffic sign": 20, "sky": 23, "bus": 28, "train": 31, "bicycle": 33}
    assert {name: from_cityscapes.NAMES.index(name) for name in ids} == ids
    assert (len(from_cityscapes.NAMES), len(set(from_cityscapes.NAMES))) == (34, 34)
    assert [name for name in from_cityscapes.NAMES if name in from_cityscapes.EVALUATED] == list(
        from_cityscapes.EVALUATED
    )


def test_broken_cityscapes(tmp_path):
    message = failure(data.import_masks, "cityscapes", tmp_path, tmp_path / "out", kind=BadUsage)
    assert "There is no SPLIT/CITY/NAME_leftImg8bit.png" in message
    save_cityscapes(tmp_path, "train", "ulm", "1", IDS)
    save_cityscapes(tmp_path, "train", "ulm", "2")
    save_cityscapes(tmp_path, "train", "ulm", "3", np.full((HEIGHT, WIDTH), 77))
    save_mask(tmp_path / "gtFine/train/ulm/ulm_4_gtFine_labelIds.png", IDS)
    message = failure(data.import_masks, "cityscapes", tmp_path, tmp_path / "out")
    for part in (
        "1 picture without a mask: train/ulm/ulm_2_leftImg8bit.png",
        "1 picture that is not there: train/ulm/ulm_4_leftImg8bit.png",
        "1 mask with a label that is no class: ulm_3_gtFine_labelIds.png (77)",
    ):
        assert part in message


RED, GREEN, BLACK = (255, 0, 0), (0, 128, 0), (0, 0, 0)


def coloured(*shapes, rest=BLACK):
    pixels = np.full((HEIGHT, WIDTH, 3), rest, np.uint8)
    for colour, columns, rows in shapes:
        pixels[rows[0] : rows[1], columns[0] : columns[1]] = colour
    return pixels


MASK = coloured((RED, (1, 5), (1, 5)), (GREEN, (3, 7), (3, 6)))
LABELS = expected((1, (1, 5), (1, 5)), (2, (3, 7), (3, 6)))


@pytest.mark.parametrize(
    "table",
    [
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\nred cow:255,0,0::\ndog:0,128,0:part:act\n",
        "0 0 0 background\n255 0 0 red cow\n0 128 0 dog\n",
        "name,r,g,b\nbackground,0,0,0\nred cow,255,0,0\ndog,0,128,0\n",
        "background #000000\nred cow #FF0000\ndog #008000\n",
        "background 0 0 0\nred cow 255 0 0\ndog 0 128 0\n",
        "0\t0\t0\tbackground\n255\t0\t0\tred cow\n0\t128\t0\tdog\n",
    ],
    ids=["labelmap", "numbers first", "csv", "hex", "classes.txt", "tabs"],
)
def test_coloured_masks_with_tables_of_any_kind(tmp_path, table):
    save_picture(tmp_path / "images" / "a.jpg")
    save_mask(tmp_path / "masks" / "a.png", MASK)
    (tmp_path / "labelmap.txt").write_text(table)
    told = data.import_masks("mask-rgb", tmp_path, tmp_path / "out")
    assert told.names == ("background", "red cow", "dog")
    assert found(tmp_path / "out") == {"a": LABELS}


def test_coloured_masks_in_other_folders_with_other_names(tmp_path):
    save_picture(tmp_path / "photos" / "train" / "a.jpg")
    save_picture(tmp_path / "photos" / "val" / "b.jpg")
    save_mask(tmp_path / "paint" / "train" / "a_L.png", MASK)
    Image.fromarray(MASK).quantize(8).save(tmp_path / "paint" / "b.png")
    (tmp_path / "paint" / "val").mkdir()
    (tmp_path / "paint" / "b.png").rename(tmp_path / "paint" / "val" / "b.png")
    (tmp_path / "table.txt").write_text("0 0 0 Void\n255 0 0 cow\n0 128 0 dog\n")
    where = {name: str(tmp_path / folder) for name, folder in (("images", "photos"), ("masks", "paint"))}
    told = data.import_masks("mask-rgb", tmp_path, tmp_path / "out", names=str(tmp_path / "table.txt"), **where)
    assert (told.names, told.splits) == (("cow", "dog"), {"train": 1, "val": 1})
    labels = expected((0, (1, 5), (1, 5)), (1, (3, 7), (3, 6)), rest=255)
    assert found(tmp_path / "out") == {"a": labels, "b": labels}


def test_masks_of_pictures_on_their_side_are_turned_with_them(tmp_path):
    save_picture(tmp_path / "images" / "a.jpg", orientation=ON_ITS_SIDE)
    save_mask(tmp_path / "masks" / "a.png", MASK)
    (tmp_path / "labelmap.txt").write_text("background:0,0,0::\ncow:255,0,0::\ndog:0,128,0::\n")
    data.import_masks("mask-rgb", tmp_path, tmp_path / "out")
    assert found(tmp_path / "out") == {"a": np.rot90(LABELS, -1).tolist()}


def test_broken_coloured_masks_are_all_told(tmp_path):
    (tmp_path / "images").mkdir()
    assert "say with --masks DIR" in failure(data.import_masks, "mask-rgb", tmp_path, tmp_path / "o", kind=BadUsage)
    (tmp_path / "masks").mkdir()
    message = failure(data.import_masks, "mask-rgb", tmp_path, tmp_path / "o", kind=BadUsage)
    assert "There is no table of colours (labelmap.txt, " in message
    (tmp_path / "labelmap.txt").write_text("cow\ndog\n")
    assert "gives no colours" in failure(data.import_masks, "mask-rgb", tmp_path, tmp_path / "o")
    (tmp_path / "labelmap.txt").write_text("cow:0,0,0::\ndog:255,0,0::\n")
    for number in range(8):
        save_picture(tmp_path / "images" / f"{number}.png")
        save_mask(tmp_path / "masks" / f"{number}.png", MASK[: 5 if number < 6 else 6])
    save_picture(tmp_path / "images" / "alone.png")
    (tmp_path / "masks" / "7.png").write_bytes(b"damaged")
    message = failure(data.import_masks, "mask-rgb", tmp_path, tmp_path / "o")
    assert "1 picture without a mask: alone.png" in message
    assert "7 masks with colours that are not listed: 0.png (#008000), 1.png" in message
    assert "7.png" in message.splitlines()[-1]
    (tmp_path / "labelmap.txt").write_text("cow:0,0,0::\ndog:255,0,0::\nhen:0,128,0::\n")
    message = failure(data.import_masks, "mask-rgb", tmp_path, tmp_path / "o")
    assert "6 masks of another size than their pictures: 0 (8x5, picture 8x6), " in message
    assert " and 1 more." in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no classes"),
        ("1 2 300 cow\n", "three numbers from 0 to 255, got '1 2 300 cow'"),
        ("1 2 3 cow\n1 2 3 dog\n", "gives the colour of 'cow' again"),
    ],
)
def test_broken_tables(tmp_path, text, message):
    (tmp_path / "table.txt").write_text(text)
    assert message in failure(read_table, str(tmp_path / "table.txt"))


def test_several_colours_may_mean_one_class(tmp_path):
    (tmp_path / "table.txt").write_text("1 2 3 cow\n4 5 6 dog\n7 8 9 cow\n")
    table = read_table(str(tmp_path / "table.txt"))
    assert (table.names, table.colours) == (("cow", "dog"), {(1, 2, 3): 0, (4, 5, 6): 1, (7, 8, 9): 0})
    message = failure(read_table, "nowhere.txt")
    assert "There is no file nowhere.txt" in message


@pytest.fixture
def hugging(tmp_path, monkeypatch):
    """The package datasets, and a dataset of three pictures in two splits."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    datasets.disable_progress_bars()
    masks = [np.full((HEIGHT, WIDTH), value, np.uint8) for value in (0, 1, 2)]
    masks[0][0, 0] = 255
    pictures = [png(np.full((HEIGHT, WIDTH, 3), value, np.uint8)) for value in (10, 20, 30)]
    columns = {"image": datasets.Image(), "label": datasets.Image(), "scene": datasets.ClassLabel(names=["street"])}

    def make(first, last, **more):
        rows = {
            "image": [{"bytes": picture, "path": None} for picture in pictures[first:last]],
            "label": [{"bytes": png(mask), "path": f"m{index}.png"} for index, mask in enumerate(masks[first:last])],
            "scene": [0] * (last - first),
        }
        kinds = datasets.Features({**columns, **{name: feature for name, (feature, _) in more.items()}})
        values = {name: [value] * (last - first) for name, (_, value) in more.items()}
        return datasets.Dataset.from_dict({**rows, **values}, features=kinds)

    return datasets, make


def test_a_parquet_file_with_names_by_number(tmp_path, hugging):
    _, make = hugging
    path = tmp_path / "rows.parquet"
    make(0, 3).to_parquet(path)
    message = failure(data.import_masks, "huggingface", path, tmp_path / "x", kind=BadUsage)
    assert "does not say what its labels mean: give --names a file, such as the id2label.json" in message
    names = write_json(tmp_path / "id2label.json", {"0": "background", "1": "cow", "2": "dog"})
    told = data.import_masks("huggingface", path, tmp_path / "out", names=str(names))
    assert (told.names, told.splits) == (("background", "cow", "dog"), {})
    every = list(found(tmp_path / "out").values())
    assert [labels[0][:2] for labels in every] == [[255, 0], [1, 1], [2, 2]]
    told = data.import_masks("huggingface", path, tmp_path / "void", names="other,cow,dog", void=["other"])
    assert told.names == ("cow", "dog")
    assert [labels[0][:2] for labels in found(tmp_path / "void").values()] == [[255, 255], [0, 0], [1, 1]]
    message = failure(data.import_masks, "huggingface", path, tmp_path / "x", names="background,cow")
    assert "1 mask with a label that is no class: mask of train-000002 (2)" in message


def test_a_saved_dataset_with_splits_and_class_labels(tmp_path, hugging):
    datasets, make = hugging
    inside = datasets.Sequence({"category": datasets.ClassLabel(names=["sky", "cow", "dog"])})
    objects = {"objects": (inside, {"category": [0, 1]})}
    whole = datasets.DatasetDict({"train": make(0, 2, **objects), "validation": make(2, 3, **objects)})
    whole.save_to_disk(tmp_path / "saved")
    told = data.import_masks("huggingface", tmp_path / "saved", tmp_path / "out")
    assert (told.names, told.splits) == (("sky", "cow", "dog"), {"train": 2, "val": 1})
    assert found(tmp_path / "out", "val") == {"validation-000000": expected(rest=2)}
    message = failure(
        data.import_masks, "huggingface", tmp_path / "saved", tmp_path / "x", masks="scene", kind=BadUsage
    )
    assert "no column 'scene' for the masks; its columns of pictures are: image, label" in message


def test_a_folder_of_pictures_and_coloured_masks(tmp_path, hugging):
    datasets, _ = hugging
    save_picture(tmp_path / "in" / "photo.png")
    rows = {"image": [str(tmp_path / "in" / "photo.png")], "mask": [{"bytes": png(MASK), "path": None}]}
    kinds = datasets.Features({"image": datasets.Image(), "mask": datasets.Image()})
    datasets.Dataset.from_dict(rows, features=kinds).save_to_disk(tmp_path / "saved")
    (tmp_path / "table.txt").write_text("background #000000\ncow #FF0000\ndog #008000\n")
    data.import_masks("huggingface", tmp_path / "saved", tmp_path / "out", names=str(tmp_path / "table.txt"))
    assert found(tmp_path / "out") == {"photo": LABELS}


def test_rows_without_a_mask_or_with_a_damaged_one_are_counted(tmp_path, hugging):
    datasets, _ = hugging
    picture = {"bytes": png(MASK), "path": None}
    rows = {"image": [picture] * 4, "mask": [None, None, {"bytes": b"damaged", "path": None}, picture]}
    kinds = datasets.Features({"image": datasets.Image(), "mask": datasets.Image()})
    datasets.Dataset.from_dict(rows, features=kinds).save_to_disk(tmp_path / "saved")
    message = failure(data.import_masks, "huggingface", tmp_path / "saved", tmp_path / "out", names="cow,dog")
    assert "3 files that cannot be read: row 0 (it has nothing in the column 'mask'), row 1 (" in message
    assert "mask of train-000002 is no picture of a known format" in message
    assert "1 RGB mask, and no colours are given: mask of train-000003" in message


def test_a_dataset_that_cannot_be_had(tmp_path, hugging):
    message = failure(data.import_masks, "huggingface", str(tmp_path / "nothing"), tmp_path / "out")
    assert "cannot be loaded" in message


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    assert 'pip install "joem[huggingface]"' in failure(data.import_masks, "huggingface", "a/b", tmp_path / "out")
