"""A BERT encoder of sentences, from its weights and its vocabulary alone: text to word pieces, word pieces to a vector.

The forward pass is that of transformers' `BertModel` operation by operation, so that vectors are the same; a test
compares them. Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*, 2019.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

_LONGEST_WORD = 100  # characters; longer words are unknown
_SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPieces:
    """The tokenizer of BERT without case: words, then their longest known pieces.

    Args:
        vocabulary: file with one piece a line; those that go on a word begin with ##.
    """

    def __init__(self, vocabulary: Path) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(pieces) if piece}

    def numbers(self, text: str, most: int) -> list[int]:
        """The numbers of a text's pieces between [CLS] and [SEP], at most so many in all."""
        found = [self._numbers[piece] for piece in self._pieces(text)]
        return [self._numbers["[CLS]"], *found[: most - 2], self._numbers["[SEP]"]]

    def _pieces(self, text: str) -> Iterator[str]:
        for part in _SPECIAL.split(text):
            if _SPECIAL.fullmatch(part):
                yield part
                continue
            for word in _words(part):
                yield from self._split(word)

    def _split(self, word: str) -> list[str]:
        """The longest known beginning of a word, then of what is left; unknown where nothing fits."""
        found: list[str] = []
        start = 0
        while start < len(word) <= _LONGEST_WORD:
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._numbers), None)
            if end is None:
                return ["[UNK]"]
            found.append(mark + word[start:end])
            start = end
        return found or ["[UNK]"]


def _words(text: str) -> list[str]:
    """The words of a text in lower case and without accents; punctuation and ideographs stand alone.

    >>> _words("Café-au-lait, 東京!")
    ['cafe', '-', 'au', '-', 'lait', ',', '東', '京', '!']
    """
    kept = "".join(_cleaned(each) for each in text)
    apart = "".join(f" {each} " if _is_ideograph(each) else each for each in kept)
    bare = "".join(each for each in unicodedata.normalize("NFD", apart) if unicodedata.category(each) != "Mn")
    # Letter by letter: of a whole word, Python lower-cases a last sigma otherwise.
    lower = "".join(each.lower() for each in bare)
    return "".join(f" {each} " if _is_punctuation(each) else each for each in lower).split()


def _cleaned(character: str) -> str:
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    if character == "\ufffd" or unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"}:
        return ""
    return character


def _is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


@dataclass(frozen=True)
class Bert:
    """The encoder of a BERT model.

    Attributes:
        tensors: its weights, named as transformers names them.
        heads: attention heads of a layer.
        epsilon: what layer normalisation adds to the variance.
    """

    tensors: Mapping[str, Tensor]
    heads: int = 12
    epsilon: float = 1e-12

    @cached_property
    def layers(self) -> int:
        """How many layers there are."""
        return 1 + max(int(name.split(".")[2]) for name in self.tensors if name.startswith("encoder.layer."))

    @property
    def longest(self) -> int:
        """How many word pieces it reads at most."""
        return len(self.tensors["embeddings.position_embeddings.weight"])

    @torch.inference_mode()
    def states(self, numbers: list[int]) -> Tensor:
        """What the last layer says of every word piece of a text, (T, D)."""
        table = self.tensors
        words = table["embeddings.word_embeddings.weight"][numbers]
        places = table["embeddings.position_embeddings.weight"][: len(numbers)]
        states = words + table["embeddings.token_type_embeddings.weight"][0] + places
        states = self._normalised("embeddings.LayerNorm", states)
        for layer in range(self.layers):
            states = self._layer(f"encoder.layer.{layer}", states)
        return states

    def _layer(self, name: str, states: Tensor) -> Tensor:
        query, key, value = (
            self._linear(f"{name}.attention.self.{each}", states)
            .view(len(states), self.heads, -1)
            .transpose(0, 1)[None]
            for each in ("query", "key", "value")
        )
        seen = F.scaled_dot_product_attention(query, key, value)[0].transpose(0, 1).flatten(1)
        attended = self._linear(f"{name}.attention.output.dense", seen)
        states = self._normalised(f"{name}.attention.output.LayerNorm", attended + states)
        hidden = F.gelu(self._linear(f"{name}.intermediate.dense", states))
        return self._normalised(f"{name}.output.LayerNorm", self._linear(f"{name}.output.dense", hidden) + states)

    def _linear(self, name: str, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def _normalised(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return F.layer_norm(inputs, (inputs.shape[-1],), weight, bias, self.epsilon)
