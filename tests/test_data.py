import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from joem import data, protocols
from joem.errors import BadUsage, JoemError, LeakageError
from joem.vocabulary import VOID, Vocabulary, colours

REAL = Path(__file__).parents[2] / "shared" / "data"
real = pytest.mark.real
needs_voc = pytest.mark.skipif(not (REAL / "VOCdevkit").exists(), reason="PASCAL VOC is not here")

MEAN, STD = (127.0, 100.0, 90.0), (128.0, 60.0, 50.0)
COW = Vocabulary(("background", "dog", "cow"), unseen=("cow",), background="background")


class Masks:
    """A dataset held in memory; `shown` are the labels that samples really have, if they differ."""

    def __init__(self, masks, names=COW.names, shown=None):
        self.names, self.background = names, "background"
        self.masks, self.shown = masks, shown or masks

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        labels = torch.tensor(self.shown[index])
        image = (labels * 40 % 256).to(torch.uint8).expand(3, -1, -1).contiguous()
        return data.Sample(image, labels, self.name(index))

    def labels(self, index):
        return torch.tensor(self.masks[index])

    def name(self, index):
        return f"picture-{index}"


CLEAN, COWS, EMPTY = [[0, 1], [1, 255]], [[0, 2], [1, 2]], [[0, 0], [0, 255]]


@pytest.fixture
def folder(tmp_path):
    """A folder of two pictures, 5 wide and 4 high, with palette masks."""
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "classes.txt").write_text("background\ndog\ncow\n")
    for name in ("a", "b"):
        Image.new("RGB", (5, 4), (10, 20, 30)).save(tmp_path / "images" / f"{name}.png")
        mask = np.zeros((4, 5), np.uint8)
        mask[0, :3] = [1, 2, 255]
        save_palette(mask, tmp_path / "masks" / f"{name}.png")
    return tmp_path


def save_palette(labels, path):
    mask = Image.fromarray(labels)
    mask.putpalette(bytes(range(256)) * 3)
    mask.save(path)


def failure(call, *arguments, kind=JoemError, **options):
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    return str(error.value)


# ------------------------------------------------------------------------------------------------ folder


def test_folder_reads_pictures_and_palette_masks(folder):
    pictures = data.Folder(folder)
    assert len(pictures) == 2
    assert pictures.names == ("background", "dog", "cow")
    assert pictures.background == "background"
    sample = pictures[1]
    assert sample.name == "b"
    assert sample.image.shape == (3, 4, 5)
    assert sample.image.dtype == torch.uint8
    assert sample.image[:, 0, 0].tolist() == [10, 20, 30]
    assert sample.labels.dtype == torch.int64
    assert sample.labels[0].tolist() == [1, 2, VOID, 0, 0]
    assert torch.equal(pictures.labels(1), sample.labels)
    assert torch.equal(pickle.loads(pickle.dumps(pictures))[1].labels, sample.labels)


@pytest.mark.parametrize(
    "save",
    [
        lambda labels, path: Image.fromarray(labels).save(path),
        lambda labels, path: Image.fromarray(labels.astype(np.uint16)).save(path),
        lambda labels, path: Image.merge("LA", [Image.fromarray(labels)] * 2).save(path),
        lambda labels, path: Image.fromarray(labels).save(path.with_suffix(".tif")) or path.unlink(),
        lambda labels, path: Image.fromarray(labels).save(path.with_suffix(".bmp")) or path.unlink(),
    ],
    ids=["grey", "16-bit", "grey with alpha", "tif", "bmp"],
)
def test_folder_reads_other_kinds_of_masks(folder, save):
    expected = data.Folder(folder).labels(0)
    save(expected.numpy().astype(np.uint8), folder / "masks" / "a.png")
    assert torch.equal(data.Folder(folder).labels(0), expected)


def test_folder_reads_one_bit_masks(folder):
    bits = np.zeros((4, 5), bool)
    bits[2:] = True
    Image.fromarray(bits).save(folder / "masks" / "a.png")
    assert Image.open(folder / "masks" / "a.png").mode == "1"
    assert data.Folder(folder).labels(0).tolist() == bits.astype(int).tolist()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_folder_translates_coloured_masks(folder, mode):
    (folder / "classes.txt").write_text("background 0 0 0\ndog #FF8000\ncow 64 128 0\nvoid #E0E0C0\n")
    pixels = np.zeros((4, 5, 3), np.uint8)
    pixels[1], pixels[2], pixels[3, 3:] = (255, 128, 0), (64, 128, 0), (0xE0, 0xE0, 0xC0)
    Image.fromarray(pixels).convert(mode).save(folder / "masks" / "a.png")
    pictures = data.Folder(folder)
    assert pictures.names == ("background", "dog", "cow")
    assert pictures.labels(0).tolist() == [[0] * 5, [1] * 5, [2] * 5, [0, 0, 0, VOID, VOID]]
    assert pictures.labels(1)[0].tolist() == [1, 2, VOID, 0, 0]  # palette masks still hold labels


