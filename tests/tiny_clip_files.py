"""A small CLIP of open_clip and a small sentence encoder, with random weights, as models and as folders."""

import json

from safetensors.torch import save_file

CONFIG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 64, "layers": 3, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}


def tiny_clip(open_clip):
    return open_clip.CLIP(**CONFIG)


def write_folder(model, folder):
    """A folder as open_clip publishes models."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": {}}))
    tensors = {name: each.contiguous().clone() for name, each in model.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    return folder


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "photo", "of", "cow", "bus", "red"]


def write_sentence_folder(transformers, folder, pooling="mean"):
    """A folder as sentence-transformers publishes models, of `WORDS`; gives the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertModel(config).eval()
    save_file({name: each.clone() for name, each in model.state_dict().items()}, folder / "model.safetensors")
    config.save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    key = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({key[pooling]: True}))
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))
    return model
