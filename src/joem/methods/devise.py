"""DeViSE for segmentation: pixels regress the word vector of their class (Frome 2013, adapted by Bucher 2019)."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from joem.losses.compared import cosine_regression
from joem.methods.base import Objective
from joem.methods.projection import ProjectionMethod
from joem.models import Inputs
from joem.settings import MethodSettings


class DeViSE(ProjectionMethod):
    """Features projected onto word vectors, the nearest class by cosine."""

    settings_class = MethodSettings
    title: ClassVar[str] = "DeViSE"

    def forward(self, inputs: Inputs, labels: Tensor) -> Objective:
        """One minus the cosine between a pixel's projection and the word vector of its class."""
        features = super().features(inputs)
        terms = {"cosine": cosine_regression(features, labels, self.vectors)}
        return Objective.over_pixels(terms, labels, features.shape[-2:])

    def features(self, inputs: Inputs) -> Tensor:
        """Projected features of unit length: the nearest unit vector is then the one with the largest cosine."""
        return F.normalize(super().features(inputs), dim=1)
