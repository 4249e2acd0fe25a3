"""Text towers of vision-language models (open_clip, transformers), and folders of sentence encoders (transformers).

The vectors of a text tower live in the space of the vision tower it was trained with, see `--model.dense`.
"""

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from joem import extras
from joem.checksums import sha256
from joem.errors import BadUsage, JoemError
from joem.semantics.class_names import REMEMBERED
from joem.semantics.interface import Request, Vector
from joem.semantics.sentence_encoders import PhraseEncoder

BATCH = 64
"""How many texts are encoded together."""

_CLIP_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_SENTENCE_FILES = ("model.safetensors", "pytorch_model.bin")


class TextEncoder(PhraseEncoder):
    """An encoder that is named by what follows the colon, and encodes texts in batches.

    Args:
        prompt: see `PhraseEncoder`.
        name: which encoder: a name, or a folder.
    """

    def __init__(self, prompt: str, name: str) -> None:
        super().__init__(prompt)
        self.name = name
        self._known = _known(type(self).__name__, name)

    @classmethod
    def open(cls, request: Request) -> "TextEncoder":
        """The encoder that a spec names."""
        if not request.file:
            raise BadUsage(f"{request.kind!r} needs a name: {request.kind}:NAME or {request.kind}:FOLDER.")
        path = Path(request.file).expanduser()
        # A model that finds its vectors again has looked for the file of the weights.
        name = path.parent if path.is_file() else path if path.is_dir() else request.file
        return cls(request.prompt, str(name))

    def with_prompt(self, prompt: str) -> "TextEncoder":
        """The same encoder with another sentence around names."""
        return type(self)(prompt, self.name)

    def rows(self, names: Sequence[str]) -> Vector:
        """Vectors of the names, (K, D)."""
        self._read_ahead([prompted for name in names for prompted in self.sentences(name)])
        return super().rows(names)

    def descriptions(self, texts: Sequence[str]) -> Vector:
        """Vectors of whole sentences, (K, D), without a prompt."""
        self._read_ahead(texts)
        return super().descriptions(texts)

    def _read_ahead(self, texts: Sequence[str]) -> None:
        """Encode in batches what was not encoded before."""
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if len(new) > 1 and len(new) < REMEMBERED:
            self._known.update(zip(new, self.encode_batch(new), strict=True))

    def encode(self, text: str) -> Vector:
        """The vector of one text, (D,)."""
        vector: Vector = self.encode_batch([text])[0]
        return vector

    def encode_batch(self, texts: Sequence[str]) -> Vector:
        """Vectors of texts, (N, D)."""
        raise NotImplementedError


@cache
def _known(kind: str, name: str) -> dict[str, Vector]:
    """What an encoder of a kind and name has encoded; another tower gives other vectors."""
    return {}


class ClipText(TextEncoder):
    """The text tower of a model of open_clip, `clip:NAME@PRETRAINED`, downloaded, or of a folder, `clip:FOLDER`.

    Vectors have unit length. A folder holds open_clip_config.json and open_clip_model.safetensors, as the hub has them,
    or a CLIP of transformers: config.json, model.safetensors and the files of the tokenizer.
    """

    def __init__(self, prompt: str, name: str) -> None:
        super().__init__(prompt, name)
        extras.require("clip", f"The text tower clip:{name}")
        self.dimension = _clip_dimension(name)

    def origin(self) -> dict[str, Any]:
        """The file of the weights in a folder, or the name and open_clip's version."""
        if Path(self.name).is_dir():
            file = _weights(Path(self.name), _SENTENCE_FILES if _is_of_transformers(self.name) else _CLIP_FILES)
            return {"file": file.name, "sha256": sha256(file)}
        return {"package": f"open_clip_torch:{self.name}", "version": "1"}

    @torch.no_grad()
    def encode_batch(self, texts: Sequence[str]) -> Vector:
        """Vectors of texts of unit length, (N, D)."""
        model, tokens = (_clip_of_transformers if _is_of_transformers(self.name) else _clip)(self.name)
        rows = [
            model.encode_text(tokens(list(texts[start : start + BATCH])), normalize=True)
            for start in range(0, len(texts), BATCH)
        ]
        found: Vector = torch.cat(rows).float().numpy()
        return found


class SentenceFolder(TextEncoder):
    """A folder of a sentence-transformers model: `sentence:FOLDER`, run by transformers.

    Pooling and normalisation are those that the folder asks for (1_Pooling, modules.json); the mean over word pieces
    where it asks for none.
    """

    def __init__(self, prompt: str, name: str) -> None:
        super().__init__(prompt, name)
        folder = Path(name)
        if not (folder / "config.json").is_file():
            raise BadUsage(
                f"sentence:{name} must be the folder of a sentence-transformers model, with its config.json."
            )
        extras.require("clip", f"The sentence encoder sentence:{name}", "transformers")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.dimension = int(config.get("hidden_size") or config.get("dim") or config.get("d_model"))

    def origin(self) -> dict[str, Any]:
        """The file of the weights."""
        file = _weights(Path(self.name), _SENTENCE_FILES)
        return {"file": file.name, "sha256": sha256(file)}

    @torch.no_grad()
    def encode_batch(self, texts: Sequence[str]) -> Vector:
        """Vectors of texts, (N, D)."""
        model, tokenizer, pooling, unit, longest = _sentence(self.name)
        rows = []
        for start in range(0, len(texts), BATCH):
            read = tokenizer(
                list(texts[start : start + BATCH]),
                padding=True,
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            )
            states = model(**read).last_hidden_state
            mask = read["attention_mask"][:, :, None].to(states.dtype)
            if pooling == "cls":
                pooled = states[:, 0]
            elif pooling == "max":
                pooled = states.masked_fill(mask == 0, -torch.inf).amax(dim=1)
            else:
                pooled = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
            rows.append(F.normalize(pooled, dim=1) if unit else pooled)
        found: Vector = torch.cat(rows).float().numpy()
        return found


