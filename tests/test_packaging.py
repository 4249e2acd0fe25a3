"""What is installed, and what is given to others: the wheel and the source distribution."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import joem
from joem import recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The files of the wheel, and of the source distribution without the name of its folder."""
    pytest.importorskip("hatchling")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("the tests are not beside the source")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True)
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel, tarfile.open(next(out.glob("*.tar.gz"))) as source:
        description = wheel.read(f"joem-{joem.__version__}.dist-info/METADATA").decode()
        return set(wheel.namelist()), {name.partition("/")[2] for name in source.getnames()}, description


def tracked(*folders):
    """The files of the repository in these folders; those on disk where there is no repository."""
    found = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 0 and found.stdout:
        return set(found.stdout.split("\n")) - {""}
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_the_wheel_has_the_package_with_all_its_files_and_nothing_else(built):
    wheel, _, _ = built
    existing = {name for name in tracked("src/joem") if (ROOT / name).is_file()}
    assert {name.removeprefix("src/") for name in existing} <= wheel
    for name in (
        "joem/boxed/voc-names/weights.safetensors",
        "joem/boxed/voc-names/model.json",
        "joem/protocols.yaml",
        "joem/py.typed",
        "joem/web/page/index.html",
        "joem/web/page/main.js",
        "joem/web/photos/CREDITS.md",
        *(f"joem/recipes/{name}.yaml" for name in recipe.names()),
    ):
        assert name in wheel
    assert {name.partition("/")[0] for name in wheel} == {"joem", f"joem-{joem.__version__}.dist-info"}
    assert not [name for name in wheel if name.endswith(".pyc")]


@pytest.mark.slow
def test_the_source_distribution_has_tests_and_documentation(built):
    _, source, _ = built
    assert {name for name in tracked("src", "tests", "docs") if (ROOT / name).is_file()} <= source
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "Makefile",
        "constraints.txt",
    ):
        assert name in source
    assert not [name for name in source if name.startswith((".venv", "build/", "runs/", ".hypothesis"))]


@pytest.mark.slow
def test_the_description_names_versions_and_extras(built):
    _, _, description = built
    for line in ("Requires-Python: >=3.11", "License-Expression: MIT", "Provides-Extra: huggingface"):
        assert line in description
    for version in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {version}" in description


def test_all_places_agree_on_the_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == joem.__version__
    assert f"\nversion: {joem.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {joem.__version__}" in (ROOT / "CHANGELOG.md").read_text()
