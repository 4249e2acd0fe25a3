"""Class centres, and convex mixes of them for words without a centre of their own; from masks alone.

A map from words to looks that is learned from sixteen classes goes astray between them. A mean of learned class
centres, weighted by how near the words are, cannot leave the space they span.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses.compared import squared_distance_to_centres
from joem.methods.experts.expert import PerceptronExpert, PerceptronSettings, Shared, products, trained
from joem.methods.experts.view import View
from joem.settings import settings

_SHARPNESS = 10.0  # what the cosine of two words is multiplied by before the softmax over the seen classes
_LENGTH = 0.75  # how far a mean of centres is moved out to the length of centres: 0 not at all, 1 all the way


@settings
class MixtureSettings(PerceptronSettings):
    """Words between the centres of seen classes."""

    kind: str = "mixture"


class Mixture(PerceptronExpert):
    """A learned centre m_c for every seen class, L = L_ce + L_centre.

    L_ce is the cross-entropy of softmax(-|v - m_c|^2 / 2) over the seen classes, L_centre the sum of |v - m_c|^2 over
    the pixels of seen objects, both divided by the number of labelled pixels. The background is many things and is
    drawn to no one point. Features and centres are measured by R, the root of the mean of |m_c|^2, so that distances
    are comparable with those of other experts. A pixel that is as much like horse as like sheep is nearest to a word
    between them; such a prototype needs little calibration or none.
    """

    settings_class = MixtureSettings
    settings: MixtureSettings
    unit: ClassVar[bool] = False

    def __init__(self, settings: MixtureSettings, shared: Shared) -> None:
        super().__init__(settings, shared)
        classes = shared.vocabulary
        self._seen = list(classes.seen_indices)
        self._objects = [row for row, name in enumerate(classes.seen) if name != classes.background]
        self.centres = nn.Parameter(torch.randn(len(self._seen), self.size))

    def features(self, view: View) -> Tensor:
        """V / R."""
        features: Tensor = self.head(view.columns)
        return features / self._length()

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """The centre of a seen class by its word; for any other word w one between the centres of the seen objects c.

            u = sum_c a_c m_c,    mu(w) = u (sum_c a_c |m_c| / |u|)^(3/4),    a = softmax_c(10 cos(w, s_c)),

        with s_c the word vectors of the seen classes, all divided by R. The mean u of many centres is short, and so
        nearer to everything than that of two: the power takes most of what a vague word gains by that.
        """
        sources = self._objects or list(range(len(self._seen)))
        cosines = F.normalize(vectors, dim=1) @ F.normalize(known[self._seen], dim=1).T
        centres, shares = self.centres[sources], (_SHARPNESS * cosines[:, sources]).softmax(dim=1)
        means, lengths = shares @ centres, shares @ centres.norm(dim=1, keepdim=True)
        between = means * (lengths / means.norm(dim=1, keepdim=True)) ** _LENGTH
        same, row = trained(vectors, known[self._seen])
        return torch.where(same.unsqueeze(1), self.centres[row], between) / self._length()

    def terms(self, view: View, labels: Tensor, known: Tensor) -> dict[str, Tensor]:
        """L_ce and L_centre, each the mean of the copies'."""
        copies, seen = self.settings.copies, torch.tensor(self._seen, device=self.centres.device)
        shape = (len(self.shared.vocabulary), self.centres.shape[1])
        centres = self.centres.new_zeros(shape).index_copy(0, seen, self.centres)
        features = self.head(view.columns)
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(centres.dtype)
            lengths = centres.square().reshape(len(centres), copies, -1).sum(dim=2).T  # (M,K)
            logits = products(features, centres, copies) - lengths.repeat(len(features), 1)[:, :, None, None] / 2
            pull = squared_distance_to_centres(features, labels, centres, seen[self._objects])
            apart = labels.repeat_interleave(copies, dim=0)
            return {"ce": losses.seen_cross_entropy(logits, apart, seen), "centre": pull / copies}

    def _length(self) -> Tensor:
        return self.centres.square().sum(dim=1).mean().sqrt()
