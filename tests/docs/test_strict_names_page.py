"""The names that docs/results/strict-names.md lists are those that the rule takes out."""

import re
from pathlib import Path

import pytest

from joem import protocols
from joem.semantics import imagenet
from joem.semantics.giveaways import giveaways

PAGE = Path(__file__).parents[2] / "docs" / "results" / "strict-names.md"
SPLITS = {f"voc-zs3-{count}": protocols.get(f"voc-zs3-{count}").vocabulary.unseen for count in (2, 4, 6, 8, 10)}
ENTRIES = imagenet.entries_of(imagenet.FIRST)


@pytest.fixture(scope="module")
def rows():
    """The cells of every row of the tables, by the first of them."""
    before, _ = PAGE.read_text(encoding="utf-8").split("## What the teacher")
    lines = [line.strip("| ").split(" | ") for line in before.splitlines() if "|" in line]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


@pytest.mark.parametrize("name", SPLITS["voc-zs3-10"])
def test_every_class_has_the_names_and_reasons_of_the_rule(name, rows):
    _, count, told = rows[name]
    found = {}
    for part in told.split("; "):
        why, names = re.fullmatch(r"\*(\w+)\*: (.+)", part).groups()
        found |= dict.fromkeys(names.split(", "), why)
    assert found == {ENTRIES[index].names[0]: why for index, why in giveaways(name, imagenet.FIRST).items()}
    assert int(count) == len(found)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_the_number_of_names(split, rows):
    out = {index for name in SPLITS[split] for index in giveaways(name, imagenet.FIRST)}
    assert int(rows[split][-1]) == len(out)
