import json
import re
from pathlib import Path

import pytest
from PIL import Image

from joem import recipe
from joem.errors import BadUsage
from joem.studies import quickstart
from joem.vocabulary import Vocabulary

PACKAGE = Path(quickstart.__file__).parents[1]


def test_quickstart_on_a_tiny_scale_does_every_step_and_repeats_itself(tiny, tmp_path):
    settings = tiny.changed(data={"train_count": 40, "val_count": 4, "scale": (1.0, 1.0)}, train={"epochs": 1})
    first = quickstart.run(settings, tmp_path / "a")
    second = quickstart.run(settings, tmp_path / "a")
    for numbers in (first, second):
        del numbers["seconds"], numbers["new_class"]["seconds_to_add"]
    assert first == second
    assert set(first["results"]) == set(first["shuffled_control"]) == {"nn", "cs", "ac"}
    assert first["results"]["nn"] != first["shuffled_control"]["nn"]
    stored = json.loads((tmp_path / "a" / "quickstart.json").read_text())
    assert stored["chosen"] == first["chosen"]
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("data:image/webp;base64,") == 2
    assert page.count("<svg") == 4
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)  # self-contained
    for words in ("Apollonius", "shuffled words", quickstart.NEW_CLASS, "joem quickstart --seed 0"):
        assert words in page
    assert "<details><summary>The whole recipe</summary>" in page


def test_the_page_opens_with_the_photos_and_says_what_it_is_about():
    vocabulary = Vocabulary(("background", "red circle", "blue ring"), ("blue ring",), "background")
    page = quickstart._opening(vocabulary, Image.new("RGB", (8, 8)))
    drawn = "".join(page._parts)
    assert drawn.index("data:image/webp") < drawn.index("generated pictures of 2 classes with masks")
    assert "data:image" not in "".join(quickstart._opening(vocabulary, None)._parts)


def test_photos_are_asked_for_words_in_a_moment():
    sheet = quickstart.photos()
    assert sheet.width > 800
    assert sheet.height > 4 * 250
    assert set(quickstart._PHOTOS) == {path.stem for path in (PACKAGE / "web" / "photos").glob("*.jpg")}


def test_other_pictures_are_refused(tmp_path):
    with pytest.raises(BadUsage, match="about generated pictures, got a recipe of voc"):
        quickstart.run(recipe.load("lite"), tmp_path)
