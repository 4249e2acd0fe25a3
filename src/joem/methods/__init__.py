"""The systems of the field behind one interface; a new one is one file and one line here."""

from joem.errors import choose
from joem.methods.base import Method, Objective, copy_leading_rows
from joem.methods.blend import Blend
from joem.methods.cagnet import CaGNet
from joem.methods.csrl import CSRL
from joem.methods.devise import DeViSE
from joem.methods.joem import JoEm
from joem.methods.pmosr import PMOSR
from joem.methods.spnet import SPNet
from joem.methods.supervised import Supervised
from joem.methods.two_stage import TwoStage
from joem.methods.visual_to_semantic import VisualToSemantic
from joem.methods.zs3net import ZS3Net
from joem.methods.zs3net_joem import ZS3NetJoEm

METHODS: dict[str, type[Method]] = {
    "joem": JoEm,
    "blend": Blend,
    "devise": DeViSE,
    "spnet": SPNet,
    "zs3net": ZS3Net,
    "csrl": CSRL,
    "cagnet": CaGNet,
    "pmosr": PMOSR,
    "two_stage": TwoStage,
    "visual_to_semantic": VisualToSemantic,
    "zs3net_joem": ZS3NetJoEm,
    "supervised": Supervised,
}

__all__ = ["METHODS", "Blend", "JoEm", "Method", "Objective", "copy_leading_rows", "get"]


def get(name: str) -> type[Method]:
    """The class of a method; an unknown name answers with the list."""
    return METHODS[choose("method", name, METHODS)]
