"""Files of word vectors: text, word2vec's binary format and fastText's own models.

Every reader keeps only the words it is asked for, so a file of three million words costs one pass over the
disk and no memory.
"""

import gzip
import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from joem.checksums import sha256
from joem.errors import BadUsage, JoemError
from joem.semantics.class_names import NamedWords
from joem.semantics.interface import Request, Source, Vector, WordVectors, mean

_FASTTEXT_MAGIC = struct.pack("<i", 793712314)
_FASTTEXT_VERSION = 12
_CHUNK = 1 << 20  # bytes that are read at once; no line of text and no word is longer
_LARGEST = 50_000  # numbers of a vector


class FileVectors(WordVectors):
    """Word vectors in a file, known again by its SHA-256."""

    path: Path

    def origin(self) -> dict[str, Any]:
        """Name and SHA-256 of the file; hashing gigabytes takes seconds, so it happens only when this is called."""
        return {"file": self.path.name, "sha256": sha256(self.path)}


class TextVectors(FileVectors):
    """Lines of `word v1 ... vD`, with or without a first line `count D`, plain or gzipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _open(path) as stream:
            first = stream.readline(_CHUNK).split()
        self._header = _is_header(first)
        self.dimension = _checked_dimension(path, int(first[1]) if self._header else len(first) - 1)

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """One pass over the file."""
        encoded = {word.encode() for word in wanted}
        # Cutting a line into D fields is slow, so it is done only where the line starts like a wanted word.
        starts = {word.split(None, 1)[0] for word in encoded}
        found: dict[str, Vector] = {}
        for number, line in self._lines():
            if line.split(None, 1)[0] in starts:
                fields = line.rsplit(None, self.dimension)
                if fields[0] in encoded:
                    found.setdefault(fields[0].decode(), self._numbers(fields[1:], number))
        return found

    def words(self) -> Iterator[str]:
        """One pass over the file."""
        for _, line in self._lines():
            yield line.split(None, 1)[0].decode(errors="replace")

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with _open(self.path) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(_CHUNK), b""), start=1):
                if len(line) == _CHUNK:
                    raise JoemError(f"{self.path}, line {number}: more than {_CHUNK:,} bytes, which is no word vector.")
                if line.strip() and not (number == 1 and self._header):
                    yield number, line

    def _numbers(self, fields: list[bytes], line: int) -> Vector:
        try:
            vector = np.array([float(field) for field in fields], dtype=np.float32)
        except ValueError as error:
            raise JoemError(f"{self.path}, line {line}: {error}; expected {self.dimension} numbers.") from None
        if len(vector) != self.dimension:
            raise JoemError(f"{self.path}, line {line}: {len(vector)} numbers, expected {self.dimension}.")
        return _finite(vector, f"{self.path}, line {line}")


class BinaryVectors(FileVectors):
    """word2vec's binary format: a line `count D`, then each word, a space and D little-endian floats."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _open(path) as stream:
            header = stream.readline(100).split()
        if not _is_header(header):
            raise JoemError(f"{path} is no word2vec binary file: its first line must be the word count and the size.")
        self._count, self.dimension = int(header[0]), _checked_dimension(path, int(header[1]))

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """One pass over the file."""
        encoded = {word.encode() for word in wanted}
        found: dict[str, Vector] = {}
        for index, (word, numbers) in enumerate(self._entries(), start=1):
            if word in encoded:
                vector = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
                found.setdefault(word.decode(), _finite(vector, f"{self.path}, word {index} ({word.decode()!r})"))
        return found

    def words(self) -> Iterator[str]:
        """One pass over the file."""
        for word, _ in self._entries():
            yield word.decode(errors="replace")

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        size = 4 * self.dimension
        with _open(self.path) as stream:
            stream.readline()
            buffer, start = b"", 0
            for index in range(self._count):
                while (space := buffer.find(b" ", start)) < 0 or len(buffer) < space + 1 + size:
                    more = stream.read(_CHUNK)
                    if space < 0 and len(buffer) - start > _CHUNK:
                        raise JoemError(
                            f"{self.path}, word {index + 1}: longer than {_CHUNK:,} bytes, which is no word."
                        )
                    if not more:
                        raise JoemError(f"{self.path} ends after {index} of its {self._count} words: copy it again.")
                    buffer, start = buffer[start:] + more, 0
                # Some writers end each entry with a new line, others do not.
                yield buffer[start:space].lstrip(b"\n"), buffer[space + 1 : space + 1 + size]
                start = space + 1 + size