def test_an_unlisted_colour_is_named_with_its_file_and_pixels(folder):
    (folder / "classes.txt").write_text("background #000000\ndog #FF8000\ncow #408000\n")
    pixels = np.zeros((4, 5, 3), np.uint8)
    pixels[0, :3], pixels[1, 0] = (1, 2, 255), (9, 9, 9)
    Image.fromarray(pixels).save(folder / "masks" / "a.png")
    message = failure(data.Folder(folder).labels, 0)
    assert "a.png holds the value #0102FF at 3 pixels and 1 more such values" in message
    assert "which classes.txt does not list" in message


def test_a_coloured_mask_without_listed_colours_says_how_to_list_them(folder):
    Image.new("RGB", (5, 4)).save(folder / "masks" / "a.png")
    assert "write each class of classes.txt as 'name #RRGGBB'" in failure(data.Folder(folder).labels, 0)


def test_an_index_without_a_class_is_named_with_its_file_and_pixels(folder):
    mask = np.zeros((4, 5), np.uint8)
    mask[0, :4] = 3  # the first that is no class
    save_palette(mask, folder / "masks" / "b.png")
    message = failure(data.Folder(folder).labels, 1)
    assert "b.png holds the value 3 at 4 pixels, but the classes are 0 to 2 and void is 255" in message


