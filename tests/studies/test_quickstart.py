import json
import re

import pytest

from joem import recipe
from joem.errors import BadUsage
from joem.studies import quickstart


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


def test_other_pictures_are_refused(tmp_path):
    with pytest.raises(BadUsage, match="about generated pictures, got a recipe of voc"):
        quickstart.run(recipe.load("lite"), tmp_path)
