"""What every method offers to the engine and to the decision rules."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from joem import losses
from joem.decision import NEAREST
from joem.errors import BadUsage, choose
from joem.models import Inputs, Trunk, build_encoder, trainable
from joem.semantics import Semantics
from joem.settings import MethodSettings, ModelSettings, settings
from joem.vocabulary import Vocabulary


@settings
class ObjectiveSettings(MethodSettings):
    """Methods that learn by the cross entropy of seen masks.

    Args:
        variant: paper follows the equations, official follows the authors' code where the two differ.
    """

    variant: Literal["paper", "official"] = "paper"


class Objective(NamedTuple):
    """What a batch gives: the terms whose sum is minimised, already weighted, and how much the batch counts.

    The terms are means over the labelled pixels of the batch. `weight` is proportional to their number, so that
    parts of a batch, on one device after the other or on several at once, add up to the whole.
    """

    terms: dict[str, Tensor]
    weight: Tensor

    @classmethod
    def over_pixels(cls, terms: dict[str, Tensor], labels: Tensor, size: Sequence[int]) -> "Objective":
        """The objective of terms that are means over the labelled pixels at (H,W), of labels (B,Ho,Wo)."""
        return cls(terms, losses.labelled_fraction(labels, size) * len(labels))


class Method(nn.Module, ABC):
    """A system that learns from seen masks and segments any names.

    Training runs through `stages`: the engine calls `begin` with the name of each, gives what `parameter_groups`
    lists to new optimisers, freezes everything else, and minimises what calling the method with a batch gives.
    `features` and `prototypes` are what the decision rules compare at test time.

    Args:
        model: settings of the encoders.
        settings: the method's own settings, of its `settings_class`.
        vocabulary: the classes; labels are its indices.
        vectors: (K,D) word vectors. Rows of unseen classes are dropped here, unless the method `uses_unseen_words`.

    Attributes:
        settings_class: the settings it has.
        stages: names of the stages of training, in order.
        new_class_stages: the stages to run again before a class can be added; none if words are enough.
        uses_unseen_words: whether training uses the word vectors of unseen classes (never their masks).
        sees_every_mask: whether the masks of unseen classes are training data too: not zero-shot, an upper bound.
        has_lambda: whether the objective has lambda * L_sc, so that lambda is a value to choose.
        rests: whether some of what a stage trains has no gradient in some of its batches.
        needs_maps: whether the objective looks at neighbouring pixels, so that loose pixels are no input.
        title: what tables call it; its name if empty.
        rule: the decision rule its authors use.
    """

    settings_class: ClassVar[type[MethodSettings]]
    stages: tuple[str, ...] = ("train",)
    new_class_stages: tuple[str, ...] = ()
    uses_unseen_words: ClassVar[bool] = False
    sees_every_mask: ClassVar[bool] = False
    has_lambda: ClassVar[bool] = False
    rests: ClassVar[bool] = False
    needs_maps: bool = False
    title: ClassVar[str] = ""
    rule: ClassVar[str] = NEAREST

    settings: MethodSettings
    vectors: Tensor

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = vocabulary
        self.stage = self.stages[0]
        self.visual = self._visual(model)
        self._never_trained = [weight for weight in self.visual.parameters() if not weight.requires_grad]
        known = vectors.clone()
        if not self.uses_unseen_words:
            known[list(vocabulary.unseen_indices)] = 0
        self.register_buffer("vectors", known, persistent=False)

    def _visual(self, model: ModelSettings) -> nn.Module:
        """The visual side: backbone and head."""
        return build_encoder(model)

    @property
    def trunk(self) -> Trunk:
        """The backbone with what pictures go through before it."""
        return cast(Trunk, self.visual.trunk)

    @property
    def stride(self) -> int:
        """Pixels of the encoded picture per feature."""
        return cast(int, self.visual.stride)

    @classmethod
    def for_fold(cls, settings: MethodSettings, hidden: Sequence[str]) -> MethodSettings:
        """The settings for a fold of a cross-validation in which these classes must teach nothing."""
        return settings

    @classmethod
    def with_vocabulary(cls, settings: MethodSettings, vocabulary: Vocabulary) -> MethodSettings:
        """The settings with what a method derives from the classes before it is made, so that a model keeps it."""
        return settings

    def begin(self, stage: str) -> None:
        """Enter a stage of training, with everything free to learn but what the recipe keeps frozen."""
        self.stage = choose("stage", stage, self.stages)
        self.requires_grad_(True)
        for weight in self._never_trained:
            weight.requires_grad_(False)

    def train(self, mode: bool = True) -> "Method":
        """Training mode, except for the parts that are frozen in the current stage."""
        super().train(mode)
        for part in self.children():
            weights = list(part.parameters())
            if weights and not any(weight.requires_grad for weight in weights):
                part.eval()
        return self

    @abstractmethod
    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """The objective of the current stage on a batch and its labels."""

    @abstractmethod
    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """Prototypes (K,C) of classes given by their word vectors (K,D) and names."""

    def learn_names(self, semantics: Semantics) -> None:
        """A chance, before training, to take word vectors beyond those of the vocabulary; most methods need none."""

    @property
    def wants_looks(self) -> bool:
        """Whether it wants to know, after training, what training pictures look like; most methods do not."""
        return False

    def looks(self, inputs: Inputs) -> Tensor:
        """What it then wants to know of pictures, (B,C,h,w)."""
        raise NotImplementedError

    def learn_looks(self, samples: Sequence[Tensor]) -> None:
        """Take the looks (P,C) of labelled pixels of training pictures, one tensor per picture."""
        raise NotImplementedError

    @property
    def heard_names(self) -> tuple[str, ...]:
        """Names of a classifier that teach it, beside the vocabulary's; none for most methods."""
        return ()

    @property
    def names_taken_out(self) -> Mapping[str, Mapping[str, str]]:
        """Names of a classifier that do not teach it because they give an unseen class away: class -> name -> why."""
        return {}

    def learn_nouns(self, vectors: Tensor) -> None:
        """Take the word vectors (N,D) of the nouns of captioned photos, which come as a third argument of `forward`."""
        raise BadUsage(f"{self.settings.name} learns nothing from captions: leave data.captions out, or train blend.")

    def encoded(self, inputs: Inputs) -> Tensor:
        """What the visual encoder makes (B,C,H,W) of normalised pictures, of a backbone's maps, or of hypercolumns."""
        encoded: Tensor = self.visual(inputs)
        return encoded

    def features(self, inputs: Inputs) -> Tensor:
        """What the rules compare with prototypes, (B,C,H,W): the encoded pixels themselves, for most methods."""
        return self.encoded(inputs)

    def for_inference(self) -> "Method":
        """One that makes the same features of a backbone's maps, but for rounding, quicker; itself where none is."""
        return self

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Parameters that learn in the current stage, by optimiser ("visual", "semantic" or "generator").

        In torch's group form; a group's `scale` multiplies the learning rate of its optimiser. Here all of them, on the
        visual side.
        """
        return {"visual": self.visual_groups(head_multiplier, *(m for m in self.children() if m is not self.visual))}

    def visual_groups(self, head_multiplier: float, *more: nn.Module) -> list[dict[str, Any]]:
        """The backbone at the base rate; the head of the visual encoder and `more` faster."""
        heads = cast(nn.Module, self.visual.head)
        head = [weight for module in (heads, *more) for weight in trainable(module)]
        groups = [
            {"params": list(trainable(self.trunk.backbone)), "scale": 1.0},
            {"params": head, "scale": head_multiplier},
        ]
        return [group for group in groups if group["params"]]


def head_channels(model: ModelSettings) -> int:
    """C, the channels of a method's features."""
    return 0 if model.head is None else model.head.channels


def group(*modules: nn.Module, scale: float = 1.0) -> list[dict[str, Any]]:
    """All parameters of some modules as one group."""
    return [{"params": [weight for module in modules for weight in module.parameters()], "scale": scale}]


def copy_leading_rows(source: nn.Module, target: nn.Module) -> None:
    """Copy weights into the same architecture made for more classes; the rows of the new classes stay as they are."""
    with torch.no_grad():
        old = source.state_dict()
        for key, value in target.state_dict().items():
            same = old[key].shape == value.shape
            (value if same else value[: len(old[key])]).copy_(old[key])