def belongs(name: str, backbone: str, weights: str) -> str | None:
    """Why a text tower `clip:NAME` does not belong to a vision tower; None where it does, or where nobody can tell.

    Hub names are compared: open_clip says which of timm's files a name is. Of folders and files it is for the user to
    know that they are of one model.
    """
    if Path(name).is_dir() or weights != "imagenet":
        return None
    import open_clip
    import timm

    arch, _, tag = name.partition("@")
    text = str(open_clip.get_pretrained_cfg(arch, tag).get("hf_hub", "")).strip("/")
    cfg = timm.models.get_pretrained_cfg(backbone.removeprefix("tu-"))
    vision = str(cfg.hf_hub_id or "") if cfg else ""
    if not text.startswith("timm/") or not vision or text == vision:
        return None
    return f"the text tower {name} goes with the backbone tu-{text.removeprefix('timm/')}, not with {backbone}"


def _weights(folder: Path, names: Sequence[str]) -> Path:
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise BadUsage(f"{folder} holds no weights: expected one of {', '.join(names)}.")
    return found[0]


def _is_of_transformers(name: str) -> bool:
    """Whether a name is a folder of a CLIP that transformers wrote."""
    folder = Path(name)
    return not (folder / "open_clip_config.json").is_file() and "projection_dim" in _read(folder / "config.json")


def _clip_config(name: str) -> dict[str, Any]:
    if _is_of_transformers(name):
        return {"embed_dim": _read(Path(name) / "config.json")["projection_dim"]}
    import open_clip

    if Path(name).is_dir():
        file = Path(name) / "open_clip_config.json"
        if not file.is_file():
            raise BadUsage(
                f"clip:{name} must be a folder with open_clip_config.json, as open_clip writes it, or with the "
                "config.json of a CLIP of transformers."
            )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["model_cfg"]
        return found
    arch = name.partition("@")[0]
    config = open_clip.get_model_config(arch)
    if config is None:
        known = ", ".join(each for each in open_clip.list_models() if each.lower().startswith(arch[:5].lower()))
        raise BadUsage(
            f"open_clip has no model {arch!r}; near it are: {known or 'none'}. Or give a folder: clip:FOLDER."
        )
    return dict(config)


def _clip_dimension(name: str) -> int:
    return int(_clip_config(name)["embed_dim"])


@cache
def _clip(name: str) -> tuple[Any, Any]:
    """The model and its tokenizer, loaded once."""
    import open_clip

    _clip_config(name)  # whether there is such a model
    if Path(name).is_dir():
        tower = f"local-dir:{Path(name).resolve()}"
        return _loaded(open_clip.create_model, tower).eval(), open_clip.get_tokenizer(tower)
    arch, _, tag = name.partition("@")
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if tag not in tags:
        raise BadUsage(f"Say which weights of {arch}: clip:{arch}@PRETRAINED, one of {', '.join(tags)}.")
    return _loaded(open_clip.create_model, arch, pretrained=tag).eval(), open_clip.get_tokenizer(arch)


class _TextOfTransformers(NamedTuple):
    """A text tower of transformers that is called as one of open_clip."""

    model: Any

    def encode_text(self, tokens: Any, normalize: bool) -> torch.Tensor:
        found: torch.Tensor = self.model(**tokens).text_embeds
        return F.normalize(found, dim=1) if normalize else found


@cache
def _clip_of_transformers(name: str) -> tuple[Any, Any]:
    """The model and its tokenizer, loaded once."""
    from transformers import AutoTokenizer, CLIPTextModelWithProjection

    tokenizer = _loaded(AutoTokenizer.from_pretrained, name, local_files_only=True)
    model = _loaded(CLIPTextModelWithProjection.from_pretrained, name, local_files_only=True).eval()
    options = {"padding": True, "truncation": True, "max_length": model.config.max_position_embeddings}
    return _TextOfTransformers(model), partial(tokenizer, **options, return_tensors="pt")


def _loaded(make: Any, *args: Any, **options: Any) -> Any:
    try:
        return make(*args, **options)
    except (OSError, RuntimeError) as error:
        raise JoemError(f"The text tower {args[0]} could not be loaded: {error}") from error


@cache
def _sentence(name: str) -> tuple[Any, Any, str, bool, int]:
    """The model, its tokenizer, how it pools, whether vectors have unit length, and how many word pieces it reads."""
    from transformers import AutoModel, AutoTokenizer

    folder = Path(name).expanduser()
    tokenizer = _loaded(AutoTokenizer.from_pretrained, str(folder), local_files_only=True)
    model = _loaded(AutoModel.from_pretrained, str(folder), local_files_only=True).eval()
    pooling = _read(folder / "1_Pooling" / "config.json")
    kind = (
        "cls" if pooling.get("pooling_mode_cls_token") else "max" if pooling.get("pooling_mode_max_tokens") else "mean"
    )
    modules = _read(folder / "modules.json")
    unit = any(str(each.get("type", "")).endswith("Normalize") for each in modules)
    longest = _read(folder / "sentence_bert_config.json").get("max_seq_length") or tokenizer.model_max_length
    positions = getattr(model.config, "max_position_embeddings", 512)
    return model, tokenizer, kind, unit, int(min(longest, positions))


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
