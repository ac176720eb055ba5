"""Writing a graph as a file: ONNX by torch's own exporter, or a program of `torch.export`.

In ONNX a default is an initialiser that is an input as well: onnxruntime uses it unless a caller passes another value.
A program of torch has no defaults; its `example_inputs` hold them.
"""

import io
import json
import logging
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dsvnp import __version__
from dsvnp.export.graph import Graph
from dsvnp.export.kinds import graph_of
from dsvnp.files import write_atomically

OPSET = 18  # of torch's exporter: newer ones would be converted, older runtimes know this one
FACTS = "dsvnp"  # key of the facts in an ONNX file's metadata; their file in a program is FACTS.json


def to_onnx(what: Any, path: str | Path, *, required: Collection[str] = (), **settings: Any) -> Path:
    """Write one ONNX file that predicts with any number of context and target points.

    Args:
        what: a model, a fitted estimator, or a `Graph`.
        path: file to write.
        required: inputs that shall have no default; where a runtime cannot change defaults (JavaScript), name here what
            you want to pass.
        settings: of the graph: `num_global`, `num_local` and `seed` of a model's draws.
    """
    onnx = _onnx()
    graph = graph_of(what, **settings).requiring(required)
    proto = _proto(graph)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(value.detach().cpu().numpy(), name)
        for name, value in graph.defaults.items()
    )
    entry = proto.metadata_props.add()
    entry.key, entry.value = FACTS, json.dumps(_facts(graph))
    onnx.checker.check_model(proto)
    return _written(Path(path), proto.SerializeToString())


def to_pt2(what: Any, path: str | Path, **settings: Any) -> Path:
    """Write a program that `torch.export.load` reads; its example inputs hold the seeded draws.

    Args:
        what: a model, a fitted estimator, or a `Graph`.
        path: file to write, which ends in .pt2.
        settings: of the graph, see `to_onnx`.
    """
    graph = graph_of(what, **settings)
    # A single slot would be traced as such: masks need one slot per point here.
    program = graph.requiring([name for name in graph.defaults if name.startswith("mask")]).program()
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={f"{FACTS}.json": json.dumps(_facts(graph))})
    return _written(Path(path), buffer.getvalue())


def _written(path: Path, content: bytes) -> Path:
    """Write a file into a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def _onnx() -> Any:
    """The package `onnx`, if that and what torch's exporter needs are installed."""
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"writing ONNX needs {error.name}, which is not installed: pip install 'dsvnp[onnx]'",
            name=error.name,
        ) from None
    return onnx


def _proto(graph: Graph) -> Any:
    """Let torch translate a graph; axes have names, and no input has a default yet."""
    program = graph.program()
    assert program.example_inputs is not None
    names = list(graph.module(*program.example_inputs[0]))
    inputs = list(graph.axes)
    with _quiet():
        made = torch.onnx.export(
            program, dynamo=True, opset_version=OPSET, input_names=inputs, output_names=names, verbose=False
        )
    assert made is not None
    _free_names(made.model.graph)
    proto = made.model_proto
    _open_axes(proto, graph)
    return proto


def _facts(graph: Graph) -> dict[str, Any]:
    """What a user of the file wants to know."""
    axes = {name: list(axes) for name, axes in graph.axes.items()}
    return {"dsvnp": __version__, **graph.facts, "inputs": axes, "defaults": list(graph.defaults)}


def _free_names(graph: Any) -> None:
    """Rename values inside the graph that have the name of an input or an output: torch calls a mean "mean", too."""
    outer = [*graph.inputs, *graph.outputs]
    taken, kept = {value.name for value in outer}, set(map(id, outer))
    for value in [value for node in graph for value in node.outputs]:
        if value.name in taken and id(value) not in kept:
            value.name = f"{value.name}_inside"


def _open_axes(proto: Any, graph: Graph) -> None:
    """Give open axes their names: of inputs, those too on which a default has a single slot, and of outputs."""
    names: dict[str, str] = {}  # what torch calls an axis → its name
    for value in proto.graph.input:
        for dim, axis in zip(value.type.tensor_type.shape.dim, graph.axes[value.name], strict=True):
            if isinstance(axis, str):
                names |= {dim.dim_param: axis} if dim.dim_param else {}
                dim.dim_param = axis
    for value in [*proto.graph.output, *proto.graph.value_info]:
        for dim in [dim for dim in value.type.tensor_type.shape.dim if dim.dim_param]:
            dim.dim_param = re.sub(r"\w+", lambda found: names.get(found[0], found[0]), dim.dim_param)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes on packages that are not installed, and on its own future, to itself."""
    logger = logging.getLogger("torch.onnx._internal.exporter")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
