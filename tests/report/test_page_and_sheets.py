from PIL import Image

from joem.report import Page, contact_sheet


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
