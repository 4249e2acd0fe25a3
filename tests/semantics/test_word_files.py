import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_files import ANIMALS, raw, slow_ngram_rows, write_binary, write_fasttext, write_text

from joem import semantics
from joem.errors import BadUsage, JoemError
from joem.semantics.word_files import BinaryVectors, FastTextModel, TextVectors, open_vectors

words = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=6)


@st.composite
def word_vectors(draw):
    dimension = draw(st.integers(2, 5))
    numbers = st.lists(st.floats(-1e3, 1e3, width=32), min_size=dimension, max_size=dimension)
    return draw(st.dictionaries(words, numbers, min_size=1, max_size=6))


@settings(deadline=None, max_examples=40)
@given(vectors=word_vectors(), option=st.booleans(), zipped=st.booleans(), binary=st.booleans())
def test_every_file_format_gives_back_what_was_written(tmp_path_factory, vectors, option, zipped, binary):
    folder = tmp_path_factory.mktemp("vectors")
    if binary:
        path = write_binary(folder / "v.bin", vectors, newline=option)
    else:
        path = write_text(folder / "v.vec", vectors, header=option)
    if zipped:
        packed = path.with_name(path.name + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    reader = open_vectors(path)
    assert type(reader) is (BinaryVectors if binary else TextVectors)
    assert list(reader.words()) == list(vectors)
    found = reader.find({*vectors, "absent word"})
    assert found.keys() == vectors.keys()
    for word, vector in vectors.items():
        assert np.array_equal(found[word], np.array(vector, dtype=np.float32))


@settings(deadline=None, max_examples=40)
@given(
    known=st.lists(words, min_size=1, max_size=5, unique=True),
    absent=words,
    buckets=st.integers(1, 50),
    shortest=st.integers(0, 3),
    extra=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_fasttext_model_against_the_slow_reference(tmp_path_factory, known, absent, buckets, shortest, extra, seed):
    longest = shortest + extra
    matrix = np.random.default_rng(seed).standard_normal((len(known) + buckets, 3)).astype(np.float32)
    path = tmp_path_factory.mktemp("fasttext") / "model.bin"
    model = open_vectors(write_fasttext(path, known, matrix, buckets, shortest, longest, labels=["__label__a"]))
    assert isinstance(model, FastTextModel)
    assert list(model.words()) == known
    found = model.find({*known, "__label__a"})
    assert found.keys() == set(known)
    for index, word in enumerate(known):
        rows = [index, *slow_ngram_rows(word, known, buckets, shortest, longest)]
        np.testing.assert_allclose(found[word], matrix[rows].mean(axis=0), atol=1e-6)
    rows = slow_ngram_rows(absent, known, buckets, shortest, longest)
    composed = model.compose(absent)
    if rows:
        np.testing.assert_allclose(composed, matrix[rows].mean(axis=0), atol=1e-6)
    else:
        assert composed is None


def test_fasttext_model_makes_vectors_for_words_it_does_not_hold(tmp_path):
    matrix = np.random.default_rng(0).standard_normal((1 + 20, 4)).astype(np.float32)
    path = write_fasttext(tmp_path / "model.bin", ["cow"], matrix, 20, 3, 6)
    rows = slow_ngram_rows("cows", ["cow"], 20, 3, 6)
    np.testing.assert_allclose(raw(f"fasttext:{path}", ["cows"])[0], matrix[rows].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_fasttext_model_without_ngrams_knows_only_its_words(tmp_path):
    matrix = np.arange(4, dtype=np.float32).reshape(2, 2)
    path = write_fasttext(tmp_path / "model.bin", ["cow", "dog"], matrix, 0, 0, 0)
    assert raw(f"fasttext:{path}", ["dog"]).tolist() == [[2.0, 3.0]]
    with pytest.raises(BadUsage, match=r"No vector for the word 'dig'.*Near matches: dog"):
        raw(f"fasttext:{path}", ["dig"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 11}, "fastText model of version 11, expected 12: give the .vec text file"),
        ({"quantised": 1}, "is a quantised fastText model: give the full .bin model or its .vec text file"),
        ({"pruned": 3}, "is a quantised fastText model"),
    ],
)
def test_fasttext_models_that_cannot_be_read(tmp_path, change, message):
    path = write_fasttext(tmp_path / "model.bin", ["cow"], np.ones((3, 2)), 2, 3, 6, **change)
    with pytest.raises(JoemError, match=message):
        open_vectors(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (8, struct.pack("<i", 0)),  # the size of a vector
        (8, struct.pack("<i", 3)),
        (8 + 4 * 8, struct.pack("<i", 3)),  # n-grams
        (8 + 4 * 8, struct.pack("<i", -1)),
        (64 + 4, struct.pack("<i", 3)),  # words
        (64 + 4, struct.pack("<i", -1)),
        (-24 - 16, struct.pack("<qq", -1, 1)),  # rows and columns
        (-24 - 16, struct.pack("<qq", 2, 3)),
        (-24 - 16, struct.pack("<qq", 2**62, 2)),
    ],
)
def test_numbers_of_a_fasttext_model_that_do_not_fit_are_told(tmp_path, place, value):
    path = write_fasttext(tmp_path / "model.bin", ["cow"], np.ones((3, 2)), 2, 3, 6)
    content = bytearray(path.read_bytes())
    content[place : place + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(JoemError, match=r"model\.bin (is damaged: a matrix of|holds no word|is not a whole fastText)"):
        open_vectors(path)


def test_a_fasttext_model_of_endless_ngrams_is_read(tmp_path):
    words, rows = ["cow"], np.arange(6.0).reshape(3, 2)
    expected = raw(f"fasttext:{write_fasttext(tmp_path / 'a.bin', words, rows, 2, 3, 5)}", ["cow"])
    found = raw(f"fasttext:{write_fasttext(tmp_path / 'b.bin', words, rows, 2, 3, 2**31 - 1)}", ["cow"])
    assert found.tolist() == expected.tolist()


def test_a_fasttext_model_with_nan_is_told_with_the_word(tmp_path):
    path = write_fasttext(tmp_path / "model.bin", ["cow"], np.full((3, 2), np.nan), 2, 3, 6)
    with pytest.raises(JoemError, match=r"model\.bin, the rows of 'cow': the vector holds NaN"):
        raw(f"fasttext:{path}", ["cow"])


def test_a_cut_fasttext_model_is_told(tmp_path):
    whole = write_fasttext(tmp_path / "model.bin", ["cow", "horse"], np.ones((4, 2)), 2, 3, 6).read_bytes()
    for length in range(4, len(whole)):
        path = tmp_path / f"cut{length}.bin"
        path.write_bytes(whole[:length])
        with pytest.raises(JoemError, match="not a whole fastText model, it ends too early"):
            open_vectors(path)


def test_a_gzipped_fasttext_model_says_to_unpack_it(tmp_path):
    path = write_fasttext(tmp_path / "model.bin", ["cow"], np.ones((3, 2)), 2, 3, 6)
    packed = tmp_path / "model.bin.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(JoemError, match="unpack it with gunzip"):
        open_vectors(packed)


def test_words_with_spaces_and_repeated_words_in_text_files(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("cow 1 2\ndining table 3 4\ncow 5 6\n\ndining\t7\t8\n", encoding="utf-8")
    found = open_vectors(path).find({"cow", "dining table", "dining"})
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "cow": [1, 2],
        "dining table": [3, 4],
        "dining": [7, 8],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("2 3\ncow 1 2 3\ndog 1 x 3\n", r"v\.vec, line 3: could not convert.*'x'; expected 3 numbers"),
        ("cow 1 2 3\ndog 1 2\n", r"v\.vec, line 2: 2 numbers, expected 3"),
        ("", "holds no word vectors"),
        ("hello\n", "holds no word vectors"),
        ("3 0\ncow\ndog\n", "holds no word vectors: expected words of 1 to 50,000 numbers each, got 0"),
        ("3 99999999\ncow 1\n", "holds no word vectors: .* got 99,999,999"),
        ("cow 1 2\ndog 1 nan\n", r"v\.vec, line 2: the vector holds NaN or infinite numbers"),
        ("cow 1 2\ndog 1 1e39\n", r"v\.vec, line 2: the vector holds NaN or infinite numbers"),
        ("cow 1 2\n" + "x" * (1 << 20), r"v\.vec, line 2: more than 1,048,576 bytes"),
    ],
)
def test_text_files_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "v.vec"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(JoemError, match=message):
        raw(f"word2vec:{path}", ["dog"])