class FastTextModel(FileVectors):
    """fastText's own `.bin` model, which also makes vectors for words it does not hold, from their n-grams.

    The layout (all little-endian): magic and version; twelve 32-bit settings and a double; the dictionary
    (its sizes, then each word ended by a zero byte, a 64-bit count and a type byte); a byte that says whether
    the matrix is quantised; the input matrix (64-bit rows and columns, 32-bit floats), first one row per
    word, then one per bucket of n-grams. A word's vector is the mean of its own row and its n-grams' rows.
    """

    _SETTINGS = struct.Struct("<12id")
    _SIZES = struct.Struct("<iiiqq")
    _AFTER_WORD = struct.Struct("<qb")

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._read_layout()
        except (struct.error, IndexError, ValueError, OverflowError):  # what reading past the end of the file raises
            raise JoemError(f"{path} is not a whole fastText model, it ends too early: copy it again.") from None

    def _read_layout(self) -> None:
        (version,) = struct.unpack_from("<i", self._bytes, 4)
        if version != _FASTTEXT_VERSION:
            raise JoemError(
                f"{self.path} is a fastText model of version {version}, expected {_FASTTEXT_VERSION}: "
                "give the .vec text file of the same vectors."
            )
        settings = self._SETTINGS.unpack_from(self._bytes, 8)
        self.dimension = settings[0]
        self._buckets, self._shortest, self._longest = settings[8:11]
        sizes = 8 + self._SETTINGS.size
        entries, self._word_count, _, _, pruned = self._SIZES.unpack_from(self._bytes, sizes)
        end = self._dictionary = sizes + self._SIZES.size
        for _, end in self._scan(entries):  # noqa: B007  (only where the last one ends is wanted)
            pass
        if pruned > 0 or self._bytes[end]:
            raise JoemError(
                f"{self.path} is a quantised fastText model: give the full .bin model or its .vec text file."
            )
        rows, columns = struct.unpack_from("<qq", self._bytes, end + 1)
        self._check_sizes(entries, rows, columns)
        self._matrix = np.frombuffer(self._bytes, "<f4", rows * columns, end + 17).reshape(rows, columns)

    def _check_sizes(self, entries: int, rows: int, columns: int) -> None:
        """Refuse numbers of words, n-grams, rows and columns that do not fit together."""
        _checked_dimension(self.path, self.dimension)
        fits = 0 <= self._word_count <= entries and self._buckets >= 0 and columns == self.dimension
        if not fits or rows < self._word_count + (self._buckets if self._longest > 0 else 0):
            raise JoemError(
                f"{self.path} is damaged: a matrix of {rows} x {columns} for {self._word_count} of {entries} words and "
                f"{self._buckets} n-grams of {self.dimension} numbers. Copy it again."
            )

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """One pass over the dictionary."""
        encoded = {word.encode() for word in wanted}
        return {
            word.decode(): self._mean([row, *self._ngram_rows(word)], word.decode())
            for row, (word, _) in enumerate(self._scan(self._word_count))
            if word in encoded
        }

    def words(self) -> Iterator[str]:
        """One pass over the dictionary."""
        for word, _ in self._scan(self._word_count):
            yield word.decode(errors="replace")

    def compose(self, word: str) -> Vector | None:
        """The mean of the rows of the word's n-grams."""
        rows = self._ngram_rows(word.encode())
        return self._mean(rows, word) if rows else None

    def _scan(self, count: int) -> Iterator[tuple[bytes, int]]:
        """The first `count` entries of the dictionary, and where each ends."""
        position = self._dictionary
        for _ in range(count):
            end = self._bytes.find(b"\0", position)
            if end < 0:
                raise ValueError("the dictionary is cut")
            word = self._bytes[position:end]
            position = end + 1 + self._AFTER_WORD.size
            yield word, position

    def _ngram_rows(self, word: bytes) -> list[int]:
        """Rows of the n-grams of `<word>`; they are counted in characters and hashed as UTF-8."""
        if not self._buckets:
            return []
        text = f"<{word.decode()}>"
        return [
            self._word_count + _fasttext_hash(text[start : start + length].encode()) % self._buckets
            for start in range(len(text))
            for length in range(max(self._shortest, 1), min(self._longest, len(text)) + 1)
            if start + length <= len(text)
            # A bare "<" or ">" says nothing about the word; fastText leaves them out.
            if not (length == 1 and start in (0, len(text) - 1))
        ]

    def _mean(self, rows: list[int], word: str) -> Vector:
        return _finite(mean(list(self._matrix[rows])), f"{self.path}, the rows of {word!r}")


def _fasttext_hash(data: bytes) -> int:
    """FNV-1a on 32 bits, with each byte taken as signed before the exclusive or, as fastText does.

    >>> _fasttext_hash(b"a")
    3826002220
    """
    value = 2166136261
    for byte in data:
        value ^= byte if byte < 128 else byte | 0xFFFFFF00
        value = value * 16777619 & 0xFFFFFFFF
    return value


def open_file(request: Request) -> Source:
    """The source that a spec such as word2vec:FILE names."""
    if not request.file:
        raise BadUsage(f"{request.kind!r} needs a file of word vectors: write '{request.kind}:FILE'.")
    path = Path(request.file).expanduser()
    return NamedWords(open_vectors(path), f"{request.kind} ({path})", request.oov)


def open_vectors(path: Path) -> FileVectors:
    """The reader for a file, chosen by its first bytes and its ending (.bin is binary, all else is text)."""
    if not path.is_file():
        raise BadUsage(
            f"There is no file of word vectors at {path}: give the path of a .vec, .txt or .bin file, with a recipe "
            "as --semantics.vectors word2vec:FILE."
        )
    with _open(path) as stream:
        start = stream.read(4)
    if start == _FASTTEXT_MAGIC:
        if _is_gzip(path):
            raise JoemError(
                f"{path} is a gzipped fastText model, which cannot be read in place: unpack it with gunzip."
            )
        return FastTextModel(path)
    binary = path.name.removesuffix(".gz").endswith(".bin")
    return BinaryVectors(path) if binary else TextVectors(path)


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if _is_gzip(path) else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise JoemError(f"{path} is not a whole gzip file ({error}): copy it again.") from None


def _is_header(fields: list[bytes]) -> bool:
    return len(fields) == 2 and all(field.isdigit() and len(field) < 20 for field in fields)


def _checked_dimension(path: Path, dimension: int) -> int:
    if not 1 <= dimension <= _LARGEST:
        raise JoemError(
            f"{path} holds no word vectors: expected words of 1 to {_LARGEST:,} numbers each, got {dimension:,}."
        )
    return dimension


def _finite(vector: Vector, where: str) -> Vector:
    if not np.isfinite(vector).all():
        raise JoemError(f"{where}: the vector holds NaN or infinite numbers. Take another copy of the file.")
    return vector
