import numpy as np
import pytest
import torch
from vector_files import ANIMALS, raw, write_binary, write_text

from joem import semantics
from joem.errors import BadUsage, JoemError


def slow_normalised(vectors, fitted, normalise, centre):
    mean = np.mean(fitted, axis=0) if centre else np.zeros(vectors.shape[1])
    rows = []
    for vector in vectors:
        row = vector - mean
        if normalise == "max":
            row = row / max(np.sqrt(((other - mean) ** 2).sum()) for other in fitted)
        if normalise == "l2":
            row = row / np.sqrt((row**2).sum())
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("normalise", ["max", "l2", "none"])
@pytest.mark.parametrize("centre", [False, True])
def test_each_part_is_normalised_on_its_own_by_the_fitted_names(tmp_path, normalise, centre):
    generator = np.random.default_rng(0)
    names = ["cow", "horse", "sheep", "car", "boat"]
    first, second = generator.standard_normal((5, 3)), 10 * generator.standard_normal((5, 4))
    one = write_text(tmp_path / "one.vec", dict(zip(names, first, strict=True)))
    two = write_binary(tmp_path / "two.bin", dict(zip(names, second, strict=True)))
    space = semantics.load(f"word2vec:{one}+fasttext:{two}", normalise=normalise, centre=centre)
    got = space.fit(names[:3]).vectors(names)
    expected = [slow_normalised(v, v[:3], normalise, centre) for v in (first, second)]
    assert space.dimension == 7
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), np.concatenate(expected, axis=1), atol=1e-5)


def test_fit_freezes_the_scale_and_leaves_the_original_alone(tmp_path):
    loaded = semantics.load(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}")
    fitted = loaded.fit(["horse", "sheep"])
    assert fitted.vectors(["cow"]).tolist() == [[1.5, 2.0]]
    assert fitted.vectors(["cow", "car"])[0].tolist() == [1.5, 2.0]
    assert loaded.parts[0].scale is None
    assert fitted.fit(["cow", "sheep"]).parts[0].scale == 5.0
    with pytest.raises(JoemError, match=r"call fit\(seen_names\) before vectors\(names\)"):
        loaded.vectors(["cow"])
    with pytest.raises(JoemError, match="call fit"):
        raw(f"word2vec:{tmp_path / 'v.vec'}", ["cow"], centre=True)


def test_what_cannot_be_fitted(tmp_path):
    space = semantics.load(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}", oov="zero")
    with pytest.raises(BadUsage, match="fit needs the names of the seen classes, got none"):
        space.fit([])
    with pytest.raises(BadUsage, match="The vectors of bull, ox in word2vec are all zero"):
        space.fit(["bull", "ox"])


def test_no_names_and_zero_vectors(tmp_path):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}"
    assert raw(spec, []).shape == (0, 2)
    assert raw("use", []).shape == (0, 512)
    assert semantics.load(spec, normalise="l2", oov="zero").vectors(["bull"]).tolist() == [[0.0, 0.0]]


# --- wrong requests ---


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("glvoe", {}, "Unknown vector source 'glvoe'. Did you mean 'glove'.*use, minilm, word2vec, fasttext"),
        ("word2vec", {}, "'word2vec' needs a file of word vectors: write 'word2vec:FILE'"),
        ("glove:", {}, "'glove' needs a file of word vectors"),
        ("use:model.bin", {}, "'use' is an installed package and takes no file"),
        ("word2vec:/nowhere/v.vec", {}, "no file of word vectors at /nowhere/v.vec: give the path of"),
        ("glove", {"prompt": "a {}"}, r"The prompt 'a \{\}' is for sentence encoders"),
        ("use", {"prompt": "a photo"}, r"must hold \{\} where the name goes.*got 'a photo'"),
        ("glove", {"normalise": "L2"}, "Unknown normalisation 'L2'.*max, l2, none"),
        ("glove", {"oov": "ignore"}, "Unknown out-of-vocabulary rule 'ignore'.*error, zero, skip"),
    ],
)
def test_wrong_requests_say_what_to_do(spec, options, message):
    with pytest.raises(BadUsage, match=message):
        semantics.load(spec, **options)


def test_one_text_is_not_a_list_of_names():
    space = semantics.table(ANIMALS)
    for method in (space.fit, space.vectors):
        with pytest.raises(BadUsage, match=r"got the single text 'cow': use \['cow'\]"):
            method("cow")


@pytest.mark.parametrize("vectors", [{}, {"cow": [1.0], "car": [1.0, 2.0]}, {"cow": 1.0}])
def test_tables_need_vectors_of_one_length(vectors):
    with pytest.raises(BadUsage, match="one vector per name, all of one length"):
        semantics.table(vectors)
