"""What model.json, and the metadata of an exported file, say of a model: one schema, checked before anything is built.

Nothing here imports torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field, model_validator

from joem.errors import JoemError
from joem.settings import Count, Positive, Size, complaints, shown

FORMAT = 2
"""The form that is written, and the only one that is read."""

ADVICE = "Take a whole copy of the model, or train it again."
"""What to do about a damaged model."""

Finite = Annotated[float, Field(allow_inf_nan=False)]

# What a source of vectors is found again by, one of these; see `semantics.interface.Source.origin`.
_ORIGINS = (("file", "sha256"), ("package", "version"), ("vectors",), ("seed",))


class _Described(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class _Vocabulary(_Described):
    names: list[str] = Field(min_length=1)
    unseen: list[str]
    background: str | None
    taught: list[str] = []


class _Part(_Described):
    kind: str
    dimension: Count
    scale: Positive | None
    centre: list[Finite] | None
    file: str | None = None
    sha256: str | None = None
    package: str | None = None
    version: str | None = None
    vectors: dict[str, list[Finite]] | None = None
    seed: int | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not any(all(getattr(self, name) is not None for name in origin) for origin in _ORIGINS):
            raise ValueError("it does not say where the vectors come from")
        rows = [*(self.vectors or {}).values(), *([] if self.centre is None else [self.centre])]
        if any(len(row) != self.dimension for row in rows):
            raise ValueError(f"expected vectors of {self.dimension} numbers")
        return self


class _Semantics(_Described):
    spec: str
    normalise: Literal["max", "l2", "none"]
    prompt: str
    oov: Literal["error", "zero", "skip"]
    centre: bool
    renaming: dict[str, str]
    descriptions: Literal["name", "description", "both"] = "both"
    parts: list[_Part] = Field(min_length=1)


class _Normalisation(_Described):
    mean: tuple[Finite, Finite, Finite]
    std: tuple[Positive, Positive, Positive]


class _Teaching(_Described):
    how: str
    who: str
    saw: str
    words: list[str]


class _Model(_Described):
    recipe: dict[str, Any]
    teaching: list[_Teaching] = []
    vocabulary: _Vocabulary
    added: Size = 0
    semantics: _Semantics
    normalisation: _Normalisation

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.added >= len(self.vocabulary.names):
            raise ValueError(f"{self.added} classes were added, but there are {len(self.vocabulary.names)} in all")
        return self


class _Rule(_Described):
    name: str
    parameter: str | None
    neutral: Finite


class _Exported(_Model):
    vectors: list[list[Finite]]
    stride: Count
    unit: Count | None = None
    rules: list[_Rule] = Field(min_length=1)


def check_description(found: Any, path: Path, exported: bool = False) -> dict[str, Any]:
    """What was read of a model, if it is what this version writes; all that is wrong with it is told in one message.

    Args:
        found: what JSON gave.
        path: the file it is from, for messages.
        exported: whether it is the metadata of an exported file, which say more.
    """
    if not isinstance(found, Mapping):
        raise JoemError(f"{path} is damaged: it holds {shown(found)} instead of the description of a model. {ADVICE}")
    if found.get("format") != FORMAT:
        raise JoemError(
            f"{path} has format {shown(found.get('format'))}, this version reads {FORMAT}: it was written by joem "
            f"{shown(found.get('joem'))}, install that version."
        )
    try:
        (_Exported if exported else _Model).model_validate(found)
    except pydantic.ValidationError as error:
        told = " ".join(line.removeprefix("model.") for line in complaints(error, "model"))
        raise JoemError(f"{path} is damaged: {told} {ADVICE}") from None
    return dict(found)
