"""What is installed, and what is given to others: the wheel and the source distribution."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import joem
from joem import recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of the wheel and the source distribution."""
    pytest.importorskip("hatchling")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("the tests are not beside the source")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True)
    return out


@pytest.fixture(scope="module")
def built(dist):
    """The files of the wheel, of the source distribution without the name of its folder, and the description."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel, tarfile.open(next(dist.glob("*.tar.gz"))) as source:
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
        "joem/words/minilm/model.safetensors",
        "joem/words/minilm/LICENSE-Apache-2.0.txt",
        "joem/words/lexicon/wordnet.tsv.gz",
        "joem/words/lexicon/LICENSE-WordNet.txt",
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
    for line in (
        "Requires-Python: >=3.11",
        "License-Expression: MIT",
        "Provides-Extra: huggingface",
        "Provides-Extra: train",
    ):
        assert line in description
    for version in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {version}" in description


def needed(requirements: list[str]) -> dict[str, Distribution]:
    """What requirements ask for without extras, and what that asks for, as far as it is installed here."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        chosen = ["", *wanted.extras]
        if wanted.marker and not any(wanted.marker.evaluate({"extra": each}) for each in chosen):
            continue
        try:
            package = distribution(wanted.name)
        except PackageNotFoundError:  # for another system
            continue
        if wanted.name not in found or wanted.extras:
            found[wanted.name] = package
            asked = (Requirement(each) for each in package.requires or [])
            waiting += [
                each
                for each in asked
                if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in chosen)
            ]
    return found


@pytest.fixture(scope="module")
def light(dist, tmp_path_factory):
    """The Python of a fresh environment: the wheel, and of the packages here only those that it asks for."""
    wheel, folder = next(dist.glob("*.whl")), tmp_path_factory.mktemp("light")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    packages = folder / "packages"
    packages.mkdir()
    with zipfile.ZipFile(wheel) as files:
        lines = files.read(f"joem-{joem.__version__}.dist-info/METADATA").decode().splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    for package in needed(asked).values():
        for name in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            link = packages / name
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(name))))
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    (site / "packages.pth").write_text(f"{packages}\n")
    return python


def cut_off() -> list[str]:
    """What runs a command without a network, where that is allowed."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if (
            shutil.which("unshare")
            and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
        ):
            return words
    return []


@pytest.mark.slow
def test_a_fresh_environment_segments_a_photo_offline(light, tmp_path):
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "HTTP", "HTTPS")}
    photo = ROOT / "src" / "joem" / "web" / "photos" / "cat.jpg"
    words = ["predict", str(photo), "--classes", "kitten, wooden floor", "--out", str(tmp_path / "found"), "--json"]
    done = subprocess.run(
        [*cut_off(), str(light.parent / "joem"), *words],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": os.environ["PATH"], **nowhere},
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if not line.startswith("segmenting ")]  # a slow machine
    assert (done.returncode, told) == (0, [])
    assert "kitten" in done.stdout
    assert (tmp_path / "found" / "cat" / "overlay.png").is_file()


@pytest.mark.slow
def test_a_fresh_environment_has_nothing_that_only_training_needs(light):
    names = [
        "timm",
        "torchvision",
        "transformers",
        "pyarrow",
        "segmentation_models_pytorch",
        "huggingface_hub",
        "scipy",
    ]
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)], bool(u.find_spec('torch')))"
    told = subprocess.run([str(light), "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[] True\n"
    done = subprocess.run(
        [str(light.parent / "joem"), "train", "scenes"], capture_output=True, text=True, check=False, cwd=light.parent
    )
    assert done.returncode == 1
    assert done.stderr.endswith('not installed: run pip install "joem[train]".\n')


def test_all_places_agree_on_the_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == joem.__version__
    assert f"\nversion: {joem.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {joem.__version__}" in (ROOT / "CHANGELOG.md").read_text()
