"""The sentence encoder that joem ships, against transformers and tokenizers where they are installed."""

import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from joem import semantics
from joem.semantics import sentence_encoders
from joem.semantics.bert import Bert, WordPieces

TEXTS = [
    "cow",
    "a photo of a espresso machine",
    "a striped animal with long legs, native to the Congo's forests",
    "naïve café, Übergröße 日本語 [MASK] x",
    "",
    "supercalifragilisticexpialidocious " * 40,
    "word " * 700,
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """transformers' tokenizer and model, on the same files."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("minilm")
    for file in sentence_encoders._MINILM.iterdir():
        shutil.copy(file, folder)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    config = transformers.BertConfig(**sizes)
    model = transformers.BertModel.from_pretrained(folder, config=config).float().eval()
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True)
    return tokenizer, model


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_vectors_are_those_of_transformers(theirs, text):
    tokenizer, model = theirs
    with torch.inference_mode():
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        states = model(**inputs).last_hidden_state[0]
    expected = torch.nn.functional.normalize(states.mean(dim=0), dim=0)
    found = torch.from_numpy(sentence_encoders.MiniLM("{}").encode(text))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


RANGES = (range(0x20, 0x500), range(0x2000, 0x2070), range(0x3041, 0x3100), range(0x4E00, 0x4E20))
LETTERS = st.sampled_from([chr(code) for codes in RANGES for code in codes])
AWKWARD = st.sampled_from("abcÉ[]MASKUN-_ ,'İ\u0301\u00adﬁΣς")


@pytest.fixture(scope="module")
def pieces():
    return WordPieces(sentence_encoders._MINILM / "vocab.txt")


@pytest.fixture(scope="module")
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    file = str(sentence_encoders._MINILM / "vocab.txt")
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece.from_file(file, unk_token="[UNK]"))
    words.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    words.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    words.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    words.enable_truncation(512)
    return words


@settings(max_examples=300, deadline=None)
@given(text=st.text(LETTERS, max_size=30) | st.text(AWKWARD, max_size=30))
def test_word_pieces_are_those_of_tokenizers(pieces, tokenizer, text):
    assert pieces.numbers(text, 512) == tokenizer.encode(text).ids


def test_long_words_are_unknown_and_long_texts_are_cut(pieces):
    assert pieces.numbers("x" * 101, 512) == [101, 100, 102]
    assert 100 not in pieces.numbers("x" * 100, 512)
    assert len(pieces.numbers("a " * 600, 512)) == 512
    assert pieces.numbers("a " * 600, 512)[-1] == 102


def test_attention_by_its_definition():
    """One layer against loops over heads and positions."""
    generator = torch.Generator().manual_seed(0)
    width, heads, length = 8, 2, 5

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    names = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    table = {f"l.{n}.weight": draw(width, width) for n in names} | {f"l.{n}.bias": draw(width) for n in names}
    for name, shape in (("intermediate.dense", (12, width)), ("output.dense", (width, 12))):
        table |= {f"l.{name}.weight": draw(*shape), f"l.{name}.bias": draw(shape[0])}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        table |= {f"l.{name}.weight": draw(width), f"l.{name}.bias": draw(width)}
    states = draw(length, width)

    def linear(name, x):
        return x @ table[f"l.{name}.weight"].T + table[f"l.{name}.bias"]

    def normal(name, x):
        spread = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-12).sqrt()
        return spread * table[f"l.{name}.weight"] + table[f"l.{name}.bias"]

    query, key, value = (linear(f"attention.self.{each}", states) for each in ("query", "key", "value"))
    seen, part = torch.zeros(length, width, dtype=torch.float64), width // heads
    for head in range(heads):
        of = slice(head * part, (head + 1) * part)
        for here in range(length):
            scores = torch.stack([query[here, of] @ key[there, of] / part**0.5 for there in range(length)])
            seen[here, of] = sum(w * value[there, of] for there, w in enumerate(torch.softmax(scores, 0)))
    attended = normal("attention.output.LayerNorm", linear("attention.output.dense", seen) + states)
    hidden = linear("intermediate.dense", attended)
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    expected = normal("output.LayerNorm", linear("output.dense", hidden) + attended)
    torch.testing.assert_close(Bert(table, heads=heads)._layer("l", states), expected)


def test_minilm_knows_what_is_alike():
    space = semantics.load("minilm", normalise="none")
    assert space.dimension == 384
    torch.testing.assert_close(space.vectors(["cow", "a red car"]).norm(dim=1), torch.ones(2))
    near = space.vectors(["cow"]) @ space.vectors(["bull", "airport", "kitchen"]).T
    assert near.argmax() == 0
