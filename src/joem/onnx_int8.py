"""An exported graph whose convolutions compute with integers of eight bits: static quantisation by onnxruntime.

Weights have a scale per output channel, activations one per map, from the smallest and the largest value that the
pictures for calibration gave. What comes after the networks (distances, attention, gates) stays float32, and so do
their first layers, in which rounding costs most and eight bits save no time.
"""

import ast
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from joem.errors import JoemError
from joem.onnx_graph import INPUTS, features_only

_QUANTISED = ("Conv", "Clip", "Add")  # Clip and Add join convolutions, which would go back to float32 between them
# Of the operations of the networks, those nearest to the picture stay as they are. The labels of 40 training pictures
# of PASCAL VOC that differ with none of them left out, a tenth, a fifth, 28 % and 38 %: 6.2, 3.4, 3.0, 2.8 and 2.6 %.
_FIRST = 0.2
_SCOPES = "pkg.torch.onnx.name_scopes"  # where the exporter notes the modules that a node was in


def with_int8(whole: Any, pictures: Sequence[Tensor]) -> Any:
    """The graph `whole` with quantised networks, calibrated on pictures (3,H,W) uint8.

    The decision is left out meanwhile: at the size of the picture it would take gigabytes.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """The pictures one by one, as onnxruntime asks for them."""

        def __init__(self) -> None:
            self.rest = iter(pictures)

        def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
            picture = next(self.rest, None)
            return None if picture is None else {INPUTS[0]: np.ascontiguousarray(picture.permute(1, 2, 0).numpy())}

    visual = features_only(whole)
    chosen = [node.name for node in visual.graph.node if node.op_type in _QUANTISED and _in_network(node)]
    chosen = chosen[round(_FIRST * len(chosen)) :]
    if not chosen:
        raise JoemError("There is no convolution in the networks of this model: export it with --format onnx.")
    before = {name for node in visual.graph.node for name in node.output}
    decision = [node for node in whole.graph.node if not before.intersection(node.output)]
    add_pre_process_metadata(visual)  # the exporter has folded batch norms already; without it a warning is printed
    with tempfile.TemporaryDirectory() as folder:
        quantize_static(
            visual,
            file := Path(folder) / "int8.onnx",
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(_QUANTISED),
            nodes_to_quantize=chosen,
            per_channel=True,
            reduce_range=True,  # seven bits: without VNNI, sums of products of eight bits overflow
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        quantised = onnx.load(file)
    return _joined(quantised, decision, whole)


def _in_network(node: Any) -> bool:
    """Whether a node belongs to a module of its own: a backbone, a head, a classifier."""
    scopes = next((ast.literal_eval(each.value) for each in node.metadata_props if each.key == _SCOPES), ())
    return len(scopes) > 2  # the whole, the module, the node


def _joined(quantised: Any, decision: Sequence[Any], whole: Any) -> Any:
    """The quantised networks with the decision after them, and the ends and notes of the whole graph."""
    graph = quantised.graph
    graph.node.extend(decision)
    wanted = {name for node in decision for name in node.input}
    wanted -= {each.name for each in graph.initializer}
    graph.initializer.extend(each for each in whole.graph.initializer if each.name in wanted)
    pairs = [(graph.input, whole.graph.input), (graph.output, whole.graph.output)]
    for ends, own in (*pairs, (quantised.metadata_props, whole.metadata_props)):
        del ends[:]
        ends.extend(own)
    return quantised
