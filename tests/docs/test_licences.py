"""docs/licences.md against what the packages say; `python tests/docs/test_licences.py --write` writes it anew."""

import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "licences.md"
START, END = "<!-- packages -->", "<!-- end of packages -->"
EXTRAS = ("train", "lite", "glove", "use", "hub", "onnx", "tensorboard", "prepare", "serve", "parquet", "ray")
"""The extras that people install; those of development only are left out."""


def licence(package: Distribution) -> str:
    """What a package says of its licence, in as few words as it does."""
    notes = package.metadata
    for text in (notes.get("License-Expression"), notes.get("License")):
        if text and "\n" not in text and len(text) < 150 and text not in {"UNKNOWN", "Files: *"}:
            return " ".join(text.split())
    known = [each.split(" :: ")[-1] for each in notes.get_all("Classifier") or [] if each.startswith("License")]
    return ", ".join(known) or "not stated in its metadata"


def needed() -> dict[str, Distribution]:
    """joem's own requirements and theirs, as far as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
    found: dict[str, Distribution] = {}
    wished = (wanted for wanted in map(Requirement, own) if wanted.name != "joem")  # an extra may name another one
    waiting = [(plain(wanted.name), frozenset({"", *wanted.extras})) for wanted in wished]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        found[plain(name)] = package
        for text in package.requires or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((plain(wanted.name), frozenset({"", *wanted.extras})))
    return found


def installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def table() -> dict[str, str]:
    """package -> licence, as the page has it."""
    part = PAGE.read_text(encoding="utf-8").split(START)[1].split(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.strip().splitlines()[2:]]
    return {name.strip("`"): text for name, text in rows}


def write() -> None:
    absent = {name: text for name, text in table().items() if not installed(name)}
    rows = {**absent, **{name: licence(package) for name, package in needed().items()}}
    lines = [f"| `{name}` | {text} |" for name, text in sorted(rows.items())]
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    text = "\n".join([START, "", "| package | licence |", "|---|---|", *lines, "", END])
    PAGE.write_text(before + text + rest.split(END)[1], encoding="utf-8")


def test_every_package_is_listed_with_the_licence_that_it_states():
    listed = table()
    assert not {name for name in listed if installed(name)} - needed().keys()
    for name, package in needed().items():
        assert listed.get(name) == licence(package), (
            f"{name}: read what it says, then run python tests/docs/test_licences.py --write"
        )


@pytest.mark.parametrize(
    "name", ["boxed/voc-names", "photos", "glove", "minilm", "wordnet", "universal-sentence", "efficientnet"]
)
def test_every_part_that_is_no_program_is_named(name):
    assert name in PAGE.read_text(encoding="utf-8").split(START)[0].lower()


def test_licences_that_must_travel_with_a_part_do():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    for folder in (ROOT / "src/joem/boxed").iterdir():
        assert "Apache License" in (folder / "LICENSE-Apache-2.0.txt").read_text()
    assert "Apache License" in (ROOT / "src/joem/words/minilm/LICENSE-Apache-2.0.txt").read_text()
    assert "Princeton University" in (ROOT / "src/joem/words/lexicon/LICENSE-WordNet.txt").read_text()
    credits = (ROOT / "src/joem/web/photos/CREDITS.md").read_text()
    for photo in (ROOT / "src/joem/web/photos").glob("*.jpg"):
        assert photo.name in credits


if __name__ == "__main__" and "--write" in sys.argv:
    write()
