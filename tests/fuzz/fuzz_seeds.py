"""Small files in true formats that the fuzzer damages."""

import base64
import struct
from typing import Any

import numpy as np


def fasttext(words: list[str], matrix: np.ndarray, buckets: int) -> bytes:
    rows, columns = matrix.shape
    content = struct.pack("<ii12id", 793712314, 12, columns, 5, 5, 1, 5, 1, 2, 2, buckets, 3, 6, 100, 1e-4)
    content += struct.pack("<iiiqq", len(words), len(words), 0, 1000, -1)
    content += b"".join(word.encode() + b"\0" + struct.pack("<qb", 7, 0) for word in words)
    return content + struct.pack("<bqq", 0, rows, columns) + matrix.astype("<f4").tobytes()


def small_network() -> Any:
    """A graph with the inputs and outputs of an exported model: a 1x1 convolution, and the nearest prototype."""
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).normal(size=(8, 3, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["pixels"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["chw"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["chw", "first"], ["batch"]),
        helper.make_node("Conv", ["batch", "weights"], ["features"]),
        helper.make_node("Transpose", ["features"], ["channels_last"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["prototypes"], ["by_channel"], perm=[1, 0]),
        helper.make_node("MatMul", ["channels_last", "by_channel"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["of_batch"], axis=3, keepdims=0),
        helper.make_node("Squeeze", ["of_batch", "first"], ["labels"]),
    ]
    inputs = [
        helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["height", "width", 3]),
        helper.make_tensor_value_info("prototypes", TensorProto.FLOAT, ["classes", 8]),
        helper.make_tensor_value_info("unseen", TensorProto.BOOL, ["classes"]),
        helper.make_tensor_value_info("rule", TensorProto.INT64, []),
        helper.make_tensor_value_info("value", TensorProto.FLOAT, []),
    ]
    outputs = [
        helper.make_tensor_value_info("labels", TensorProto.INT64, ["height", "width"]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 8, "height", "width"]),
    ]
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([0]), "first")]
    return helper.make_model(
        helper.make_graph(nodes, "network", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )


def small_encoder(dimension: int) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).normal(size=(dimension, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["vectors", "weights"], ["prototypes"])],
        "encoder",
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["classes", dimension])],
        [helper.make_tensor_value_info("prototypes", TensorProto.FLOAT, ["classes", 8])],
        [numpy_helper.from_array(weights, "weights")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def exported(graphs: tuple[Any, Any], description: str, encoder: bytes | None = None) -> bytes:
    """A file as `joem export` writes it, of small graphs."""
    from onnx import helper

    network, own = graphs
    content = own.SerializeToString() if encoder is None else encoder
    text = description.replace("\ud800", "\ue000")  # half a character, which only a hostile file holds: put in below
    helper.set_model_props(network, {"joem": text, "joem.semantic_encoder": base64.b64encode(content).decode()})
    return network.SerializeToString().replace("\ue000".encode(), "\ud800".encode("utf-8", "surrogatepass"))
