"""A blend of experts: several opinions about pixels and words as one nearest-prototype problem. Beyond the paper."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast

import torch
from pydantic import BeforeValidator, Field, TypeAdapter
from torch import Tensor, nn

from joem.errors import BadUsage, choose
from joem.methods.base import Method, Objective
from joem.methods.experts import EXPERTS, CosineSettings, Expert, ExpertSettings, NamesTeacher, Novelty, Shared, View
from joem.methods.experts.names import Which, left_out
from joem.methods.regions import RegionSettings, share_features
from joem.models import FeatureMaps, Hypercolumns, Inputs, Trunk, build_trunk, hypercolumn
from joem.models.inference import Derived, replaced
from joem.semantics import Semantics, imagenet
from joem.semantics.giveaways import giveaways
from joem.settings import MethodSettings, ModelSettings, Names, settings
from joem.vocabulary import Vocabulary


def _expert_settings(values: Any) -> Any:
    """The settings of an expert from plain values, by its kind."""
    if not isinstance(values, Mapping):
        return values
    try:
        expert = EXPERTS[choose("expert", values.get("kind", ""), EXPERTS)]
    except BadUsage as error:
        raise ValueError(str(error)) from None
    return TypeAdapter(expert.settings_class).validate_python(values)


AnyExpert = Annotated[ExpertSettings, BeforeValidator(_expert_settings)]


@settings
class BlendSettings(MethodSettings):
    """Which experts, and whether ImageNet's names teach them.

    Args:
        experts: the experts, each with its kind (cosine, conse, mixture, novelty, tower), weight and sizes.
        names: whether ImageNet's names teach too: none, strict (without those that give an unseen class away), all.
        names_from: which ImageNet the backbone's classifier names: imagenet-1k, or imagenet-12k, -22k, -21k-goog,
            -21k-miil, -22k-ms for classifiers of timm with such a head.
        names_without: further classes for which strict leaves names out.
        names_out: the indices of the names that strict left out; found by rule when a model is made, and kept with it.
        regions: let the pixels of a thing share their features; null leaves each its own.
    """

    name: str = "blend"
    experts: Annotated[tuple[AnyExpert, ...], Field(min_length=1)] = (CosineSettings(),)
    names: Which = "none"
    names_from: str = imagenet.FIRST
    names_without: Names = ()
    names_out: tuple[int, ...] | None = None
    regions: RegionSettings | None = None


class Blend(Method):
    """Experts k with features v_k, prototypes mu_k and weights w_k, together d^2 = sum_k w_k d_k^2 / sum_k w_k.

    With v and mu the experts' parts side by side, each times sqrt(w_k / sum_j w_j), |v - mu| is that d: still one
    nearest-prototype problem, which every rule, sweep and export takes as it is. Each expert learns by its own terms.
    """

    settings_class = BlendSettings
    settings: BlendSettings
    nouns: Tensor
    title: ClassVar[str] = "blend of experts"
    rule: ClassVar[str] = "cs"

    def __init__(self, model: ModelSettings, settings: BlendSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        self._model = model
        channels, dimension = self.trunk.channels, vectors.shape[1]
        kinds = [EXPERTS[choose("expert", each.kind, EXPERTS)] for each in settings.experts]
        self._quick: Derived[Blend] = Derived()
        self.teacher: NamesTeacher | None = None
        if settings.names != "none":
            out = (
                self.with_vocabulary(settings, vocabulary).names_out
                if settings.names_out is None
                else settings.names_out
            )
            hidden = set(out or ())
            kept = [index for index in range(len(imagenet.entries_of(settings.names_from))) if index not in hidden]
            saved = any(kind.reads_names for kind in kinds)
            own = model.backbone if model.backbone.startswith("tu-") else ""
            self.teacher = NamesTeacher(channels[-1], kept, dimension, saved, settings.names_from, own)
        shared = Shared(vocabulary, dimension, channels, self.trunk.strides, self.teacher)
        self.experts = nn.ModuleList(kind(each, shared) for kind, each in zip(kinds, settings.experts, strict=True))

    def _visual(self, model: ModelSettings) -> Trunk:
        if model.head is not None:
            raise BadUsage("The experts of a blend have heads of their own: leave out the model's, with head: null.")
        if not model.freeze_backbone:
            raise BadUsage("A blend learns on a frozen backbone: set --model.freeze_backbone true.")
        return build_trunk(model)

    @property
    def trunk(self) -> Trunk:
        """The backbone with what pictures go through before it."""
        return cast(Trunk, self.visual)

    @property
    def stride(self) -> int:
        """Pixels of the encoded picture per feature."""
        return hypercolumn.stride(self.trunk.strides)

    @classmethod
    def for_fold(cls, settings: MethodSettings, hidden: Sequence[str]) -> MethodSettings:
        """No name of a class that is unseen in the whole problem teaches in a fold."""
        without = cast(BlendSettings, settings).names_without
        return replace(cast(BlendSettings, settings), names_without=(*without, *hidden), names_out=None)

    @classmethod
    def with_vocabulary(cls, settings: MethodSettings, vocabulary: Vocabulary) -> "BlendSettings":
        """The settings with the names that strict leaves out."""
        own = cast(BlendSettings, settings)
        hidden = (*vocabulary.unseen, *own.names_without)
        out = left_out(hidden, own.names_from) if own.names == "strict" else None
        return replace(own, names_out=out)

    def learn_names(self, semantics: Semantics) -> None:
        """Take the classifier that teaches names, and the word vectors that teacher and experts need of them."""
        if self.teacher is not None:
            self.teacher.learn_names(semantics, self._model)
            for expert in self._experts:
                expert.learn_names(semantics)

    @property
    def wants_looks(self) -> bool:
        """Whether an expert tells what is new."""
        return bool(self._novelty)

    def looks(self, inputs: Inputs) -> Tensor:
        """What novelty is told by."""
        return self._novelty[0].looks(self._view(inputs))

    def learn_looks(self, samples: Sequence[Tensor]) -> None:
        """Let the experts that tell what is new know what is not."""
        for expert in self._novelty:
            expert.learn_looks(samples)

    @property
    def _novelty(self) -> list[Novelty]:
        return [expert for expert in self.experts if isinstance(expert, Novelty)]

    @property
    def _experts(self) -> list[Expert]:
        return [cast(Expert, each) for each in self.experts]

    @property
    def heard_names(self) -> tuple[str, ...]:
        """The names of ImageNet that teach."""
        return () if self.teacher is None else self.teacher.words

    @property
    def names_taken_out(self) -> Mapping[str, Mapping[str, str]]:
        """What strict leaves out for every unseen class, and why."""
        if self.settings.names != "strict":
            return {}
        hidden, subset = (*self.vocabulary.unseen, *self.settings.names_without), self.settings.names_from
        entries = imagenet.entries_of(subset)
        return {
            name: {entries[index].names[0]: why for index, why in giveaways(name, subset).items()}
            for name in dict.fromkeys(hidden)
        }

    def learn_nouns(self, vectors: Tensor) -> None:
        """Keep the word vectors of the nouns of captioned photos, for training."""
        self.register_buffer("nouns", vectors, persistent=False)

    def forward(self, inputs: Inputs, labels: Tensor, captioned: tuple[Tensor, Tensor] | None = None) -> Objective:
        """The terms of every expert; `captioned` are hypercolumns of photos, and which nouns each has."""
        columns = inputs if isinstance(inputs, Hypercolumns) else Hypercolumns(hypercolumn.gather(self._maps(inputs)))
        view, kinds = self._view(columns), [each.kind for each in self.settings.experts]
        photos = None if captioned is None else self._view(Hypercolumns(captioned[0]))
        terms: dict[str, Tensor] = {}
        for number, (kind, expert) in enumerate(zip(kinds, self._experts, strict=True)):
            found = expert.terms(view, labels, self.vectors)
            if captioned is not None and photos is not None:
                found |= expert.caption_terms(photos, captioned[1], self.nouns)
            title = kind if kinds.count(kind) == 1 else f"{kind}{number}"
            terms |= {f"{title}_{name}": term for name, term in found.items()}
        return Objective.over_pixels(terms, labels, view.size)

    def features(self, inputs: Inputs) -> Tensor:
        """v, the experts' features side by side; where the settings have regions, things share theirs."""
        view = self._view(inputs)
        found = self._beside([expert.features(view) for expert in self._experts], self._gates(view))
        regions, classes = self.settings.regions, self.vocabulary
        if regions is None:
            return found
        rest = [classes.index(name) for name in (classes.background, *classes.taught) if name is not None]
        return share_features(found, self.prototypes(self.vectors, classes.names), classes.seen_indices, rest, regions)

    def _gates(self, view: View) -> list[Tensor | float]:
        """What the features of every expert are multiplied by: what a gate wins, the others of unit length lose."""
        gates = [expert.gate(view) for expert in self._experts]
        if all(gate is None for gate in gates):
            return [1.0] * len(gates)
        shares = [1.0 if gate is None else gate for gate in gates]
        of_unit = [(expert.weight, share) for expert, share in zip(self._experts, shares, strict=True) if expert.unit]
        before, after = sum(weight for weight, _ in of_unit), sum(weight * share for weight, share in of_unit)
        return [
            share * (before / after) if expert.unit else 1.0
            for expert, share in zip(self._experts, shares, strict=True)
        ]

    def for_inference(self) -> "Blend":
        """With quicker experts, kept until a weight changes."""
        return self._quick.of([each for each in self.children() if each is not self.trunk], self._quicker)

    def _quicker(self) -> "Blend":
        teacher = None if self.teacher is None else self.teacher.for_inference()
        experts = nn.ModuleList(expert.for_inference(teacher) for expert in self._experts)
        return replaced(self, experts=experts, **({} if teacher is None else {"teacher": teacher}))

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """mu, the experts' prototypes side by side."""
        parts = [expert.prototypes(vectors, self.vectors) for expert in self._experts]
        return self._beside(parts, [1.0] * len(parts))

    def _beside(self, parts: list[Tensor], factors: Sequence[Tensor | float]) -> Tensor:
        total = sum(expert.weight for expert in self._experts)
        shares = [math.sqrt(expert.weight / total) for expert in self._experts]
        return torch.cat(
            [part * (share * factor) for part, share, factor in zip(parts, shares, factors, strict=True)], dim=1
        )

    def _maps(self, inputs: Tensor | FeatureMaps) -> FeatureMaps:
        return inputs if isinstance(inputs, FeatureMaps) else cast(FeatureMaps, self.trunk(inputs))

    def _view(self, inputs: Inputs) -> View:
        """What the experts look at; gathered hypercolumns are a picture of their own."""
        if isinstance(inputs, Hypercolumns):
            values = inputs.values
            return View(inputs, values[:, hypercolumn.last_channels(self.trunk.channels)], _size(values))
        maps = self._maps(inputs)
        basis = hypercolumn.basis(maps)
        return View(basis, maps.maps[-1], _size(basis.fine))

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The experts' own; the backbone does not learn."""
        visual = [weight for expert in self._experts for weight in expert.visual_parameters()]
        semantic = [weight for expert in self._experts for weight in expert.semantic_parameters()]
        return {
            "visual": [{"params": visual, "scale": head_multiplier}],
            "semantic": [{"params": semantic, "scale": 1.0}],
        }


def _size(maps: Tensor) -> tuple[int, int]:
    height, width = maps.shape[-2:]
    return height, width