def test_every_kind_of_picture_becomes_rgb_bytes(folder):
    grey = np.linspace(0, 255, 20).astype(np.uint8).reshape(4, 5)
    kinds = {
        "a": (Image.fromarray(grey), "jpg"),
        "b": (Image.fromarray(grey.astype(np.uint16) * 257), "png"),
        "c": (Image.merge("RGBA", [Image.fromarray(grey)] * 3 + [Image.new("L", (5, 4), 255)]), "webp"),
        "d": (Image.fromarray(grey).convert("CMYK"), "tif"),
        "e": (Image.fromarray(grey).convert("P"), "bmp"),
    }
    for path in (folder / "images").iterdir():
        path.unlink()
    for name, (picture, suffix) in kinds.items():
        picture.save(folder / "images" / f"{name}.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
        save_palette(np.zeros((4, 5), np.uint8), folder / "masks" / f"{name}.png")
    for sample in data.Folder(folder):
        assert sample.image.dtype == torch.uint8
        error = (sample.image.double() - torch.tensor(grey)).abs().max()
        assert error <= (6 if sample.name == "a" else 2), sample.name  # JPEG is not exact


def test_exif_orientation_is_applied(folder):
    upright = np.zeros((4, 5, 3), np.uint8)
    upright[0] = 255  # a white line on top
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its left side: turn by 90 degrees clockwise to show it
    stored = Image.fromarray(np.rot90(upright).copy())
    stored.save(folder / "images" / "a.png", exif=exif)
    expected = torch.tensor(upright).permute(2, 0, 1)
    assert torch.equal(data.Folder(folder)[0].image, expected)
    assert torch.equal(data.as_pixels(Image.open(folder / "images" / "a.png")), expected)
    labels = (upright[..., 0] > 0).astype(np.uint8)
    Image.fromarray(np.rot90(labels).copy()).save(folder / "masks" / "a.png", exif=exif)
    assert torch.equal(data.Folder(folder).labels(0), torch.tensor(labels).long())


def test_splits_choose_and_order_the_pictures(folder):
    (folder / "splits").mkdir()
    (folder / "splits" / "train.txt").write_text("b.png\n\na\n")
    (folder / "splits" / "val.txt").write_text("b\n")
    assert [sample.name for sample in data.Folder(folder, "train")] == ["b", "a"]
    assert [sample.name for sample in data.Folder(folder, "val")] == ["b"]
    message = failure(data.Folder, folder, "test", kind=BadUsage)
    assert "Unknown split 'test'. Available options are: train, val" in message.replace("Did you mean", "")
    (folder / "splits" / "val.txt").write_text("b\nnowhere\n")
    assert "1 of 2 names" in (message := failure(data.Folder, folder, "val"))
    assert "nowhere" in message
    (folder / "splits" / "val.txt").write_text("\n")
    assert "val.txt lists no pictures" in failure(data.Folder, folder, "val")


def test_a_split_without_lists_says_which_file_is_wanted(folder):
    assert f"needs the file {folder / 'splits' / 'train'}.txt" in failure(data.Folder, folder, "train")


@pytest.mark.parametrize("part", ["images", "masks", "classes.txt"])
def test_a_missing_part_is_named(folder, part):
    (folder / part).rename(folder / "elsewhere")
    message = failure(data.Folder, folder)
    assert f"There is no {folder / part}" in message
    assert "classes.txt (one class per line)" in message


def test_a_missing_folder_is_named(tmp_path):
    assert f"There is no {tmp_path / 'nowhere'}." in failure(data.Folder, tmp_path / "nowhere")


def test_pictures_without_masks_are_counted_and_five_named(folder):
    for i in range(7):
        Image.new("RGB", (5, 4)).save(folder / "images" / f"new{i}.jpg")
    message = failure(data.Folder, folder)
    assert "7 of 9 pictures have no mask of the same name" in message
    assert "new0.jpg, new1.jpg, new2.jpg, new3.jpg, new4.jpg and 2 more" in message


def test_masks_without_pictures_and_other_files_are_left_alone(folder):
    save_palette(np.zeros((4, 5), np.uint8), folder / "masks" / "spare.png")
    (folder / "images" / "notes.txt").write_text("")
    (folder / "images" / "._a.png").write_text("")
    assert len(data.Folder(folder)) == 2


def test_an_empty_folder_says_so(folder):
    for path in (folder / "images").iterdir():
        path.unlink()
    assert "images holds no pictures (.bmp, .jpeg, .jpg" in failure(data.Folder, folder)


def test_two_pictures_of_one_name_are_an_error(folder):
    Image.new("RGB", (5, 4)).save(folder / "images" / "a.jpg")
    assert "have the same name" in failure(data.Folder, folder)


def test_different_sizes_are_both_said(folder):
    save_palette(np.zeros((4, 6), np.uint8), folder / "masks" / "a.png")
    message = failure(lambda: data.Folder(folder)[0])
    assert "is 5x4" in message
    assert "is 6x4" in message


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\nrubbish"])
@pytest.mark.parametrize("part", ["images", "masks"])
def test_an_unreadable_file_is_named(folder, part, content):
    (folder / part / "a.png").write_bytes(content)
    assert f"Cannot read {folder / part / 'a.png'}" in failure(lambda: data.Folder(folder)[0])


def test_a_truncated_picture_is_named(folder):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "images" / "a.png")
    whole = (folder / "images" / "a.png").read_bytes()
    (folder / "images" / "a.png").write_bytes(whole[: len(whole) // 2])
    assert f"Cannot read {folder / 'images' / 'a.png'}" in failure(lambda: data.Folder(folder)[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must list 1 to 255 classes, one per line, got 0"),
        ("void #000000", "got 0"),
        ("\n".join(f"class{i}" for i in range(256)), "got 256"),
        ("dog\n\ncow", "Expected a class name in line 2"),
        ("dog 1 2 300", "three numbers from 0 to 255, got '1 2 300' in line 1"),
        ("dog #010203\ncow 1 2 3", "Line 2 of"),
        ("void #010203\ncow", "'void' must be the last line"),
        ("dog\ndog", "these repeat: dog"),
    ],
)
def test_a_wrong_class_list_says_what_is_wrong(folder, text, message):
    (folder / "classes.txt").write_text(text)
    assert message in failure(data.Folder, folder)


@pytest.mark.parametrize("file", ["classes.txt", "splits/train.txt"])
def test_lists_in_another_encoding_say_how_to_save_them(folder, file):
    (folder / "splits").mkdir()
    (folder / file).write_bytes("Kühe\n".encode("latin-1"))
    assert f"{folder / file} is not UTF-8: save it as UTF-8" in failure(data.Folder, folder, "train")


def test_names_of_several_words_and_numbers_are_kept(folder):
    (folder / "classes.txt").write_text("traffic light\nroute 66\ncow #010203\n")
    pictures = data.Folder(folder)
    assert pictures.names == ("traffic light", "route 66", "cow")
    assert pictures.background is None


def test_a_written_folder_reads_back_the_same(tmp_path):
    pictures = data.Scenes(3, size=40)
    data.write_folder(pictures, tmp_path / "new", progress=False)
    back = data.Folder(tmp_path / "new")
    assert back.names == pictures.names
    assert back.background == pictures.background
    for a, b in zip(back, pictures, strict=True):
        assert a.name == b.name
        assert torch.equal(a.image, b.image)
        assert torch.equal(a.labels, b.labels)
    mask = Image.open(back.items[0].mask)
    palette = np.array(mask.getpalette("RGB")).reshape(-1, 3)
    shown = int(pictures.labels(0).max())
    assert tuple(palette[shown]) == colours(pictures.names, "background")[shown]


def test_writing_never_overwrites_and_knows_what_a_mask_can_hold(tmp_path):
    (tmp_path / "precious.txt").write_text("")
    assert "is not empty" in failure(data.write_folder, data.Scenes(1), tmp_path, kind=BadUsage)
    many = Masks([CLEAN], names=tuple(f"class{i}" for i in range(256)))
    assert "at most 255 classes, the dataset has 256" in failure(data.write_folder, many, tmp_path / "x")


# --------------------------------------------------------------------------------------------- registry


def test_open_answers_unknown_kinds_with_the_list(folder):
    assert isinstance(data.open("folder", folder, None), data.Folder)
    assert len(data.open("scenes", None, "val", count=4)) == 4
    message = failure(data.open, "coco", None, None, kind=BadUsage)
    assert "Available options are: scenes, voc, context, coco-stuff, folder" in message
    assert "say where with --root DIR, or --data.root DIR" in failure(data.open, "voc", None, "val", kind=BadUsage)


# -------------------------------------------------------------------------------------------------- voc


@pytest.fixture
def voc(tmp_path):
    """VOC's layout: picture x with its own mask and an extra one, picture y with an extra mask only."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for part in ("JPEGImages", "SegmentationClass", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / part).mkdir(parents=True)
    for name in ("x", "y"):
        Image.new("RGB", (5, 4)).save(root / "JPEGImages" / f"{name}.jpg")
        save_palette(np.full((4, 5), 7, np.uint8), root / "SegmentationClassAug" / f"{name}.png")
    save_palette(np.full((4, 5), 20, np.uint8), root / "SegmentationClass" / "x.png")
    (root / "ImageSets/Segmentation/train.txt").write_text("x\n")
    (root / "ImageSets/Segmentation/train_aug.txt").write_text("x\ny\n")
    return tmp_path


def test_voc_is_found_from_any_level_and_prefers_its_own_masks(voc):
    for root in (voc, voc / "VOCdevkit", voc / "VOCdevkit" / "VOC2012"):
        pictures = data.VOC(root, "train_aug")
        assert [sample.name for sample in pictures] == ["x", "y"]
        assert [pictures.labels(i).unique().tolist() for i in range(2)] == [[20], [7]]
    assert pictures.names[20] == "tvmonitor"
    assert pictures.background == "background"
    assert len(data.VOC(voc, "train")) == 1


def test_voc_lists_of_paths_are_understood(voc):
    listing = voc / "VOCdevkit/VOC2012/ImageSets/Segmentation/train_aug.txt"
    listing.write_text("/JPEGImages/y.jpg /SegmentationClassAug/y.png\n")
    assert [sample.name for sample in data.VOC(voc, "train_aug")] == ["y"]


def test_voc_errors_say_what_to_do(voc, tmp_path):
    assert "expected the folder JPEGImages" in failure(data.VOC, tmp_path / "nowhere", "val")
    assert "Available options are: train, train_aug" in failure(data.VOC, voc, "val", kind=BadUsage)
    (voc / "VOCdevkit/VOC2012/SegmentationClassAug/y.png").unlink()
    message = failure(data.VOC, voc, "train_aug")
    assert "1 of the 2 pictures of split 'train_aug' have no mask" in message
    assert ": y. See what is missing, and build train_aug, with: joem data prepare voc --root" in message


@real
@needs_voc
def test_the_published_numbers_of_training_pictures_remain():
    pictures = data.VOC(REAL, "train_aug")
    assert len(pictures) == 10_582
    presence = data.class_presence(pictures)
    assert presence.shape == (10_582, 21)
    for name in (f"voc-zs3-{count}" for count in (2, 4, 6, 8, 10)):
        protocol = protocols.get(name)
        unseen = list(protocol.vocabulary.unseen_indices)
        assert int((~presence[:, unseen].any(dim=1)).sum()) == protocol.training_images
        assert len(data.seen_only(pictures, protocol.vocabulary, "exclude")) == protocol.training_images
    spnet = protocols.get("voc-spnet").vocabulary
    assert len(data.seen_only(data.relabel(pictures, spnet.names), spnet, "ignore")) == 10_582


@real
@needs_voc
def test_real_pictures_and_masks_fit():
    assert len(data.VOC(REAL / "VOCdevkit", "val")) == 1_449
    pictures = data.VOC(REAL / "VOCdevkit" / "VOC2012", "train")
    assert len(pictures) == 1_464
    for i in range(0, 1_464, 200):
        sample = pictures[i]
        assert sample.image.shape[1:] == sample.labels.shape
        assert sample.labels.unique().numel() > 1


# ------------------------------------------------------------------------------------- rules and the guard


def test_class_pixels_equals_counting_one_by_one():
    rng = np.random.default_rng(0)
    masks = [rng.choice([0, 1, 2, VOID], (3, 5)).tolist() for _ in range(6)] + [[[VOID]]]
    counted = torch.zeros(7, 3, dtype=torch.int64)
    for i, mask in enumerate(masks):
        for label in (label for row in mask for label in row if label != VOID):
            counted[i, label] += 1
    dataset = Masks(masks)
    assert torch.equal(data.class_pixels(dataset), counted)
    assert torch.equal(data.class_presence(dataset), counted > 0)


def test_masks_are_read_once():
    dataset = Masks([CLEAN, COWS])
    first = data.class_pixels(dataset)
    dataset.labels = None  # a second scan would fail
    assert data.class_pixels(dataset) is first


def test_describe_counts_images_and_pixels_of_each_class():
    rows = data.describe(Masks([CLEAN, COWS, EMPTY]), COW)
    assert rows == [("background", False, 3, 5), ("dog", False, 2, 3), ("cow", True, 1, 2)]
    assert not any(row.unseen for row in data.describe(Masks([CLEAN, COWS, EMPTY])))


def test_exclude_drops_every_picture_with_an_unseen_pixel():
    kept = data.seen_only(Masks([COWS, CLEAN, EMPTY, COWS]), COW, "exclude")
    assert [sample.name for sample in kept] == ["picture-1", "picture-2"]
    assert kept.labels(0).tolist() == kept[0].labels.tolist() == CLEAN
    assert kept.names == COW.names
    assert kept.background == "background"


def test_relabel_leaves_classes_out_as_void():
    pictures = data.relabel(Masks([COWS, CLEAN]), ("cow", "dog"))
    assert pictures.names == ("cow", "dog")
    assert pictures.background is None
    assert [pictures.labels(i).tolist() for i in range(2)] == [[[255, 0], [1, 0]], [[255, 1], [1, 255]]]
    assert pictures[0].labels.tolist() == [[255, 0], [1, 0]]
    assert data.class_pixels(pictures).tolist() == [[2, 1], [0, 2]]
    same = Masks([COWS])
    assert data.relabel(same, COW.names) is same


def test_ignore_keeps_all_pictures_and_voids_unseen():
    kept = data.seen_only(Masks([COWS, CLEAN]), COW, "ignore")
    assert [kept.labels(i).tolist() for i in range(2)] == [[[0, 255], [1, 255]], CLEAN]
    assert kept[0].labels.tolist() == [[0, 255], [1, 255]]
    without_background = COW.without_background()
    pictures = data.relabel(Masks([COWS]), without_background.names)
    assert data.seen_only(pictures, without_background, "ignore").labels(0).tolist() == [
        [255, 255],
        [0, 255],
    ]


@pytest.mark.parametrize("rule", ["exclude", "ignore"])
def test_nothing_unseen_changes_nothing_else(rule):
    everything_seen = Vocabulary(COW.names)
    kept = data.seen_only(Masks([COWS, CLEAN]), everything_seen, rule)
    assert [kept.labels(i).tolist() for i in range(2)] == [COWS, CLEAN]


def test_rules_on_folders(folder):
    save_palette(np.eye(4, 5, dtype=np.uint8), folder / "masks" / "b.png")
    pictures = data.Folder(folder)
    assert [sample.name for sample in data.seen_only(pictures, COW, "exclude")] == ["b"]
    assert data.seen_only(pictures, COW, "ignore").labels(0)[0].tolist() == [1, VOID, VOID, 0, 0]


@pytest.mark.parametrize("masks", [[COWS], [COWS, EMPTY]])
def test_no_seen_class_left_says_what_was_dropped_and_what_to_do(masks):
    message = failure(data.seen_only, Masks(masks), COW, "exclude")
    kept = len(masks) - 1
    assert f"No seen class left after rule 'exclude': {kept} of {len(masks)} pictures stay" in message
    assert "(unseen: cow)" in message
    assert "Hold out fewer classes" in message
    assert "No seen class left after rule 'ignore'" in failure(data.seen_only, Masks([EMPTY]), COW, "ignore")


def test_wrong_rules_and_vocabularies_are_errors():
    message = failure(data.seen_only, Masks([CLEAN]), COW, "drop", kind=BadUsage)
    assert "Available options are: exclude, ignore" in message
    other = Vocabulary(("background", "cow", "dog"))
    message = failure(data.seen_only, Masks([CLEAN]), other, "exclude", kind=BadUsage)
    assert "background, dog, cow" in message
    assert "background, cow, dog" in message
    assert "joem.data.relabel leaves classes out" in message


@pytest.mark.parametrize("labels", [CLEAN, EMPTY, [[VOID]], np.zeros((0, 3), np.int64)])
def test_the_guard_lets_seen_classes_and_void_pass(labels):
    data.guard(torch.tensor(labels), COW)


@pytest.mark.parametrize(
    ("labels", "messages"),
    [
        (COWS, ["unseen class 'cow' (2 pixels)"]),
        ([[0, 3, 3]], ["label 3, which is no class (2 pixels)"]),
        ([[-1, -5, 300]], ["label -1, which is no class (2 pixels)", "label 300"]),
        ([[2, 254]], ["unseen class 'cow' (1 pixels)", "label 254"]),
    ],
)
def test_the_guard_names_what_must_not_be_there(labels, messages):
    message = failure(data.guard, torch.tensor(labels), COW, kind=LeakageError)
    assert all(part in message for part in messages)
    assert "make the training set with joem.data.seen_only" in message


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([-1, *range(7), VOID]), min_size=1, max_size=30),
    st.sets(st.integers(0, 5), max_size=5),
)
def test_the_guard_equals_looking_at_every_pixel(pixels, unseen):
    names = tuple("abcdef")
    vocabulary = Vocabulary(names, unseen=tuple(names[i] for i in sorted(unseen)))
    leaks = any(label != VOID and (label in unseen or not 0 <= label < 6) for label in pixels)
    try:
        data.guard(torch.tensor(pixels).reshape(1, 1, -1), vocabulary)
        assert not leaks
    except LeakageError:
        assert leaks


# --------------------------------------------------------------------------------------------- transforms


def blocks(height, width, side=12):
    """Labels in large blocks, with some void, and an image that shows label k in the colour of k."""
    rows, columns = np.arange(height)[:, None] // side, np.arange(width)[None] // side
    labels = torch.tensor((rows * 3 + columns * 5) % 7)
    image = torch.stack([labels * 30 + 10, 250 - labels * 20, labels * 11]).to(torch.uint8)
    return image, labels


def colours_of(image):
    """The label whose colour every pixel of a normalised image shows, and how far off it is."""
    pixels = image * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    table = torch.stack([torch.arange(7) * 30 + 10, 250 - torch.arange(7) * 20, torch.arange(7) * 11])
    distance = (pixels[:, None] - table[:, :, None, None]).abs().amax(dim=0)
    return distance.min(dim=0)


@pytest.mark.parametrize("size", [(61, 47), (40, 83), (7, 90)])
@pytest.mark.parametrize("flip", [True, False])
def test_without_scaling_every_pixel_keeps_its_colour_and_label_together(size, flip):
    image, labels = blocks(*size)
    transform = data.training(48, mean=MEAN, std=STD, scale=(1, 1), flip=flip)
    for _ in range(8):
        new_image, new_labels = transform(image, labels)
        assert new_image.shape == (3, 48, 48)
        assert new_image.dtype == torch.float32
        assert new_labels.shape == (48, 48)
        assert new_labels.dtype == torch.int64
        assert type(new_image) is type(new_labels) is torch.Tensor
        inside = new_labels != VOID
        assert inside.sum() == min(size[0], 48) * min(size[1], 48)
        assert (new_image[:, ~inside] == 0).all()  # padding is the mean colour
        distance, shown = colours_of(new_image)
        assert torch.equal(shown[inside], new_labels[inside])
        assert distance[inside].max() < 0.01


@pytest.mark.parametrize("factor", [0.5, 0.77, 1.5, 2.3])
def test_scaled_image_and_labels_stay_aligned(factor):
    image, labels = blocks(61, 53)
    height, width = round(61 * factor), round(53 * factor)
    crop = max(height, width)
    transform = data.training(crop, mean=MEAN, std=STD, scale=(factor, factor))
    new_image, new_labels = transform(image, labels)
    inside = new_labels != VOID
    assert inside.sum() == height * width
    # Away from borders between blocks the colour is pure, and must be the one of the label.
    reach = 2 if factor <= 1 else 3
    near = torch.stack(
        [new_labels.roll((y, x), (0, 1)) for y in range(-reach, reach + 1) for x in range(-reach, reach + 1)]
    )
    pure = (near == new_labels).all(dim=0) & inside
    distance, shown = colours_of(new_image)
    assert pure.sum() > 0.1 * inside.sum()
    assert torch.equal(shown[pure], new_labels[pure])
    assert distance[pure].max() < 1.5


@pytest.mark.parametrize("factor", [0.31, 0.73, 1.37, 1.9])
def test_scaling_does_not_shift_labels_against_the_image(factor):
    labels = (torch.arange(100)[:, None] + torch.arange(100) >= 100).long()
    image = (labels * 255).to(torch.uint8).expand(3, -1, -1)
    side = round(100 * factor)
    transform = data.training(side, mean=(0,) * 3, std=(255,) * 3, scale=(factor, factor), flip=False)
    new_image, new_labels = transform(image, labels)
    shift = (new_image[0].sum() - new_labels.sum()) / side  # across the edge, in pixels of the result
    assert abs(shift) < 0.5


def test_flips_happen_half_of_the_time_and_scales_fill_their_range():
    torch.manual_seed(0)
    image, labels = blocks(48, 48)
    flip = data.training(48, mean=MEAN, std=STD, scale=(1, 1))
    flipped = sum(torch.equal(flip(image, labels)[1], labels.flip(1)) for _ in range(200))
    assert 70 < flipped < 130
    scale = data.training(100, mean=MEAN, std=STD, scale=(0.5, 2.0))
    sides = [int((scale(image, labels)[1] != VOID).sum()) ** 0.5 / 48 for _ in range(200)]
    assert 0.5 <= min(sides) < 0.6
    assert 1.9 < max(sides) <= 2.0
    never = data.training(48, mean=MEAN, std=STD, scale=(1, 1), flip=False)
    assert all(torch.equal(never(image, labels)[1], labels) for _ in range(20))


def test_crops_come_from_everywhere():
    torch.manual_seed(0)
    labels = torch.arange(16).reshape(4, 4)
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    transform = data.training(1, mean=MEAN, std=STD, scale=(1, 1))
    assert {transform(image, labels)[1].item() for _ in range(300)} == set(range(16))


def test_evaluation_normalises_and_changes_nothing_else():
    image, labels = blocks(5, 7)
    new_image, new_labels = data.evaluation(mean=MEAN, std=STD)(image, labels)
    for channel in range(3):
        expected = (image[channel].double() - MEAN[channel]) / STD[channel]
        assert torch.allclose(new_image[channel].double(), expected, atol=1e-6)
    assert new_image.dtype == torch.float32
    assert torch.equal(new_labels, labels)


def test_the_smallest_pictures_pass():
    transform = data.training(3, mean=MEAN, std=STD, scale=(0.1, 0.1))
    image, labels = transform(*blocks(1, 1))
    assert image.shape == (3, 3, 3)
    assert (labels == 0).sum() == 4


@pytest.mark.parametrize("arguments", [{"crop": 0}, {"scale": (0, 1)}, {"scale": (2, 1)}])
def test_impossible_crops_and_scales_are_errors(arguments):
    message = failure(data.training, **{"crop": 8, **arguments}, mean=MEAN, std=STD, kind=BadUsage)
    assert "crop >= 1 and 0 < low <= high" in message


# ------------------------------------------------------------------------------- training set and sampler


def scene_set(seed=0):
    transform = data.training(32, mean=MEAN, std=STD)
    return data.TrainingSet(
        data.Scenes(12, size=48, only=["red circle"]),
        data.scenes.vocabulary(),
        "exclude",
        transform,
        seed=seed,
    )


def test_crops_depend_on_seed_epoch_and_index_alone():
    pictures = scene_set()
    first = [pictures[epoch, index] for epoch in range(2) for index in range(12)]
    torch.manual_seed(99)
    again = pickle.loads(pickle.dumps(pictures))
    for (epoch, index), (image, labels) in zip(
        [(epoch, index) for epoch in range(2) for index in range(12)][::-1], first[::-1], strict=True
    ):
        assert torch.equal(again[epoch, index][0], image)
        assert torch.equal(again[epoch, index][1], labels)
    assert sum(torch.equal(pictures[0, i][0], pictures[1, i][0]) for i in range(12)) < 2
    assert sum(torch.equal(pictures[0, i][0], scene_set(seed=1)[0, i][0]) for i in range(12)) < 2


def test_the_global_generator_is_left_as_it_was():
    pictures = scene_set()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pictures[0, 0]
    assert torch.equal(torch.rand(3), expected)


def test_workers_load_the_same_batches_in_every_epoch():
    pictures = scene_set()
    sampler = data.EpochSampler(len(pictures), 5, seed=3)
    loader = DataLoader(
        pictures, batch_sampler=sampler, num_workers=2, collate_fn=data.collate, persistent_workers=True
    )
    for epoch in range(2):
        sampler.epoch = epoch
        for keys, (images, labels) in zip(sampler, loader, strict=True):
            assert images.shape == (5, 3, 32, 32)
            assert {key[0] for key in keys} == {epoch}
            for key, image, label in zip(keys, images, labels, strict=True):
                assert torch.equal(pictures[key][0], image)
                assert torch.equal(pictures[key][1], label)


@pytest.mark.parametrize("rule", ["exclude", "ignore"])
def test_a_dataset_that_lies_about_its_masks_is_caught(rule):
    transform = data.training(2, mean=MEAN, std=STD)
    honest = data.TrainingSet(Masks([CLEAN, CLEAN]), COW, rule, transform, seed=0)
    honest[0, 1]
    slipped = [[0, 2], [1, 2]] if rule == "exclude" else [[0, 77], [1, 77]]  # "ignore" voids cows themselves
    lying = data.TrainingSet(Masks([CLEAN, CLEAN], shown=[CLEAN, slipped]), COW, rule, transform, seed=0)
    lying[0, 0]
    message = failure(lambda: lying[0, 1], kind=LeakageError)
    assert ("unseen class 'cow' (2 pixels)" if rule == "exclude" else "label 77") in message


def test_no_unseen_label_reaches_the_loss_under_either_rule():
    pictures = data.Scenes(40, size=48)
    vocabulary = data.scenes.vocabulary()
    transform = data.training(32, mean=MEAN, std=STD)
    for rule in ("exclude", "ignore"):
        chosen = data.TrainingSet(pictures, vocabulary, rule, transform, seed=0)
        assert len(chosen) == (
            40
            if rule == "ignore"
            else sum(not set(pictures.labels(i).unique().tolist()) & set(vocabulary.unseen_indices) for i in range(40))
        )
        present = {label for i in range(len(chosen)) for label in chosen[0, i][1].unique().tolist()}
        assert not present & set(vocabulary.unseen_indices)
        assert 0 in present


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_processes_share_the_batches_of_one_process(length, size, seed, epoch, world):
    alone = data.EpochSampler(length, size, seed, epoch)
    batches = list(alone)
    indices = [index for batch in batches for _, index in batch]
    assert len(alone) == len(batches) >= 1
    assert len(set(indices)) == len(indices)
    assert all(key == epoch for batch in batches for key, _ in batch)
    assert set(indices) <= set(range(length))
    expected = length if length < size else length // size * size
    assert len(indices) == expected
    if min(len(batch) for batch in batches) < world:
        assert "cannot be shared" in failure(data.EpochSampler, length, size, seed, epoch, world=world, kind=BadUsage)
        return
    parts = [list(data.EpochSampler(length, size, seed, epoch, rank=rank, world=world)) for rank in range(world)]
    assert [[key for share in shares for key in share] for shares in zip(*parts, strict=True)] == batches
    lengths = [[len(share) for share in shares] for shares in zip(*parts, strict=True)]
    assert all(max(row) - min(row) <= 1 for row in lengths)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 8))
def test_resuming_in_the_middle_gives_the_tail(length, size, start):
    batches = list(data.EpochSampler(length, size, seed=1, epoch=2))
    rest = data.EpochSampler(length, size, seed=1, epoch=2, start_batch=start)
    assert list(rest) == batches[start:]
    assert len(rest) == len(batches[start:])


def test_orders_differ_between_epochs_and_seeds():
    orders = [
        tuple(index for batch in data.EpochSampler(50, 10, seed, epoch) for _, index in batch)
        for seed in range(3)
        for epoch in range(3)
    ]
    assert len(set(orders)) == 9


@pytest.mark.parametrize("arguments", [{"length": 0}, {"batch_size": 0}, {"rank": 1}, {"rank": -1}])
def test_impossible_samplers_are_errors(arguments):
    message = failure(data.EpochSampler, **{"length": 4, "batch_size": 2, "seed": 0, **arguments}, kind=BadUsage)
    assert "length >= 1, batch_size >= 1 and 0 <= rank < world" in message
