"""Text towers against open_clip and transformers themselves."""

import json

import numpy as np
import pytest
import torch

from joem import semantics
from joem.errors import BadUsage, JoemError
from joem.semantics import text_towers
from tiny_clip_files import WORDS, tiny_clip, write_folder, write_sentence_folder

open_clip = pytest.importorskip("open_clip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    return write_folder(tiny_clip(open_clip), tmp_path_factory.mktemp("towers") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return open_clip.create_model(f"local-dir:{folder}").eval()


@torch.no_grad()
def encoded(model, texts):
    return model.encode_text(open_clip.get_tokenizer("ViT-B-16")(texts), normalize=True)


def test_vectors_are_those_of_open_clip(folder, model):
    names = ["cow", "potted plant", "tv monitor"]
    space = semantics.load(f"clip:{folder}", normalise="none", prompt="a photo of a {}.")
    expected = encoded(model, [f"a photo of a {name}." for name in names])
    torch.testing.assert_close(space.vectors(names), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(space.vectors(["cow"]), expected[:1], rtol=0, atol=1e-6)  # whatever stands beside it


def test_an_ensemble_of_prompts_is_the_mean_direction(folder, model):
    prompts = ["a photo of a {}.", "a drawing of the {}.", "{}"]
    found = semantics.load(f"clip:{folder}", normalise="l2", prompt=prompts).vectors(["sheep"])[0]
    mean = encoded(model, [each.replace("{}", "sheep") for each in prompts]).mean(dim=0)
    torch.testing.assert_close(found, mean / mean.norm(), rtol=0, atol=1e-5)
    again = semantics.load(f"clip:{folder}", normalise="l2").with_prompt(prompts)
    torch.testing.assert_close(again.vectors(["sheep"])[0], found)


def test_texts_go_through_the_tower_in_batches(folder, monkeypatch):
    sizes = []
    model, _ = text_towers._clip(str(folder))
    own = model.encode_text
    monkeypatch.setattr(model, "encode_text", lambda each, **options: sizes.append(len(each)) or own(each, **options))
    monkeypatch.setattr(text_towers, "BATCH", 4)
    semantics.load(f"clip:{folder}").fit([f"thing number {index}" for index in range(10)])
    assert sizes == [4, 4, 2]


def test_a_model_finds_its_tower_again_and_says_when_it_is_gone(folder, tmp_path):
    space = semantics.load(f"clip:{folder}", normalise="l2", prompt="a {}")
    saved = json.loads(json.dumps(space.provenance()))
    assert torch.equal(semantics.Semantics.from_provenance(saved).vectors(["cow"]), space.vectors(["cow"]))
    moved = tmp_path / "elsewhere"
    folder_copy = moved / "tower"
    folder_copy.mkdir(parents=True)
    for file in folder.iterdir():
        (folder_copy / file.name).write_bytes(file.read_bytes())
    saved["spec"] = "clip:gone"
    found = semantics.Semantics.from_provenance(saved, [folder_copy])
    assert torch.equal(found.vectors(["cow"]), space.vectors(["cow"]))
    told = r"weights of the text tower open_clip_model.safetensors with SHA-256 .* are needed; .*--vectors PATH"
    with pytest.raises(JoemError, match=told):
        semantics.Semantics.from_provenance(saved)


@pytest.mark.parametrize("whole", [True, False])
def test_vectors_of_a_clip_folder_of_transformers_are_what_it_computes(tmp_path, whole):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    letters = sorted(set("aphotofcowredbus"))  # words are spelt, since there is no pair of letters to merge
    words = ["<|startoftext|>", *letters, *(f"{letter}</w>" for letter in letters), "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": len(words), "max_position_embeddings": 40, "projection_dim": 24}
    text |= {"bos_token_id": 0, "eos_token_id": len(words) - 1, "pad_token_id": len(words) - 1}
    if whole:
        config = transformers.CLIPConfig(text_config=text, vision_config=sizes, projection_dim=24)
        model = transformers.CLIPModel(config).eval()
    else:
        model = transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**text)).eval()
    model.save_pretrained(tmp_path)
    space = semantics.load(f"clip:{tmp_path}", normalise="none", prompt="a photo of a {}")
    assert space.dimension == 24
    found = space.vectors(["cow", "red bus"])
    for row, name in zip(found, ("cow", "red bus"), strict=True):
        spelt = [part for each in f"a photo of a {name}".split() for part in (*each[:-1], f"{each[-1]}</w>")]
        numbers = torch.tensor([[0, *map(words.index, spelt), len(words) - 1]])
        with torch.no_grad():
            if whole:
                pooled = model.text_projection(model.text_model(numbers).pooler_output)[0]
            else:
                pooled = model(numbers).text_embeds[0]
        torch.testing.assert_close(row, pooled / pooled.norm(), rtol=0, atol=1e-5)
    saved = json.loads(json.dumps(space.provenance()))
    assert torch.equal(semantics.Semantics.from_provenance(saved).vectors(["cow"]), space.vectors(["cow"]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("clip", "'clip' needs a name"),
        ("clip:ViT-B-99", "open_clip has no model 'ViT-B-99'; near it are: .*ViT-B-16"),
        ("sentence:nowhere", "must be the folder of a sentence-transformers model"),
    ],
)
def test_bad_names_say_what_to_do(spec, message):
    with pytest.raises(BadUsage, match=message):
        semantics.load(spec)


def test_weights_must_be_named():
    with pytest.raises(BadUsage, match=r"clip:ViT-B-16@PRETRAINED, one of openai"):
        semantics.load("clip:ViT-B-16", normalise="none").vectors(["cow"])


def test_towers_of_two_models_do_not_belong_together():
    told = text_towers.belongs("ViT-B-16@laion2b_s34b_b88k", "tu-vit_base_patch16_clip_224.openai", "imagenet")
    assert told is None or "goes with" in told
    assert text_towers.belongs("ViT-B-16@openai", "tu-vit_base_patch16_clip_224.openai", "imagenet") is None
    assert "goes with the backbone tu-vit_base_patch16_clip_224.openai" in text_towers.belongs(
        "ViT-B-16@openai", "tu-vit_base_patch16_clip_224.laion2b", "imagenet"
    )


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_sentence_transformers_folder_is_what_transformers_computes(tmp_path, pooling):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = write_sentence_folder(transformers, tmp_path, pooling)
    found = semantics.load(f"sentence:{tmp_path}", normalise="none", prompt="a photo of a {}").vectors(
        ["cow", "red bus"]
    )
    for row, text in zip(found, ("a photo of a cow", "a photo of a red bus"), strict=True):
        numbers = [WORDS.index(each) for each in ("[CLS]", *text.split(), "[SEP]")]
        with torch.no_grad():
            states = model(torch.tensor([numbers])).last_hidden_state[0]
        pooled = {"mean": states.mean(0), "cls": states[0], "max": states.amax(0)}[pooling]
        np.testing.assert_allclose(row, pooled / pooled.norm(), atol=1e-5)
