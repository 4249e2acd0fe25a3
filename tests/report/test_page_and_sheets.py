import torch
from PIL import Image

from joem.data import scenes
from joem.report import Page, contact_sheet, named
from joem.report.sheets import free_row
from joem.vocabulary import Vocabulary


def test_a_table_escapes_what_it_shows_and_draws_bars():
    page = Page("a < b", "lead")
    page.table(["class", "IoU"], [["<cow>", "12.5"], ["dog", "-"]], bars=True)
    page.code("long", folded="fold & hide")
    text = "".join(page._parts)
    assert "a &lt; b" in text
    assert "&lt;cow&gt;" in text
    assert "width:12%" in text
    assert "width:0%" in text
    assert "<summary>fold &amp; hide</summary>" in text


def test_a_sheet_keeps_the_shape_of_its_pictures():
    wide, tall = Image.new("RGB", (40, 20), "red"), Image.new("RGB", (20, 40), "blue")
    sheet = contact_sheet([[wide], [tall]], ["a"], cell=100)
    assert sheet.size == (100 + 16, 30 + (50 + 8) + (100 + 8))
    assert sheet.getpixel((8 + 99, 30 + 49)) == (255, 0, 0)
    assert sheet.getpixel((8 + 49, 30 + 58 + 99)) == (0, 0, 255)
    assert sheet.getpixel((8 + 51, 30 + 58 + 99)) == (255, 255, 255)


def test_labels_do_not_overlap_and_stay_in_the_picture():
    taken = []
    for wished in (50, 52, 48, 50, 3):
        box = (0, -6, 60, 6)
        row = free_row(wished, box, taken, 100)
        assert row - 6 >= 0
        assert row + 6 <= 100
        assert all(row + 6 <= top or bottom <= row - 6 for _, top, _, bottom in taken)
        taken.append((0, row - 6, 60, row + 6))
    assert free_row(50, (70, -6, 90, 6), taken, 100) == 50  # beside the others there is room
    assert free_row(5, (0, -6, 60, 6), [(0, 0, 60, 10)], 10) == 5  # there is none anywhere


def test_tints_do_not_contradict_names():
    vocabulary = Vocabulary(("background", "purple triangle", "blue ring", "cow"), background="background")
    labels = torch.arange(4).repeat_interleave(8).repeat(8, 1)
    image = named(torch.zeros(3, 8, 32, dtype=torch.uint8), labels, vocabulary, side=32, smallest=2.0)
    assert [image.getpixel((column, 1)) for column in (12, 20)] == [
        tuple(round(0.55 * value) for value in scenes.tint(name)) for name in ("purple triangle", "blue ring")
    ]
    assert image.getpixel((28, 1)) == tuple(round(0.55 * value) for value in vocabulary.colours[3])
