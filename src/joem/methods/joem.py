"""JoEm: both encoders trained together, end to end, L = L_ce + L_bar + lambda * L_sc (Baek, Oh, Ham, 2021)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from joem import losses
from joem.methods.base import Method, Objective, ObjectiveSettings, group, head_channels
from joem.models import Inputs, semantic_encoder
from joem.settings import Count, MethodSettings, ModelSettings, Weight, settings
from joem.vocabulary import Vocabulary


@settings
class JoEmSettings(ObjectiveSettings):
    """L = L_ce + L_bar + lambda * L_sc.

    Args:
        r: down- and upsampling factor of the boundary-aware loss; 1 gives L_center.
        sc_weight: lambda, the weight of the semantic consistency loss; 0 leaves it out.
        tau_s: temperature of the relations between word vectors.
        tau_mu: temperature of the relations between prototypes.
        sc_per_pair: official variant only, divide L_sc by K^2 instead of K (their Context code).
    """

    name: str = "joem"
    r: Count = 4
    sc_weight: Weight = 0.1
    tau_s: Weight = 5.0
    tau_mu: Weight = 1.0
    sc_per_pair: bool = False


class JoEm(Method):
    """A visual encoder, a semantic encoder that gives prototypes, and a classifier used in training only."""

    settings_class: ClassVar[type[MethodSettings]] = JoEmSettings
    settings: JoEmSettings
    title: ClassVar[str] = "JoEm"
    rule: ClassVar[str] = "ac"
    has_lambda: ClassVar[bool] = True
    needs_maps = True  # L_bar blends neighbours; L_center, its case r = 1, learns from the same places

    def __init__(self, model: ModelSettings, settings: JoEmSettings, vocabulary: Vocabulary, vectors: Tensor) -> None:
        super().__init__(model, settings, vocabulary, vectors)
        channels = head_channels(model)
        self.semantic = semantic_encoder(model.semantic, vectors.shape[1], channels, model.init)
        # The paper's classifier is w_c . v; the authors' code adds a bias.
        self.classifier = nn.Conv2d(channels, len(vocabulary), 1, bias=settings.variant == "official")
        if model.init == "official":
            nn.init.kaiming_normal_(self.classifier.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """L_ce, L_bar and lambda * L_sc."""
        return self.objective(self.features(inputs), labels)

    def objective(self, features: Tensor, labels: Tensor) -> Objective:
        """L_ce, L_bar and lambda * L_sc of visual features (B,C,H,W)."""
        settings, seen = self.settings, self.vocabulary.seen_indices
        terms = {
            "ce": losses.seen_cross_entropy(self.classifier(features), labels, seen, variant=settings.variant),
            "bar": losses.boundary_aware_regression(
                features, labels, self.vectors, self.semantic, r=settings.r, variant=settings.variant
            ),
        }
        if settings.sc_weight > 0:
            vectors = self.vectors[list(seen)]
            terms["sc"] = settings.sc_weight * losses.semantic_consistency(
                vectors,
                self.semantic(vectors),
                tau_s=settings.tau_s,
                tau_mu=settings.tau_mu,
                variant=settings.variant,
                background=self._background_among_seen(),
                per_pair=settings.sc_per_pair,
            )
        return Objective.over_pixels(terms, labels, features.shape[-2:])

    def prototypes(self, vectors: Tensor, names: Sequence[str]) -> Tensor:
        """Prototypes mu = semantic encoder(s)."""
        prototypes: Tensor = self.semantic(vectors)
        return prototypes

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """The backbone at the base rate, the rest of the visual side faster, the semantic encoder apart."""
        return {
            "visual": self.visual_groups(head_multiplier, self.classifier),
            "semantic": group(self.semantic),
        }

    def _background_among_seen(self) -> int | None:
        name = self.vocabulary.background
        return self.vocabulary.seen.index(name) if name in self.vocabulary.seen else None
