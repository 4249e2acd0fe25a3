"""ZS3Net's generator on JoEm's visual encoder (the double-dagger row of the paper's analysis)."""

from typing import Any, ClassVar

from torch import Tensor

from joem.methods.base import Objective
from joem.methods.joem import JoEm, JoEmSettings
from joem.methods.zs3net import ZS3Net, ZS3NetSettings
from joem.settings import MethodSettings, settings


@settings
class ZS3NetJoEmSettings(ZS3NetSettings, JoEmSettings):
    """ZS3Net's settings and JoEm's."""

    name: str = "zs3net_joem"


class ZS3NetJoEm(ZS3Net, JoEm):
    """The first stage is JoEm's whole training; the generator and the classifier then work on its features."""

    settings_class: ClassVar[type[MethodSettings]] = ZS3NetJoEmSettings
    settings: ZS3NetJoEmSettings
    title: ClassVar[str] = "ZS3Net on JoEm's encoder"
    rule: ClassVar[str] = ZS3Net.rule

    def segment(self, features: Tensor, labels: Tensor) -> Objective:
        """JoEm's objective."""
        return JoEm.objective(self, features, labels)

    def parameter_groups(self, head_multiplier: float) -> dict[str, list[dict[str, Any]]]:
        """Both encoders in the first stage, then as ZS3Net."""
        if self.stage == "segment":
            return JoEm.parameter_groups(self, head_multiplier)
        return super().parameter_groups(head_multiplier)
