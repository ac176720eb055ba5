"""Files that predict without this package: ONNX for onnxruntime in any language, and programs of `torch.export`.

    to_onnx(model, "model.onnx")        a model, a fitted estimator, or a `Graph`
    to_pt2(model, "model.pt2")          the same for torch
    pretrained_graph("tables")          a pretrained network that reads a table in its own units

A file holds the network, the scaling of inputs and outputs, and the draws of its latents.
"""

from dsvnp.export.graph import Graph
from dsvnp.export.kinds import graph_of, pretrained_graph
from dsvnp.export.writing import to_onnx, to_pt2

__all__ = ["Graph", "graph_of", "pretrained_graph", "to_onnx", "to_pt2"]
