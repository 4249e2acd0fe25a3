"""The JSON that requests and answers are made of; what concerns rules is built from the registry."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from joem.decision import RULES, Parameter, parameters
from joem.web.limits import MOST_CLASSES, MOST_POINTS

_LARGEST = float(np.finfo(np.float32).max)  # what values are compared with is float32
_LONGEST = 65_535  # pixels of a side, as in a JPEG file


Points = Annotated[
    list[tuple[int, int] | tuple[int, int, bool]], Field(min_length=1, max_length=MOST_POINTS, fail_fast=True)
]
"""[x, y] or [x, y, true] where a class is, [x, y, false] where it is not."""


class ExampleRequest(BaseModel):
    """An example on a picture that was sent: a mask or points."""

    model_config = ConfigDict(extra="forbid")

    scene: str = Field(description="the key of a scene")
    mask: str | None = Field(None, description="a PNG of the same size in base64; anything but 0 is the class")
    points: Points | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "ExampleRequest":
        if (self.mask is None) == (self.points is None):
            raise PydanticCustomError("mask_or_points", "give either a mask or points")
        return self


class NamesRequest(BaseModel):
    """Which classes."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MOST_CLASSES,
        fail_fast=True,
        description="class names, trained or new; those of the model if absent",
    )
    background: bool = Field(True, description="add the model's background class where the names have none")
    points: dict[str, Points] = Field(
        default_factory=dict, max_length=MOST_CLASSES, description="classes by points on this picture"
    )
    examples: dict[str, Annotated[list[ExampleRequest], Field(min_length=1, max_length=MOST_POINTS)]] = Field(
        default_factory=dict, max_length=MOST_CLASSES, description="classes by examples on other pictures"
    )

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, sent: Any) -> Any:
        # Each unknown key would be an error of its own.
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_keys", f"{len(sent)} keys, there are only {known}")
        return sent


class PixelRequest(NamesRequest):
    """Which pixel, among which classes."""

    x: int = Field(ge=0, description="column, from 0 at the left")
    y: int = Field(ge=0, description="row, from 0 at the top")


class RuleRequest(NamesRequest):
    """Which classes, by which rule."""

    rule: str | None = None


class RankingRequest(RuleRequest):
    """What to rank by."""

    scores: bool = Field(False, description="send how likely every pixel is right, too")


class DecisionRequest(RuleRequest):
    """Which classes, decided how."""

    strict_words: bool = Field(False, description="refuse words that are in no dictionary at hand")
    min_score: float | None = Field(None, ge=0, le=1, description='pixels whose score is below it become "other"')

    refine: bool = Field(False, description="let outlines follow the picture's own edges")

    def options(self) -> dict[str, Any]:
        """What `Scene.segment` takes besides names and rule."""
        return self.model_dump(exclude={"names", "rule", "examples", "width", "height", "file_name"})