def test_binary_files_that_cannot_be_read(tmp_path):
    path = write_binary(tmp_path / "v.bin", ANIMALS)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(JoemError, match="ends after 3 of its 4 words: copy it again"):
        raw(f"word2vec:{path}", ["car"])
    write_binary(path, {**ANIMALS, "car": [0.0, float("nan")]})
    with pytest.raises(JoemError, match=r"v\.bin, word 4 \('car'\): the vector holds NaN or infinite numbers"):
        raw(f"word2vec:{path}", ["car"])
    path.write_bytes(b"4 2\n" + bytes(3 << 20))
    with pytest.raises(JoemError, match=r"v\.bin, word 1: longer than 1,048,576 bytes"):
        raw(f"word2vec:{path}", ["car"])
    for header in (b"4 0\n", b"4 50001\n"):
        path.write_bytes(header + bytes(100))
        with pytest.raises(JoemError, match="holds no word vectors: expected words of 1 to 50,000 numbers"):
            open_vectors(path)
    path.write_bytes(b"9" * 5000 + b" 2\ncow ")
    with pytest.raises(JoemError, match="is no word2vec binary file"):
        open_vectors(path)
    path.write_bytes(b"\x93NUMPY rubbish")
    with pytest.raises(JoemError, match="is no word2vec binary file: its first line must be"):
        open_vectors(path)


