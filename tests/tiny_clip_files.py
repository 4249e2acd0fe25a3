"""A small CLIP of open_clip with random weights, as a model and as a folder."""

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
