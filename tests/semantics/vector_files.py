"""Small files of word vectors, written straight from the description of each format."""

import hashlib
import struct

from joem import semantics

ANIMALS = {"cow": [3.0, 4.0], "horse": [1.0, 0.0], "sheep": [0.0, 2.0], "car": [-1.0, 1.0]}


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