class SizedRequest(DecisionRequest):
    """Which classes, decided how, for a picture of which size."""

    width: int | None = Field(None, ge=1, le=_LONGEST, description="of the answer; the picture's own if absent")
    height: int | None = Field(None, ge=1, le=_LONGEST)

    @model_validator(mode="after")
    def _both(self) -> "SizedRequest":
        if (self.width is None) != (self.height is None):
            raise PydanticCustomError("width_and_height", "give both width and height, or neither")
        return self

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width), if they are given."""
        return None if self.width is None or self.height is None else (self.height, self.width)


class CocoRequest(SizedRequest):
    """The same, with what the picture is called."""

    file_name: str | None = Field(None, max_length=255)


_Request = TypeVar("_Request", bound=RuleRequest)


def with_rules(kind: type[_Request]) -> type[_Request]:
    """The request that takes the rules there are, and their parameters if it decides by them."""
    fields: dict[str, Any] = {"rule": (Literal[tuple(RULES)] | None, Field(None, description="the model's if absent"))}
    if issubclass(kind, DecisionRequest):
        fields |= {name: (float | None, _bounds(parameter)) for name, parameter in parameters().items()}
    return create_model(kind.__name__, __base__=kind, **fields)


def _bounds(parameter: Parameter) -> Any:
    least: dict[str, Any] = {"ge": 0} if parameter.neutral == 0 else {"gt": 0}
    about = f"{parameter.about}; the model's if absent"
    return Field(None, **least, le=min(parameter.largest, _LARGEST), description=about)


class SceneInfo(BaseModel):
    """An encoded picture."""

    scene: str = Field(description="its key in further calls, which nobody else can guess")
    width: int
    height: int


class Segmentation(BaseModel):
    """Labels in short."""

    width: int
    height: int
    names: list[str]
    unseen: list[str] = Field(description="names without training masks")
    notes: list[str] = Field(description="what was understood otherwise than it was written")
    colours: Sequence[Annotated[Sequence[int], Field(min_length=3, max_length=3)]] = Field(
        description="RGB of each name, as in the mask and the overlay"
    )
    areas: dict[str, float] = Field(description="the share of the picture that each name covers")
    confidences: dict[str, float | None] = Field(description="1 - d / d', the mean over the pixels of each name")
    scores: dict[str, float | None] = Field(
        description="how often such pixels are right, the mean over the pixels of each name; null without calibration"
    )


class NeighbourInfo(BaseModel):
    """A class near a pixel."""

    name: str
    distance: float
    trained: bool


class ExplanationInfo(BaseModel):
    """Why a pixel takes its class."""

    x: int
    y: int
    first: NeighbourInfo = Field(description="the nearest class")
    second: NeighbourInfo | None
    ratio: float | None = Field(description="distance of the first by that of the second")
    winners: dict[str, str] = Field(description="what wins under each rule, with the model's parameters")


class ParameterInfo(BaseModel):
    """What a rule is set by."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    symbol: str
    about: str
    neutral: float = Field(description="the value that corrects nothing")
    largest: float | None = Field(description="the largest value that makes sense; null where there is none")
    rises: bool = Field(
        description="whether larger values correct more; the unseen class wins beyond the turning point"
    )

    @field_validator("largest", mode="before")
    @classmethod
    def _finite(cls, largest: float) -> float | None:
        return largest if math.isfinite(largest) else None


class RuleInfo(BaseModel):
    """A way to decide."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    title: str
    about: str
    parameter: ParameterInfo | None


class DecisionInfo(BaseModel):
    """How the model decides unless told otherwise."""

    rule: str
    values: Mapping[str, float] = Field(description="of every parameter of a rule")


class TaughtInfo(BaseModel):
    """One thing that a model was taught with."""

    title: str
    text: str


class ModelInfo(BaseModel):
    """What the model knows."""

    name: str = Field(description="what it is called here")
    version: str
    names: list[str]
    trained: list[str] = Field(description="names with training masks")
    background: str | None
    rules: list[RuleInfo]
    decision: DecisionInfo
    strongest: Mapping[str, float] = Field(description="the strongest value worth trying of every parameter")
    has_scores: bool = Field(description="whether pixels can be left out by min_score")
    taught: list[TaughtInfo] = Field(description="what it was taught, with what and by whom")
    colours: Sequence[Annotated[Sequence[int], Field(min_length=3, max_length=3)]] = Field(
        description="RGB for one class after another, readable for colour-blind people first"
    )
    limits: dict[str, float]


class SampleInfo(BaseModel):
    """A picture to start with."""

    title: str
    url: str
    names: tuple[str, ...] | None = Field(description="classes to show it with, if it has some of its own")
    about: str | None = Field(description="what it shows, in a few words")
    points: dict[str, Points] = Field(description="classes by points on it")


class ModelChoice(BaseModel):
    """A model to choose."""

    name: str = Field(description="what calls take as ?model=")
    is_default: bool
