"""JoEm on the unit sphere, taught by names: cross-entropy over cosines, with ImageNet's thousand names as teachers.

Beyond the paper. Sixteen seen classes are few to learn how words map to looks. The backbone's own ImageNet classifier,
applied at every pixel, knows a thousand names without a mask: the student's similarities to the prototypes of these
names follow it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from joem import imagenet, losses
from joem.errors import BadUsage
from joem.methods.base import Method, Objective, group, products
from joem.methods.centres import Centres
from joem.models import HypercolumnHead, ImageNetClassifier, Inputs, semantic_encoder
from joem.recipe import MethodSettings, ModelSettings
from joem.semantics import Semantics
from joem.vocabulary import VOID, Vocabulary

_TEMPERATURE = 0.6  # sharpens what the teacher says at test time
_KINSHIP = 8.0  # what the cosine of two places' looks is multiplied by before the softmax over a picture


class CosineJoEm(Method):
    """Features and prototypes of unit length, L = L_cos + w * L_names.

    L_cos is the cross-entropy of softmax(scale * cos(v, mu_c)) over the seen classes. L_names is the cross-entropy
    between the softmax of the teacher's logits and softmax(scale * cos(v, mu_n)) over ImageNet's names n, of which
    `names: strict` leaves out every kind of an unseen class. Both are means over the labelled pixels.

    With `model.members` M, v and mu consist of M parts that learn apart from different starts and are used together:
    each part has the length 1/sqrt(M), so that cos(v, mu) is the mean of the members' cosines. Words that no mask
    ever tied down land in different places in each, and the mean is better than any.

    With a `teacher_weight` w above 0 the teacher has a say at test time too. What the student learned on training
    pictures says little of things they never show; the teacher has seen them. It is one more member that learns
    nothing: its part of mu is the word vector itself, its part of v the mean of the names' meanings, weighted by its
    sharpened softmax p and of unit length. A meaning is the vector of a name with its dictionary entry ("ox" alone is
    near no animal), with the mean of all such vectors taken off. Its say is the larger, the rarer what it sees was in
    training: with q_n the mean of its softmax over the batches of training pixels, of the first process if several,

        v . mu = (members' cosine + a * teacher's cosine) / (1 + a),    a = w * sum_n p_n (median(q) / q_n)^2.

    Places of a picture that look alike are heard together: with x_i the backbone's last map at place i, standardised by
    the training pixels' statistics and of unit length, p_i is not the teacher's sharpened softmax t_i itself but

        p_i = sum_j A_ij t_j,    A_ij = exp(8 x_i . x_j) / sum_k exp(8 x_i . x_k).

    What it sees at the head of a cow is then said of the legs too.

    With a `mixture_weight` b above 0 there are M more members, those of `MixtureJoEm`: they learn centres of the seen
    classes, by their L_ce and L_centre, and put every other word between them. Their parts v_m and mu_m keep their
    lengths, measured by R, the root of the mean of |m_c|^2 over the centres. With d_0 the distance without them,

        |v - mu|^2 = (d_0^2 + b |v_m - mu_m|^2 / R^2) / (1 + b).
    """

    title: ClassVar[str] = "JoEm on cosines"
    rule: ClassVar[str] = "cs"

    name_vectors: Tensor
    meanings: Tensor
    frequencies: Tensor
    batches: Tensor

    def __init__(self, model: ModelSettings, settings: MethodSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        if not 0 <= settings.mixture_weight < math.inf:
            raise BadUsage(f"mixture_weight is the weight of a distance, 0 or more, got {settings.mixture_weight}.")
        kinds = 2 if settings.mixture_weight else 1  # of members, all in one head
        head = replace(
            model, members=kinds * model.members, hidden=kinds * model.hidden, channels=kinds * model.channels
        )
        super().__init__(head, settings, vocabulary, vectors)
        self._members, self._mixture_weight = model.members, settings.mixture_weight
        self.semantic = semantic_encoder(model.semantic, vectors.shape[1], model.channels)
        self.centres = Centres(vocabulary, model.channels, model.members) if settings.mixture_weight else None
        self.teacher: ImageNetClassifier | None = None
        self._teacher_weight = settings.teacher_weight if settings.names != "none" else 0.0
        if not 0 <= self._teacher_weight < math.inf:
            raise BadUsage(f"teacher_weight is the weight of a cosine, 0 or more, got {self._teacher_weight}.")
        if self._teacher_weight:
            self._add_teacher()

    def _add_teacher(self) -> None:
        model = self.visual.settings
        if not (isinstance(self.visual.head, HypercolumnHead) and model.freeze_backbone):
            raise BadUsage(
                "Names are taught by the classifier of a frozen backbone: set --model.architecture hypercolumn and "
                "--model.freeze_backbone true, or --method.names none."
            )
        last = self.visual.head.last
        kept, saved = taught_names(self.settings, self.vocabulary), self._teacher_weight > 0
        self.teacher = ImageNetClassifier(last.stop - last.start, kept, saved)
        unknown = torch.zeros(len(kept), self.vectors.shape[1])
        self.register_buffer("name_vectors", unknown, persistent=False)
        self.register_buffer("meanings", unknown.clone(), persistent=saved)
        self.register_buffer("frequencies", torch.full((len(kept),), 1 / len(kept)), persistent=saved)
        self.register_buffer("batches", torch.tensor(0), persistent=saved)

    def learn_names(self, semantics: Semantics) -> None:
        """Take the word vectors of ImageNet's names and the weights of the classifier that teaches them."""
        if self.settings.names == "none":
            return
        if self.teacher is None:
            self._add_teacher()
        assert self.teacher is not None
        self.teacher.take_weights(self.visual.settings)
        kept = taught_names(self.settings, self.vocabulary)
        self.name_vectors.copy_(semantics.vectors([imagenet.names()[index] for index in kept]))
        if self._teacher_weight:
            meanings = semantics.vectors([imagenet.meanings()[index] for index in kept])
            self.meanings.copy_(F.normalize(meanings - meanings.mean(dim=0), dim=1))

    def forward(self, inputs: Tensor, labels: Tensor) -> Objective:
        """L_cos, w * L_names and what a mixture learns by, on a batch of pictures or hypercolumns."""
        settings, seen = self.settings, self.vocabulary.seen_indices
        if inputs.shape[1] == 3 and self.teacher is not None:
            inputs = HypercolumnHead.gather(self.visual.maps(inputs))
        features, between = self._split(self.visual(inputs))
        features = self._unit(features)
        logits = settings.scale * self._cosines(features, self._place(self.vectors))
        terms = {"ce": losses.seen_cross_entropy(logits, labels.repeat_interleave(self._members, dim=0), seen)}
        if self.centres is not None:
            terms |= {f"mixture_{name}": term for name, term in self.centres.terms(between, labels).items()}
        if self.teacher is not None:
            head = cast(HypercolumnHead, self.visual.head)
            labelled = losses.resized(labels, features.shape[-2:]) != VOID
            with torch.no_grad():
                taught = self.teacher(inputs[:, head.last]).softmax(dim=1)
                if self.training and labelled.any():
                    self.batches += 1
                    self.frequencies += (taught.movedim(1, -1)[labelled].mean(dim=0) - self.frequencies) / self.batches
            taught = taught.repeat_interleave(self._members, dim=0)
            names = settings.scale * self._cosines(features, self._place(self.name_vectors))
            agreement = (taught * names.log_softmax(dim=1)).sum(dim=1).reshape(-1, self._members, *features.shape[-2:])
            terms["names"] = (
                -settings.names_weight * agreement.mean(dim=1)[labelled].sum() / labelled.sum().clamp(min=1)
            )
        weight = losses.labelled_fraction(labels, features.shape[-2:]) * len(labels)
        return Objective(terms, weight)

    def features(self, inputs: Inputs) -> Tensor:
        """Visual features (B,C,H,W) of unit length; with a teacher, longer the further its say a is from w.

        Gathered hypercolumns are a picture of their own: look-alikes are found among them.
        """
        if self._teacher_weight and isinstance(inputs, Tensor) and inputs.shape[1] == 3:
            inputs = self.visual.maps(inputs)
        own, between = self._split(super().features(inputs))
        own = self._unit(own)
        if self._teacher_weight:
            own = self._with_teacher(own, inputs)
        return self._with_mixture(own, between)

    def _with_teacher(self, own: Tensor, inputs: Inputs) -> Tensor:
        head, teacher = cast(HypercolumnHead, self.visual.head), cast(ImageNetClassifier, self.teacher)
        last = inputs[:, head.last] if isinstance(inputs, Tensor) else inputs[-1]
        looks = F.normalize(head.standardised(last), dim=1)
        chances = _over_lookalikes(looks, (teacher(last) / _TEMPERATURE).softmax(dim=1))
        middle = self.frequencies.sort().values[(len(self.frequencies) - 1) // 2]  # ONNX knows no median
        rarity = (middle / self.frequencies).square()
        weight = self._teacher_weight
        say = weight * F.conv2d(chances, rarity[None, :, None, None])
        opinion = F.normalize(F.conv2d(chances, self.meanings.T[:, :, None, None]), dim=1)
        both = F.interpolate(torch.cat((say, opinion), dim=1), own.shape[-2:], mode="bilinear", align_corners=False)
        say, opinion = both[:, :1], both[:, 1:]
        return (1 + weight) / (1 + say) * _beside(own, opinion, weight, say / weight)

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """Prototypes (K,C), of unit length without a mixture."""
        placed = self._place(vectors)
        if self._teacher_weight:
            placed = _beside(placed, F.normalize(vectors, dim=1), self._teacher_weight)
        if self.centres is not None:
            placed = self._with_mixture(placed, self.centres.prototypes(vectors, self.vectors))
        return placed

    def _with_mixture(self, own: Tensor, between: Tensor) -> Tensor:
        if self.centres is None:
            return own
        length = self.centres.weight.square().sum(dim=1).mean().sqrt()
        return _beside(own, between / length, self._mixture_weight)

    def _split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The parts of the members that learn cosines, and of those that learn mixtures, if any."""
        share = 0 if self.centres is None else self.centres.weight.shape[1]
        own, between = torch.split(features, [features.shape[1] - share, share], dim=1)
        return own, between

    def _place(self, vectors: Tensor) -> Tensor:
        return self._unit(self.semantic(vectors))

    def _unit(self, tensor: Tensor) -> Tensor:
        """Unit length along dimension 1, to which every member contributes the same."""
        parts = tensor.reshape(len(tensor), self._members, -1, *tensor.shape[2:])
        return F.normalize(parts, dim=2).flatten(1, 2) / math.sqrt(self._members)

    def _cosines(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Each member's own cosines, (B * M,K,H,W)."""
        return self._members * products(features, prototypes, self._members)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The backbone at the base rate, the head faster, the semantic encoder apart."""
        placing = [self.semantic] if self.centres is None else [self.semantic, self.centres]
        return {"visual": self.visual_groups(head_multiplier), "semantic": group(*placing)}


def _beside(first: Tensor, second: Tensor, weight: float, louder: Tensor | float = 1.0) -> Tensor:
    """Two vectors along dimension 1 as one: products of such are (first's + weight * second's) / (1 + weight).

    With `louder`, given on one side only, the second's product counts so many times more.
    """
    return torch.cat((first, math.sqrt(weight) * louder * second), dim=1) / math.sqrt(1 + weight)


def _over_lookalikes(looks: Tensor, values: Tensor) -> Tensor:
    """The mean of values (B,V,H,W) over the places of a picture, weighted by how alike their looks (B,L,H,W) are."""
    places, spoken = (each.flatten(2).transpose(1, 2).unsqueeze(1) for each in (looks, values))
    heard = F.scaled_dot_product_attention(places, places, spoken, scale=_KINSHIP)  # one head, which ONNX wants to see
    return heard.squeeze(1).transpose(1, 2).reshape(values.shape)


def taught_names(settings: MethodSettings, vocabulary: Vocabulary) -> list[int]:
    """Which of ImageNet's classes teach: all, or with `strict` none that is a kind of an unseen class."""
    hidden: set[int] = set()
    if settings.names == "strict":
        hidden = set().union(*(imagenet.kinds_of(name) for name in (*vocabulary.unseen, *settings.names_without)))
    return [index for index in range(len(imagenet.names())) if index not in hidden]