@pytest.mark.parametrize("binary", [True, False])
def test_a_cut_gzip_file_is_told(tmp_path, binary):
    plain = write_binary(tmp_path / "v.bin", ANIMALS) if binary else write_text(tmp_path / "v.vec", ANIMALS)
    whole = gzip.compress(plain.read_bytes())
    path = tmp_path / f"{plain.name}.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JoemError, match=rf"{path.name} is not a whole gzip file .*: copy it again"):
        raw(f"word2vec:{path}", ["car"])


@pytest.mark.parametrize("binary", [True, False])
def test_a_big_file_is_never_held_in_memory(tmp_path, binary):
    numbers = np.ones(50, dtype=np.float32)
    vectors = {f"word{i}": numbers for i in range(30_000)}
    path = write_binary(tmp_path / "v.bin", vectors) if binary else write_text(tmp_path / "v.vec", vectors)
    size = path.stat().st_size
    del vectors
    tracemalloc.start()
    raw(f"word2vec:{path}", ["word29999"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 5_000_000
    assert peak < 3_500_000


def test_a_file_is_read_once_per_new_word(tmp_path, monkeypatch):
    scans = []
    find = TextVectors.find
    monkeypatch.setattr(TextVectors, "find", lambda self, wanted: scans.append(wanted) or find(self, wanted))
    space = semantics.load(f"glove:{write_text(tmp_path / 'v.txt', ANIMALS)}", normalise="none")
    space.vectors(["cow", "horse"])
    space.vectors(["horse", "cow"])
    assert len(scans) == 1
    space.vectors(["cow", "sheep"])
    assert scans[1:] == [{"sheep"}]
